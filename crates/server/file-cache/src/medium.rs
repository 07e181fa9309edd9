//! Write-back errors of replicas: whether the burst buffer's medium took everything that was written.
//!
//! The system reports a failed write-back once to each open descriptor. A descriptor that is opened later gets the
//! report only if nobody got it before. From then on the system takes the bytes for written. So every report about a
//! replica is noted in its file. A batch syncs the whole file system and asks each replica by its own descriptor,
//! because a report to the file system's descriptor takes nothing from these.
//!
//! No sync repairs such a replica, nor does writing its pages once more: ext4 then writes to blocks that it still
//! takes for holes. The rest of the data is in memory until that memory is needed for something else, and nobody can
//! tell whether it is still there. So:
//!
//! 1. The replica never counts as synced again.
//! 2. If the global copy holds data, that stays: the file is a conflict, which `resolve` ends. If the global copy is
//!    empty, the remaining data is copied at once, and then the file is a conflict: nobody knows whether that was all.
//! 3. Once the file is clean, the replica is dropped, even if it was to stay longer.
//!
//! Not every error means lost bytes. A direct write that finds pages of its range in use marks its file as if
//! write-back had failed, although nothing failed. The system notes that only in the file; a real failure it notes in
//! the file system too. So an error of a replica made since the start is believed only if a sync of the whole file
//! system has failed since then as well. That sync writes everything back, including that replica's bytes. A program
//! that syncs gets the error nevertheless, as in a plain directory.
//!
//! Two kinds of reports are lost to the agent: those that the system forgets with an inode that left memory before the
//! sync, and those from before the agent's restart.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use types::HasErrno;

use catalogue::{Durability, Record};
use types::{ByteRange, Version};

use crate::burst_buffer::replica::How;
use crate::cache::Inner;
use crate::errors::errno;
use crate::residency::File;

/// Reason that an operator reads for such a file.
pub(crate) const LACKS: &str =
    "the burst buffer's medium did not take all that was written: what there is of it may be incomplete";

struct Heard {
    error: io::Error,
    /// Whether bytes may be lost. Otherwise they could only not be written yet.
    lost: bool,
}

