//! Early write-back of replicas.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use types::{ByteRange, Version};

use super::FileHandle;
use crate::burst_buffer::replica::How;
use crate::cache::Inner;
use crate::medium::begin_to_write_back;
use crate::residency::File;

/// Starts the write-back of bytes written to a complete replica, from any thread. It holds no descriptor of the
/// replica between two calls.
pub struct WriteBehind {
    inner: Arc<Inner>,
    file: Arc<File>,
    version: Version,
}

impl FileHandle {
    /// Returns `None` if there is no complete replica, or if the policy leaves write-back to the kernel.
    pub fn write_behind(&self) -> Option<WriteBehind> {
        let version = self.whole.filter(|_| self.policy.write_back_early)?;
        Some(WriteBehind { inner: Arc::clone(&self.inner), file: Arc::clone(&self.file), version })
    }
}

impl WriteBehind {
    /// Starts the write-back, and waits at most for the medium's queue. `range` must still be synced, for this
    /// promises nothing. It does nothing while another thread syncs the file. Bytes that the medium did not take are
    /// noted for the next sync. Errors: those of the write-back, and of opening the replica (`ENOENT` if it is gone).
    pub fn begin(&self, range: ByteRange) -> io::Result<()> {
        // Not open for writing: that would prevent a lease for longer.
        let replica = self.inner.replicas.open_as(self.version, How::Read)?;
        begin_to_write_back(&self.file, self.version, replica.as_fd(), range)
    }
}
