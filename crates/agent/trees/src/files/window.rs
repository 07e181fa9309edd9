//! Bytes that windows acknowledged, which come into the local file of an open file.
//!
//! A window makes its file count as written to from before the first record until all records are in the local file. So nobody brings
//! the file to the global store, packs it, drops its data or gives its tree back in between.
//!
//! | the agent dies after | the log says | the next agent |
//! | --- | --- | --- |
//! | the note, before a ring is granted | the file changes | brings the file once more, as it is |
//! | a record | the same | finds file and ring, and applies the record |
//! | a part of a batch | the same | applies the batch again: the mark of what is applied comes later |
//! | that mark, before size and time are in the log | the same | finds size and time at the local file, which is not marked as unwritten |
//! | the last close, which takes both into the log | size and time | has nothing to do |
//!
//! The note comes first because only files that the global store lacks changes of are held against an end of the delegation: a tree
//! that has lost its mark and has nothing for the store is removed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use config::Policy;
use data_store::{AcknowledgedBytes, OpenData, OpenHow, Removed, WindowFile, WindowTarget, WindowUsage};
use delegation::NodeNumber;
use types::Timestamp;

use super::contents::write_full;
use super::directory::{UNWRITTEN, mtime_of, times_with};
use super::handle::TreeHandle;
use super::{TreeFiles, limits};

impl TreeFiles {
    /// Opens a file for records of windows. Errors: as for [`open_data`](TreeFiles::open_data).
    pub fn open_for_windows(
        &self,
        node: NodeNumber,
        policy: &Arc<Policy>,
        usage: WindowUsage,
    ) -> io::Result<WindowFile> {
        let how = OpenHow { write: true, policy: Arc::clone(policy), ..OpenHow::default() };
        let handle = TreeHandle::open(&self.shared, node, &how, &|| false)?;
        // The directory may go with its last name, and the file be used by those who have it open.
        handle.to_write(false)?;
        if matches!(usage, WindowUsage::Serve(_)) {
            handle.expect_changes()?;
        }
        let part_bytes = limits::WINDOW_PART_BYTES;
        Ok(WindowFile { target: Box::new(handle), part_bytes, is_remote: false, write_back: None })
    }
}

/// State of a file before bytes arrive that were written a while ago.
struct Before {
    changes: u64,
    mtime: Timestamp,
}

fn wall() -> Timestamp {
    let now = concurrency::wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

impl TreeHandle {
    /// Notes in the log that the file changes, before anything of its changes is.
    fn expect_changes(&self) -> io::Result<()> {
        let (place, number) = (self.shared.place(), self.open.number);
        let mut using = self.open.using.lock();
        using.settle(place, number, false)?;
        match place.tree.content(number).filter(|content| content.has_name) {
            Some(content) => place.tree.set_content(number, content.size, content.mtime, content.place),
            None => Ok(()),
        }
    }

    fn before(&self, fd: &OwnedFd) -> io::Result<Before> {
        let changes = self.open.dating.changes();
        let mtime = match mtime_of(&rustix::fs::fstat(fd)?) {
            UNWRITTEN => self.shared.tree.content(self.open.number).map_or(UNWRITTEN, |content| content.mtime),
            written => written,
        };
        Ok(Before { changes, mtime })
    }

    /// Sets the file's time after all or some bytes have arrived; the last of them was written at `at`. The time moves forwards, unless
    /// somebody had set one that is to come. Changes that others made meanwhile keep their time.
    fn backdate(&self, fd: &OwnedFd, before: &Before, at: Timestamp) -> io::Result<()> {
        let set = self.open.dating.set(before.changes, || {
            // Nobody sets a time now.
            let _using = self.open.using.lock();
            let found = mtime_of(&rustix::fs::fstat(fd)?);
            let is_to_come = before.mtime >= wall();
            let mtime = if is_to_come { at } else { at.max(before.mtime.next()) };
            let is_due = mtime < found || found <= before.mtime && !is_to_come;
            if is_due && found != UNWRITTEN && mtime > UNWRITTEN {
                rustix::fs::futimens(fd, &times_with(mtime))?;
            }
            Ok(())
        });
        set.unwrap_or(Ok(()))
    }
}

impl WindowTarget for TreeHandle {
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], at: Timestamp) -> io::Result<Option<u64>> {
        let fd = self.to_write(false)?;
        let before = self.before(&fd)?;
        let mut straight = true;
        let written = parts.iter().try_for_each(|(offset, bytes)| {
            match bytes {
                AcknowledgedBytes::Copied(data) => write_full(&fd, data, *offset)?,
                AcknowledgedBytes::Gathered(bytes) => straight = straight && bytes.write(fd.as_fd(), *offset),
            }
            Ok(())
        });
        // After an error a part may be written, so the time is set as well.
        if at.age(wall()) > limits::BACKDATE_AFTER
            && let Err(error) = self.backdate(&fd, &before, at)
        {
            tracing::debug!(%error, "could not set a file's time to that of its last write");
        }
        written.map(|()| straight.then_some(0))
    }

    fn sync(&self) -> io::Result<u64> {
        self.sync_all(false).map(|()| 0)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        OpenData::set_len(self, len)
    }

    fn removed(&self) -> Removed {
        let is_nameless = self.open.using.lock().unlinked;
        let is_last = self.open.handles.load(Ordering::Acquire) == 1;
        if is_nameless && is_last { Removed::Here } else { Removed::No }
    }

    fn report_loss(&self) -> io::Result<()> {
        Ok(())
    }
}
