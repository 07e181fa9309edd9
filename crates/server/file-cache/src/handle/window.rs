//! Acknowledged bytes of windows.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{ByteRange, Timestamp};

use super::{FileHandle, Route, is_late};
use crate::burst_buffer::replica::How;
use crate::medium::begin_to_write_back;
use data_store::{AcknowledgedBytes, OpenData, Removed, StartWriteBack, WindowTarget};

impl FileHandle {
    /// Writes acknowledged bytes. Differs from an ordinary write in two ways: a failed stage-out, which the program
    /// must still be told, does not prevent the write, and neither does a caller that has given up waiting.
    pub(super) fn write_acknowledged(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let seen = self.file.live.lock().told.error.0;
        self.seen.store(seen, Ordering::Relaxed);
        self.strays();
        let written = self.write_late_with_room(data.len(), &mut |to| to.write(data, offset));
        self.tell_change(ByteRange::at(offset, data.len() as u64));
        written
    }

    /// Writes acknowledged data by calling `write` on the replica's descriptor, without an extra copy. Returns whether
    /// it did. If not, for whatever reason, or because the file goes elsewhere, the caller must write all of the data
    /// by [`FileHandle::write_acknowledged`].
    fn write_straight(&self, write: &mut dyn FnMut(BorrowedFd<'_>) -> bool) -> bool {
        self.strays();
        let _io = self.file.io.read();
        matches!(self.route(true), Ok(Route::Replica(fd)) if write(fd.as_fd()))
    }

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

impl WindowTarget for FileHandle {
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], at: Timestamp) -> io::Result<Option<u64>> {
        let since = self.backdating();
        let mut straight = true;
        let written = parts.iter().try_for_each(|(offset, bytes)| {
            match bytes {
                AcknowledgedBytes::Copied(data) => self.write_acknowledged(data, *offset)?,
                AcknowledgedBytes::Gathered(bytes) => {
                    straight = straight && self.write_straight(&mut |replica| bytes.write(replica, *offset));
                }
            }
            Ok(())
        });
        // After an error a part may be written, so the time is set as well.
        if let Some(Err(error)) = since.filter(|_| is_late(at)).map(|since| self.backdate(&since, at)) {
            tracing::debug!(%error, "could not set a file's time to that of its last write");
        }
        written.map(|()| straight.then_some(0))
    }

    fn sync(&self) -> io::Result<u64> {
        self.sync_acknowledged(false).map(|()| 0)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        OpenData::set_len(self, len)
    }

    fn removed(&self) -> Removed {
        let live = self.file.live.lock();
        if live.is_unlinked() && live.users.handles() == 1 { Removed::Here } else { Removed::No }
    }

    fn report_loss(&self) -> io::Result<()> {
        Ok(())
    }
}
