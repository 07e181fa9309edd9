//! Writing a replica back before anybody asks.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use types::{ByteRange, Version};

use super::FileHandle;
use crate::cache::Inner;
use crate::file::File;
use crate::medium::begin_to_write_back;
use crate::replica::How;

/// Has what was written to a complete replica written back, from whatever thread. Between two calls it holds nothing of
/// the replica.
pub struct WriteBehind {
    inner: Arc<Inner>,
    file: Arc<File>,
    version: Version,
}

impl FileHandle {
    /// `None` where there is no complete replica, and where the policy leaves that to the kernel.
    pub fn write_behind(&self) -> Option<WriteBehind> {
        let version = self.whole.filter(|_| self.policy.write_back_early)?;
        Some(WriteBehind { inner: Arc::clone(&self.inner), file: Arc::clone(&self.file), version })
    }
}

impl WriteBehind {
    /// Begins it, and waits for no more than the medium's queue. That promises nothing of `range`, which is to be
    /// synced as ever, and need not happen where somebody syncs the file just now; what the medium did not take is
    /// noted for whoever does. Errors: those, and that the replica cannot be opened, as where it has gone (`ENOENT`).
    pub fn begin(&self, range: ByteRange) -> io::Result<()> {
        // Not for writing: that would stand in the way of a lease longer.
        let replica = self.inner.replicas.open_as(self.version, How::Read)?;
        begin_to_write_back(&self.file, self.version, replica.as_fd(), range)
    }
}
