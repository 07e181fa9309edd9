//! Early write-back of replicas.

use std::os::fd::AsFd;
use std::sync::Arc;

use data_store::StartWriteBack;

use super::FileHandle;
use crate::burst_buffer::replica::How;
use crate::medium::begin_to_write_back;

impl FileHandle {
    /// Returns how the write-back of bytes of the replica is started. No descriptor of the replica is held between two
    /// calls. A call does nothing while another thread syncs the file. Bytes that the medium did not take are noted
    /// for the next sync. Errors of a call: also `ENOENT` if the replica is gone.
    ///
    /// Returns `None` if there is no complete replica, or if the policy leaves write-back to the kernel.
    pub(crate) fn write_behind(&self) -> Option<StartWriteBack> {
        let version = self.whole.filter(|_| self.policy.write_back_early)?;
        let (inner, file) = (Arc::clone(&self.inner), Arc::clone(&self.file));
        Some(Box::new(move |range| {
            // Not open for writing: that would prevent a lease for longer.
            let replica = inner.replicas.open_as(version, How::Read)?;
            begin_to_write_back(&file, version, replica.as_fd(), range)
        }))
    }
}
