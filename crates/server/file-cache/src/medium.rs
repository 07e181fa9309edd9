//! Whether the burst buffer's medium took what was written to replicas.
//!
//! The system tells each descriptor once of what could not be written back, but one that is opened later only where nobody heard
//! before, and it takes the bytes for written from then on. So what anybody hears of a replica is noted in its file. A batch syncs the
//! whole file system and asks each replica for itself: that somebody else heard for the file system takes nothing from these.
//!
//! No sync makes such a replica whole again, nor does writing its pages once more: ext4 then writes blocks that it goes on to take for
//! holes. What is left of it is in memory. So it never counts as synced again; its stage-out fails once, which is told, and then takes
//! what is there; and then it goes, however long it was to stay.
//!
//! What the system forgets together with an inode that left its memory between the error and the sync is lost to us as well.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::cache::{Inner, errno};
use crate::file::File;

/// What is known of the medium below a replica.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Medium {
    /// How often somebody heard that it did not take what was written, and the last errno.
    failed: (u64, i32),
    /// How many of them stage-outs have failed for.
    told: u64,
}

impl Medium {
    /// Whether the medium may lack some of the replica, whatever a sync says.
    pub(crate) fn lacks_some(&self) -> bool {
        self.failed.0 != 0
    }

    fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.failed.1)
    }
}

impl Inner {
    /// Syncs a replica, by a descriptor of its own or a shared one. An error tells that some of what was written to it may be lost.
    pub(crate) fn sync_replica(&self, file: &File, fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
        let medium = file.live.lock().medium;
        if medium.lacks_some() {
            return Err(medium.error());
        }
        hear(file, || if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) })
    }

    /// Step W2: what is to be staged out is on the medium. Fails once for each time that it is not.
    pub(crate) fn secure(&self, file: &File, fd: BorrowedFd<'_>) -> io::Result<()> {
        hear(file, || rustix::fs::fdatasync(fd)).and(once(file))
    }

    /// Where a replica cannot be synced, for the burst buffer takes no writes: an error if the medium did not take what it was given.
    pub(crate) fn lost_nothing(&self, file: &File, fd: BorrowedFd<'_>) -> io::Result<()> {
        hear(file, || told(fd))
    }

    /// W2 of many, each by a descriptor that was opened for it. What became of each; an error is one of the whole burst buffer.
    pub(crate) fn secure_all(&self, replicas: &[(&File, BorrowedFd<'_>)]) -> io::Result<Vec<io::Result<()>>> {
        self.replicas.sync()?;
        Ok(replicas.iter().map(|(file, fd)| hear(file, || told(*fd)).and(once(file))).collect())
    }
}

/// Syncs by `sync`; fails also if somebody heard meanwhile.
fn hear(file: &File, sync: impl FnOnce() -> rustix::io::Result<()>) -> io::Result<()> {
    let (before, _) = file.live.lock().medium.failed;
    let syncing = file.syncing.read();
    if let Err(error) = sync().map_err(io::Error::from) {
        let mut live = file.live.lock();
        tracing::error!(%error, file = %file.identity, "the burst buffer's medium may lack some of a file's data");
        live.medium.failed = (live.medium.failed.0 + 1, errno(&error));
        return Err(error);
    }
    drop(syncing);
    // Whoever synced at the same time and heard in our stead notes it before he lets go.
    drop(file.syncing.write());
    let medium = file.live.lock().medium;
    if medium.failed.0 == before { Ok(()) } else { Err(medium.error()) }
}

/// An error that no stage-out was told of.
fn once(file: &File) -> io::Result<()> {
    let medium = &mut file.live.lock().medium;
    let told = std::mem::replace(&mut medium.told, medium.failed.0);
    if told == medium.failed.0 { Ok(()) } else { Err(medium.error()) }
}

/// What the system has to tell of a file that was written back already. Unlike a sync it costs no flush of the device.
fn told(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    // SAFETY: a call on a descriptor that is borrowed for it; no pointer is passed.
    let result = unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    let error = (result != 0).then(io::Error::last_os_error);
    error.map_or(Ok(()), |error| Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_syncs_while_another_hears_of_lost_bytes_hears_it_too() {
        for _ in 0..10 {
            let identity = types::Identity::new([1]).unwrap();
            let file = Arc::new(File::new(identity, Arc::default(), Duration::ZERO));
            let [begun, synced] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            let (other, begins, ours) = (Arc::clone(&file), Arc::clone(&begun), Arc::clone(&synced));
            let hearing = std::thread::spawn(move || {
                hear(&other, || {
                    begins.store(true, Ordering::Release);
                    testkit::wait_until("another synced", Duration::from_secs(30), || ours.load(Ordering::Acquire));
                    Err(rustix::io::Errno::IO)
                })
            });
            testkit::wait_until("both sync", Duration::from_secs(30), || begun.load(Ordering::Acquire));
            let heard = hear(&file, || {
                synced.store(true, Ordering::Release);
                Ok(())
            });
            assert!(heard.is_err(), "the system told the other alone");
            assert!(hearing.join().unwrap().is_err());
        }
    }
}