impl Inner {
    /// Returns when everything written to any file survives a crash of the machine. All files are tried. Errors: the
    /// first one.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.unclean_files().iter().map(|file| self.sync_unclean(file)).fold(Ok(()), Result::and)
    }

    fn sync_unclean(&self, file: &File) -> io::Result<()> {
        let version = file.live.lock().record().map(|record| record.version);
        let Some(version) = version else { return Ok(()) };
        let replica = match self.replicas.open_as(version, How::Read) {
            // The replica has been staged out and evicted, or removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        // The name comes first. Otherwise a crash of the global store could make an orphan of a file that is synced.
        file.sync_name()?;
        self.sync_replica(file, replica.as_fd(), false)?;
        self.sync_record(file)
    }

    /// Makes the record durable, and lets it say that written bytes were synced.
    pub(crate) fn sync_record(&self, file: &File) -> io::Result<()> {
        if file.live.lock().is_intent_unsynced() {
            let _gate = file.gate();
            let Some(record) = file.live.lock().record().cloned() else { return Ok(()) };
            let synced_len = record.synced_len.max(self.replica_size(file));
            self.put(file, Record { synced: true, synced_len, ..record }, Durability::Machine)?;
            file.live.lock().synced.intent = true;
        }
        Ok(())
    }

    /// Syncs a replica, by a descriptor of its own or a shared one. Errors: some of the written bytes may be lost.
    pub(crate) fn sync_replica(&self, file: &File, fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
        self.sync_replica_as(file, fd, data_only, false)
    }

    /// Does `sync_replica`. `asked`: for a program, which gets every error that a plain directory would report.
    pub(crate) fn sync_replica_as(
        &self,
        file: &File,
        fd: BorrowedFd<'_>,
        data_only: bool,
        asked: bool,
    ) -> io::Result<()> {
        self.hear_synced(file, fd, data_only, asked)?;
        let medium = file.live.lock().medium;
        if medium.lacks_some() { Err(medium.error()) } else { Ok(()) }
    }

    /// Does step W2: the data to be staged out is on the medium. Errors: the replica may lack bytes, so it must not
    /// replace the global copy.
    pub(crate) fn secure(&self, file: &File, record: &Record, fd: BorrowedFd<'_>) -> io::Result<()> {
        may_replace(file, record, self.hear_synced(file, fd, true, false))
    }

    /// Checks a replica that cannot be synced, because the burst buffer takes no writes.
    pub(crate) fn secure_unsynced(&self, file: &File, record: &Record, fd: BorrowedFd<'_>) -> io::Result<()> {
        may_replace(file, record, hear(file, || self.judged(file, told(fd), false)))
    }

    /// Does W2 for many replicas, each by a descriptor that was opened for it. Returns a result for each. Errors: one
    /// of the whole burst buffer.
    pub(crate) fn secure_all(&self, replicas: &[(&File, &Record, BorrowedFd<'_>)]) -> io::Result<Vec<io::Result<()>>> {
        // Some errors are reported only to the thread that starts the write-back.
        let begun: Vec<_> = replicas.iter().map(|(file, _, fd)| hear(file, || begin(*fd))).collect();
        let synced = self.replicas.sync();
        let mut ends: Vec<_> = begun
            .into_iter()
            .zip(replicas)
            .map(|(begun, (file, _, fd))| begun.and_then(|()| hear(file, || self.judged(file, told(*fd), false))))
            .collect();
        if let Err(error) = synced {
            if self.refuses(&error) {
                return Err(error);
            }
            // Somebody's bytes are lost, perhaps no replica's.
            for (end, (file, _, fd)) in ends.iter_mut().zip(replicas).filter(|(end, _)| end.is_ok()) {
                *end = self.hear_synced(file, *fd, true, false);
            }
        }
        Ok(ends.into_iter().zip(replicas).map(|(end, (file, record, _))| may_replace(file, record, end)).collect())
    }

    /// Returns an error if the medium lacks bytes, as far as that is known, and nobody accepted the remaining data.
    pub(crate) fn lost_nothing(&self, file: &File, fd: BorrowedFd<'_>) -> io::Result<()> {
        hear(file, || self.judged(file, told(fd), false))?;
        let medium = file.live.lock().medium;
        if medium.is_doubtful() { Err(medium.error()) } else { Ok(()) }
    }

    fn hear_synced(&self, file: &File, fd: BorrowedFd<'_>, data_only: bool, asked: bool) -> io::Result<()> {
        hear(file, || {
            // Bytes that the file system discards at the begin of a write-back are reported only here.
            begin(fd)?;
            self.judged(file, told(fd), asked)?;
            let synced = if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
            let synced = synced.map_err(io::Error::from);
            self.judged(file, synced.map_err(|error| Heard { lost: !self.refuses(&error), error }), asked)
        })
    }

    /// Judges an error of a replica: whether bytes may be lost. `asked`: a program asked, and hears each error.
    fn judged(&self, file: &File, heard: Result<(), Heard>, asked: bool) -> Result<(), Heard> {
        let Err(heard) = heard else { return Ok(()) };
        let is_new = || file.live.lock().version().is_some_and(|version| version >= self.superblock.first);
        if !heard.lost || errno(&heard.error) != libc::EIO || !is_new() || self.replicas.have_failed() {
            return Err(heard);
        }
        tracing::debug!(file = %file.identity, "ignored a write-back error that a direct write caused: nothing is lost");
        if asked { Err(Heard { lost: false, ..heard }) } else { Ok(()) }
    }
}

/// Starts to write a range of a replica back before anybody asks, unless a sync is under way. Errors: some may be lost.
pub(crate) fn begin_to_write_back(
    file: &File,
    version: Version,
    fd: BorrowedFd<'_>,
    range: ByteRange,
) -> io::Result<()> {
    // A sync that begins meanwhile waits for the result noted here. Nobody is told by this call that all is well.
    let Some(syncing) = file.syncing.try_read() else { return Ok(()) };
    let begun = of_range(fd, Some(range), libc::SYNC_FILE_RANGE_WRITE).or_else(begun_with);
    let noted = match begun {
        // Lost bytes of a replica that is gone matter to nobody.
        Err(heard) if file.live.lock().version() == Some(version) => Err(note(file, heard)),
        _ => Ok(()),
    };
    drop(syncing);
    noted
}

/// Returns whether the replica may replace the global copy: all of it is on the medium, or the global copy holds
/// nothing to lose.
fn may_replace(file: &File, record: &Record, heard: io::Result<()>) -> io::Result<()> {
    let medium = file.live.lock().medium;
    match heard {
        _ if medium.is_doubtful() && record.base.size == 0 => Ok(()),
        Ok(()) if medium.is_doubtful() => Err(medium.error()),
        heard => heard,
    }
}

/// Calls `sync`, and fails also if another thread got a report meanwhile.
fn hear(file: &File, sync: impl FnOnce() -> Result<(), Heard>) -> io::Result<()> {
    let before = file.live.lock().medium.reports();
    let syncing = file.syncing.read();
    if let Err(heard) = sync() {
        return Err(note(file, heard));
    }
    drop(syncing);
    // A thread that synced at the same time may have got our report. It notes that before it unlocks.
    drop(file.syncing.write());
    let medium = file.live.lock().medium;
    if medium.reports() == before { Ok(()) } else { Err(medium.error()) }
}

/// Notes lost bytes in the file. Returns the error.
fn note(file: &File, Heard { error, lost }: Heard) -> io::Error {
    if lost {
        let mut live = file.live.lock();
        tracing::error!(%error, file = %file.identity, "the burst buffer's medium may lack some of a file's data");
        live.medium.fail(errno(&error));
    }
    error
}

fn begin(fd: BorrowedFd<'_>) -> Result<(), Heard> {
    of_range(fd, None, libc::SYNC_FILE_RANGE_WRITE).or_else(begun_with)
}

/// Classifies an error at the start of a write-back. Only its caller is told of bytes that ext4 discards: those of
/// blocks that it cannot allocate, for lack of room or for damage (`EIO`, `EUCLEAN`, `EBADMSG`). A file system that
/// takes no writes keeps the bytes, and so does one that lacks memory.
fn begun_with(error: io::Error) -> Result<(), Heard> {
    match error.errno() {
        Some(libc::EROFS | libc::ENOMEM | libc::EAGAIN | libc::EINTR) => Ok(()),
        _ => Err(Heard { error, lost: true }),
    }
}

/// Returns the errors that the system reports for a file that was written back. Unlike a sync this flushes no device.
fn told(fd: BorrowedFd<'_>) -> Result<(), Heard> {
    of_range(fd, None, libc::SYNC_FILE_RANGE_WAIT_BEFORE).map_err(|error| Heard { error, lost: true })
}

/// Calls `sync_file_range` on a range, or on the whole file for `None`.
fn of_range(fd: BorrowedFd<'_>, range: Option<ByteRange>, what: libc::c_uint) -> io::Result<()> {
    let range = range.map_or([0, 0], |range| [range.start, range.len()]);
    let [start, bytes] = range.map(|number| number.min(i64::MAX as u64) as i64);
    // SAFETY: a call on a descriptor that is borrowed for it; no pointer is passed.
    if unsafe { libc::sync_file_range(fd.as_raw_fd(), start, bytes, what) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test] // S17
    fn what_writing_back_throws_away_is_lost_and_what_it_keeps_is_not() {
        let lost = |errno| begun_with(io::Error::from_raw_os_error(errno)).is_err_and(|heard| heard.lost);
        assert!([libc::EIO, libc::ENOSPC, libc::EUCLEAN, libc::EBADMSG, libc::EDQUOT].into_iter().all(lost));
        assert!(![libc::EROFS, libc::ENOMEM, libc::EAGAIN, libc::EINTR].into_iter().any(lost));
    }

    #[test]
    fn what_is_lost_while_it_is_written_back_early_is_told_to_who_syncs_unless_the_replica_has_gone() {
        use std::os::fd::AsFd;
        let (pipe, _other_end) = std::io::pipe().unwrap();
        for (there, lost) in [(Some(Version(7)), true), (Some(Version(8)), false), (None, false)] {
            let file = File::new(types::Identity::new([1]).unwrap(), Arc::default(), Duration::ZERO);
            there.iter().for_each(|version| file.live.lock().staged_in(*version, None, None));
            // A pipe, of which nothing can be written back.
            let begun = begin_to_write_back(&file, Version(7), pipe.as_fd(), ByteRange::new(0, 10));
            assert_eq!((begun.is_err(), file.live.lock().medium.lacks_some()), (lost, lost), "{there:?}");
        }
        let file = File::new(types::Identity::new([1]).unwrap(), Arc::default(), Duration::ZERO);
        file.live.lock().staged_in(Version(7), None, None);
        let syncing = file.syncing.write();
        begin_to_write_back(&file, Version(7), pipe.as_fd(), ByteRange::new(0, 10)).unwrap();
        drop(syncing);
        assert!(!file.live.lock().medium.lacks_some(), "somebody syncs it anyhow");
    }

    #[test] // S17
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
                    Err(Heard { error: io::Error::from_raw_os_error(libc::EIO), lost: true })
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
