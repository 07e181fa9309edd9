//! The directory of one tree's local files. Each file is named by its number, which no other content ever had.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data_store::RemovalObserver;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use types::{Step, Timestamp, Version};

/// Time of the last write of a local file that nobody has written since it was settled. Programs never see it.
pub(super) const UNWRITTEN: Timestamp = Timestamp { seconds: 1, nanos: 0 };

/// Bit of all numbers of local files. Those of other replicas of this machine, which are counted from 1, never reach it.
const NUMBER_BIT: u64 = 1 << 63;
/// Bits of a number below those of the second in which the process took its first.
const COUNT_BITS: u32 = 30;

/// The next number in this process, of all trees: the kernel knows replicas by their numbers alone.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The local files of one tree.
pub(super) struct LocalDirectory {
    path: PathBuf,
    fd: OwnedFd,
    /// Whether files were made whose names are not synced yet.
    has_new_names: AtomicBool,
    /// Called before each removal.
    pub removals: OnceLock<RemovalObserver>,
    /// Files that there are.
    count: AtomicU64,
}

fn name_of(number: u64) -> String {
    format!("{number:016x}")
}

fn number_of(name: &[u8]) -> Option<u64> {
    let is_ours = name.len() == 16 && name.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte));
    is_ours.then(|| u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok())?
}

/// Returns the time of the last write.
pub(super) fn mtime_of(stat: &Stat) -> Timestamp {
    Timestamp { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

/// Times for a system call that sets the time of the last write alone.
pub(super) fn times_with(mtime: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() },
    }
}

/// Makes all later numbers of this process larger than `last`, and than all of earlier seconds.
fn begin_numbers(last: u64) {
    let now = global_store::now_of_files().seconds.max(0) as u64;
    let first = NUMBER_BIT | (now << COUNT_BITS & !NUMBER_BIT);
    NEXT_NUMBER.fetch_max(first.max(last.saturating_add(1)), Ordering::AcqRel);
}

impl LocalDirectory {
    /// Opens the directory, which is made if it is absent, and returns the numbers of its files.
    pub fn open(path: &Path) -> io::Result<(LocalDirectory, Vec<u64>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).step("make the directory of a tree's files")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
        let fd = fd.step("open the directory of a tree's files")?;
        let mut numbers = Vec::new();
        for entry in Dir::read_from(&fd)? {
            numbers.extend(number_of(entry?.file_name().to_bytes()));
        }
        begin_numbers(numbers.iter().copied().max().unwrap_or(0));
        let directory = LocalDirectory {
            path: path.to_owned(),
            fd,
            has_new_names: AtomicBool::new(true),
            removals: OnceLock::new(),
            count: AtomicU64::new(numbers.len() as u64),
        };
        Ok((directory, numbers))
    }

    /// Makes later numbers larger than that of a file that the log knows, whether the file is there or not.
    pub fn pass(&self, number: u64) {
        begin_numbers(number);
    }

    /// Number of files.
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Makes an empty file that counts as unwritten, and opens it for reading or, with `OFlags::RDWR`, for both.
    pub fn create(&self, access: OFlags) -> io::Result<(u64, OwnedFd)> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::AcqRel);
        let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.fd, name_of(number), flags, Mode::RUSR | Mode::WUSR)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = rustix::fs::futimens(&fd, &times_with(UNWRITTEN)) {
            self.remove(number);
            return Err(error.into());
        }
        self.has_new_names.store(true, Ordering::Release);
        Ok((number, fd))
    }

    /// Opens a file.
    pub fn open_file(&self, number: u64, access: OFlags) -> io::Result<OwnedFd> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME;
        Ok(rustix::fs::openat(&self.fd, name_of(number), flags, Mode::empty())?)
    }

    /// Returns the attributes of a file; `None` if there is no such file.
    pub fn stat(&self, number: u64) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, name_of(number), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks a file as unwritten, if it is there.
    pub fn mark(&self, number: u64) -> io::Result<()> {
        let marked =
            rustix::fs::utimensat(&self.fd, name_of(number), &times_with(UNWRITTEN), AtFlags::SYMLINK_NOFOLLOW);
        match marked {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file. One that cannot be removed stays until the tree is opened again.
    pub fn remove(&self, number: u64) {
        if let Some(tell) = self.removals.get() {
            tell(Version(number));
        }
        match rustix::fs::unlinkat(&self.fd, name_of(number), AtFlags::empty()) {
            Ok(()) => _ = self.count.fetch_sub(1, Ordering::Relaxed),
            Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, number, "a local file of a tree could not be removed"),
        }
    }

    /// Makes the names of all files durable that were made before.
    pub fn sync_names(&self) -> io::Result<()> {
        if !self.has_new_names.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let synced = durable::sync_directory(&self.path).step("sync the directory of a tree's files");
        if synced.is_err() {
            self.has_new_names.store(true, Ordering::Release);
        }
        synced
    }

    /// Makes the content of all files durable, and their names.
    pub fn sync(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.fd).map_err(io::Error::from).step("sync the file system of a tree's files")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once_also_after_a_clock_that_went_back() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, none) = LocalDirectory::open(dir.path()).unwrap();
        assert!(none.is_empty());
        let numbers: Vec<u64> = (0..3).map(|_| directory.create(OFlags::RDONLY).unwrap().0).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        let future = numbers[2] + (1000 << COUNT_BITS);
        std::fs::write(dir.path().join(name_of(future)), b"").unwrap();
        std::fs::write(dir.path().join("another file"), b"").unwrap();
        let (directory, mut found) = LocalDirectory::open(dir.path()).unwrap();
        found.sort();
        assert_eq!(found, [numbers.clone(), vec![future]].concat());
        assert!(directory.create(OFlags::RDONLY).unwrap().0 > future);
        assert!(numbers.iter().all(|number| number & NUMBER_BIT != 0));
        assert_eq!(directory.len(), 5);
    }

    #[test]
    fn names_that_are_no_numbers_are_not_taken_for_numbers() {
        assert_eq!(number_of(b"00000000000000ff"), Some(255));
        for name in [&b"00000000000000FF"[..], b"ff", b"+000000000000000", b"00000000000000fg", b"."] {
            assert_eq!(number_of(name), None);
        }
    }
}
