//! Locks on the global store's own files, by which agents of several nodes exclude each other.
//!
//! A lock belongs to the open file description through which it was taken (`F_OFD_SETLK`, `flock`). One description for each
//! owner therefore lets the store tell the owners of one agent apart, and a killed agent leaves no lock behind.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{self, FlockOperation, OFlags};
use rustix::io::Errno;

use super::identity::FUSE_MAGIC;
use super::{PosixStore, reopen, sharing};
use crate::calls::{Store, StoreCall};

/// A range of bytes of a file, both ends inclusive; `end` is `i64::MAX` for all bytes to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// No other owner may hold a byte of it, not even shared.
    pub exclusive: bool,
}

/// An open file description of a file of the global store through which locks are taken. They end with it.
#[derive(Debug)]
pub struct FileLocks {
    file: File,
    store: Store,
}

impl PosixStore {
    /// Opens a file for locks of one owner; `node` may be an `O_PATH` descriptor.
    ///
    /// Errors: what `open` says. A file that cannot be written is opened for reading, and takes no exclusive range
    /// (`EBADF`).
    pub fn open_for_locks(&self, node: BorrowedFd<'_>) -> io::Result<FileLocks> {
        let store = self.calls();
        let file = store.call(StoreCall::Open, || {
            // An append-only file is opened for writing with O_APPEND alone.
            reopen(node, OFlags::RDWR | OFlags::APPEND).or_else(|_| reopen(node, OFlags::RDONLY))
        })?;
        Ok(FileLocks { file, store })
    }

    /// Whether locks on this store's files exclude the programs of every machine that mounts it. `Err`: why not, in a few words.
    /// A local file system is mounted by one machine alone, so its locks do.
    pub fn locks_across_nodes(&self) -> Result<(), String> {
        let root = self.root();
        let unknown = |error: io::Error| format!("its mount options cannot be read: {error}");
        let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(unknown)?;
        let device = fs::fstat(root).map_err(|error| unknown(error.into()))?.st_dev;
        let kind = self.root.kind;
        if kind == FUSE_MAGIC || self.root.shared {
            return sharing::locks_across_nodes(kind, &table, device);
        }
        Ok(())
    }
}

impl FileLocks {
    /// Takes a range, replacing what this owner has there, or fails and leaves that: `EAGAIN` if another owner stands in the way.
    pub fn try_range(&self, range: LockedRange) -> Result<(), Errno> {
        let kind = if range.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        self.control(libc::F_OFD_SETLK, kind, range.start, range.end).map(drop).map_err(|errno| match errno {
            Errno::ACCESS => Errno::AGAIN,
            other => other,
        })
    }

    /// Releases a range, ends inclusive.
    pub fn release_range(&self, start: u64, end: u64) -> Result<(), Errno> {
        self.control(libc::F_OFD_SETLK, libc::F_UNLCK, start, end).map(drop)
    }

    /// A range of another owner that stands in the way, if one does.
    pub fn conflict(&self, range: LockedRange) -> Result<Option<LockedRange>, Errno> {
        let kind = if range.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        let found = self.control(libc::F_OFD_GETLK, kind, range.start, range.end)?;
        if i32::from(found.l_type) == libc::F_UNLCK {
            return Ok(None);
        }
        let start = u64::try_from(found.l_start).unwrap_or(0);
        let end = match found.l_len {
            0 => i64::MAX as u64,
            len => start + (len as u64).saturating_sub(1),
        };
        Ok(Some(LockedRange { start, end, exclusive: i32::from(found.l_type) == libc::F_WRLCK }))
    }

    /// Takes a whole-file `flock`, or fails with `EAGAIN`. A lock of the other kind that this owner had is then lost, as flock(2) says.
    pub fn try_whole(&self, exclusive: bool) -> Result<(), Errno> {
        let how =
            if exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        self.store.call(StoreCall::Lock, || fs::flock(&self.file, how))
    }

    /// Releases the `flock`.
    pub fn release_whole(&self) -> Result<(), Errno> {
        self.store.call(StoreCall::Lock, || fs::flock(&self.file, FlockOperation::Unlock))
    }

    fn control(&self, command: libc::c_int, kind: libc::c_int, start: u64, end: u64) -> Result<libc::flock, Errno> {
        let last = i64::MAX as u64;
        let (start, end) = (start.min(last), end.min(last));
        // A length of 0 reaches to the end of the file, wherever that will be.
        let length = if end == last { 0 } else { end - start + 1 };
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start as i64,
            l_len: length as i64,
            l_pid: 0,
        };
        let done = self.store.call(StoreCall::Lock, || {
            // SAFETY: the descriptor is open and the kernel reads and writes one `struct flock`, which lives here.
            unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) }
        });
        match done {
            -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(lock),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::posix::StoreOptions;

    fn range(start: u64, end: u64, exclusive: bool) -> LockedRange {
        LockedRange { start, end, exclusive }
    }

    #[test]
    fn two_owners_of_one_process_exclude_each_other_and_a_closed_one_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let store = PosixStore::new(root.into(), StoreOptions::default()).unwrap();
        let file = std::fs::File::create(directory.path().join("f")).unwrap();
        let [one, two] = [(); 2].map(|()| store.open_for_locks(file.as_fd()).unwrap());
        one.try_range(range(10, 19, true)).unwrap();
        assert_eq!(two.try_range(range(19, 30, false)), Err(Errno::AGAIN));
        assert_eq!(two.conflict(range(0, u64::MAX, false)), Ok(Some(range(10, 19, true))));
        two.try_range(range(20, u64::MAX, true)).unwrap();
        assert_eq!(one.conflict(range(25, 25, false)), Ok(Some(range(20, i64::MAX as u64, true))));
        one.try_whole(true).unwrap();
        assert_eq!(two.try_whole(false), Err(Errno::AGAIN), "and ranges have nothing to do with it");
        one.release_whole().unwrap();
        two.try_whole(false).unwrap();
        drop(one);
        two.try_range(range(0, u64::MAX, true)).unwrap();
        assert_eq!(store.locks_across_nodes(), Ok(()));
    }
}
