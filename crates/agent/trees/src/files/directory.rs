//! The directory of one tree's local files. Each file is named by its number, which no other content ever had.

use std::collections::{HashMap, VecDeque};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use concurrency::Mutex;
use data_store::{ReadyObserver, RemovalObserver};
use delegation::DataPlace;
use global_store::posix::reopen_as_path;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use types::{Step, Timestamp, Version};

use super::keeper::{self, Chore};
use super::limits::{READY_FILLED, READY_LOW, READY_OF_ALL};
use super::packs::Packs;

/// Time of the last write of a local file that nobody has written since it was settled. Programs never see it.
pub(super) const UNWRITTEN: Timestamp = Timestamp { seconds: 1, nanos: 0 };

/// Bit of all numbers of local files. Those of other replicas of this machine, which are counted from 1, never reach it.
const NUMBER_BIT: u64 = 1 << 63;
/// Bits of a number below those of the second in which the process took its first.
const COUNT_BITS: u32 = 30;

/// The next number in this process, of all trees: the kernel knows replicas by their numbers alone.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
/// Directories of this process.
static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);

/// The local files of one tree.
pub(super) struct LocalDirectory {
    path: PathBuf,
    pub(super) fd: OwnedFd,
    /// The pack beside the directory.
    pub packs: Packs,
    /// Whether files were made whose names are not synced yet.
    pub(super) has_new_names: AtomicBool,
    /// Held while names are synced.
    syncing: Mutex<()>,
    /// Called before each removal.
    pub removals: OnceLock<RemovalObserver>,
    /// Called for each file that is made ready.
    pub readied: OnceLock<ReadyObserver>,
    /// Files that there are.
    count: AtomicU64,
    /// Files that are about to be dropped.
    pub(super) dropping: AtomicU64,
    /// Data that is dropped once the log is durable up to a sequence, which comes first.
    pub(super) dropped: Mutex<VecDeque<(u64, DataPlace)>>,
    /// Empty files that count as unwritten. Nobody else has them open or mapped.
    pub(super) ready: Mutex<Vec<LocalFile>>,
    /// More such files, by their numbers.
    pub(super) spare: Mutex<Vec<u64>>,
    /// Ready files whose numbers nodes have got, and which are about to be opened.
    reserved: Mutex<HashMap<u64, LocalFile>>,
    /// Held while files are made ready and dropped. True: the directory is not used any more.
    pub(super) closed: Mutex<bool>,
    /// Whether files are going to be made ready.
    is_filling: AtomicBool,
}

/// An open local file.
#[derive(Clone)]
pub(super) struct LocalFile {
    pub number: u64,
    /// Open without the right to read or write (`O_PATH`), so that it stands in no lease's way.
    pub path: Arc<OwnedFd>,
    /// Whether nobody could write since the file was made.
    pub is_new: bool,
}

impl LocalFile {
    /// Returns the attributes of the file.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.path)?)
    }
}

/// Returns the name of the local file with this number.
pub fn name_of(number: u64) -> String {
    format!("{number:016x}")
}

fn number_of(name: &[u8]) -> Option<u64> {
    let is_ours = name.len() == 16 && name.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte));
    is_ours.then(|| u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok())?
}

/// Returns the directory of the pack that belongs to a directory of local files.
pub fn pack_of(data: &Path) -> PathBuf {
    data.with_file_name("pack")
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

/// Returns a number that no content ever had.
pub(super) fn next_number() -> u64 {
    NEXT_NUMBER.fetch_add(1, Ordering::AcqRel)
}

/// Returns how many ready files one directory may have, of `most`: each has a descriptor, and all directories share those of the process.
pub(super) fn share_of(most: usize) -> usize {
    most.min(READY_OF_ALL / DIRECTORIES.load(Ordering::Relaxed).max(1)).max(1)
}

/// Makes all later numbers of this process larger than `last`, and than all of earlier seconds.
fn begin_numbers(last: u64) {
    let now = global_store::now_of_files().seconds.max(0) as u64;
    let first = NUMBER_BIT | (now << COUNT_BITS & !NUMBER_BIT);
    NEXT_NUMBER.fetch_max(first.max(last.saturating_add(1)), Ordering::AcqRel);
}

impl Drop for LocalDirectory {
    fn drop(&mut self) {
        DIRECTORIES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LocalDirectory {
    /// Opens the directory, which is made if it is absent, and returns the numbers of its files.
    pub fn open(path: &Path) -> io::Result<(LocalDirectory, Vec<u64>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).step("make the directory of a tree's files")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
        let fd = fd.step("open the directory of a tree's files")?;
        let packs = Packs::open(pack_of(path)).step("open the pack of a tree's small files")?;
        let mut numbers = Vec::new();
        for entry in Dir::read_from(&fd)? {
            numbers.extend(number_of(entry?.file_name().to_bytes()));
        }
        begin_numbers(numbers.iter().copied().max().unwrap_or(0));
        DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let directory = LocalDirectory {
            path: path.to_owned(),
            fd,
            packs,
            has_new_names: AtomicBool::new(true),
            syncing: Mutex::default(),
            removals: OnceLock::new(),
            readied: OnceLock::new(),
            count: AtomicU64::new(numbers.len() as u64),
            dropping: AtomicU64::new(0),
            dropped: Mutex::default(),
            ready: Mutex::default(),
            spare: Mutex::default(),
            reserved: Mutex::default(),
            closed: Mutex::new(false),
            is_filling: AtomicBool::new(false),
        };
        Ok((directory, numbers))
    }

    /// Makes later numbers larger than that of a file that the log knows, whether the file is there or not.
    pub fn pass(&self, number: u64) {
        begin_numbers(number);
    }

    /// Number of files that have the data of a node.
    pub fn len(&self) -> u64 {
        let _filling = self.closed.lock();
        let empty = self.ready.lock().len() + self.spare.lock().len();
        let unused = empty as u64 + self.dropping.load(Ordering::Relaxed);
        self.count.load(Ordering::Relaxed).saturating_sub(unused)
    }

    /// Returns an empty file that counts as unwritten: one that was made ready, or a new one.
    pub fn take(self: &Arc<LocalDirectory>) -> io::Result<LocalFile> {
        let ready = self.take_ready();
        ready.map_or_else(|| self.create(), Ok)
    }

    fn take_ready(self: &Arc<LocalDirectory>) -> Option<LocalFile> {
        let (file, left) = {
            let mut ready = self.ready.lock();
            (ready.pop(), ready.len())
        };
        if left < READY_LOW && !self.is_filling.swap(true, Ordering::AcqRel) {
            keeper::give(Chore::Fill(Arc::clone(self)));
        }
        file.or_else(|| self.take_spare()?.ok())
    }

    fn take_spare(&self) -> Option<io::Result<LocalFile>> {
        let number = self.spare.lock().pop()?;
        Some(self.find(number).map(|file| LocalFile { is_new: true, ..file }))
    }

    /// Chooses the file of a node that is about to be made; `None` if there is none ready. [`claim`](LocalDirectory::claim) or
    /// [`return_reserved`](LocalDirectory::return_reserved) follows.
    pub fn reserve(self: &Arc<LocalDirectory>) -> Option<u64> {
        let file = self.take_ready()?;
        let number = file.number;
        self.reserved.lock().insert(number, file);
        Some(number)
    }

    /// Returns a file that was reserved under this number.
    pub fn claim(&self, number: u64) -> Option<LocalFile> {
        self.reserved.lock().remove(&number)
    }

    /// Takes back a file that was reserved for a node that was not made.
    pub fn return_reserved(&self, number: u64) {
        self.reserved.lock().remove(&number).into_iter().for_each(|file| self.ready.lock().push(file));
    }

    /// Makes files until there are enough ready ones, unless the directory is not used any more.
    pub fn fill(&self) {
        self.is_filling.store(false, Ordering::Release);
        let closed = self.closed.lock();
        while !*closed && self.ready.lock().len() < share_of(READY_FILLED) {
            match self.take_spare().unwrap_or_else(|| self.create()) {
                Ok(file) => self.keep_ready(file),
                // Who needs a file makes one, and is told.
                Err(_) => return,
            }
        }
    }

    /// Ends the use of the directory: nothing is made in it any more.
    pub fn close(&self) {
        *self.closed.lock() = true;
        let ready = std::mem::take(&mut *self.ready.lock());
        if let Some(tell) = self.removals.get() {
            ready.iter().for_each(|file| tell(Version(file.number)));
        }
        self.spare.lock().clear();
        self.packs.close();
    }

    /// Keeps a file for the next node. Tells of it before, so that whoever takes the file finds it registered.
    pub(super) fn keep_ready(&self, file: LocalFile) {
        if let Some(tell) = self.readied.get() {
            // Programs' reads move no time here, whatever the policy says.
            tell(Version(file.number), None, file.path.as_fd());
        }
        self.ready.lock().push(file);
    }

    fn create(&self) -> io::Result<LocalFile> {
        let number = next_number();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.fd, name_of(number), flags, Mode::RUSR | Mode::WUSR)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let marked = rustix::fs::futimens(&fd, &times_with(UNWRITTEN)).map_err(io::Error::from);
        let path = marked.and_then(|()| reopen_as_path(fd.as_fd()));
        if path.is_err() {
            self.remove(number);
        }
        self.has_new_names.store(true, Ordering::Release);
        Ok(LocalFile { number, path: Arc::new(path?), is_new: true })
    }

    /// Finds a file.
    pub fn find(&self, number: u64) -> io::Result<LocalFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = rustix::fs::openat(&self.fd, name_of(number), flags, Mode::empty())?;
        Ok(LocalFile { number, path: Arc::new(path), is_new: false })
    }

    /// Opens a file for reading and writing.
    pub fn open_file(&self, number: u64) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME;
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

    /// Removes a file that the kernel has no registration of. One that cannot be removed stays until the tree is opened again.
    pub fn remove(&self, number: u64) {
        match rustix::fs::unlinkat(&self.fd, name_of(number), AtFlags::empty()) {
            Ok(()) => _ = self.count.fetch_sub(1, Ordering::Relaxed),
            Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, number, "a local file of a tree could not be removed"),
        }
    }

    /// Makes the names of all files durable that were made before.
    pub fn sync_names(&self) -> io::Result<()> {
        // Another sync may have begun for these names, and not ended.
        let _syncing = self.syncing.lock();
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
    use super::super::limits::READY_MAX;
    use super::*;

    fn open(path: &Path) -> (Arc<LocalDirectory>, Vec<u64>) {
        let (directory, found) = LocalDirectory::open(path).unwrap();
        (Arc::new(directory), found)
    }

    fn files_in(path: &Path) -> usize {
        std::fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn a_number_is_given_once_also_after_a_clock_that_went_back() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, none) = open(dir.path());
        assert!(none.is_empty());
        let mut numbers: Vec<u64> = (0..3).map(|_| directory.take().unwrap().number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        directory.close();
        let future = numbers[2] + (1000 << COUNT_BITS);
        std::fs::write(dir.path().join(name_of(future)), b"").unwrap();
        std::fs::write(dir.path().join("another file"), b"").unwrap();
        let (directory, found) = open(dir.path());
        assert!(numbers.iter().chain([&future]).all(|number| found.contains(number)));
        assert!(directory.take().unwrap().number > future);
        assert!(numbers.iter().all(|number| number & NUMBER_BIT != 0));
        directory.close();
    }

    #[test]
    fn a_dropped_file_is_used_again_under_another_number_unless_somebody_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, _) = open(dir.path());
        let number = directory.create().unwrap().number;
        std::fs::write(dir.path().join(name_of(number)), b"secret").unwrap();
        let inode = directory.stat(number).unwrap().unwrap().st_ino;
        directory.drop_now(number);
        assert_eq!((directory.len(), directory.stat(number).unwrap().is_none()), (0, true));
        let again = directory.take().unwrap();
        let stat = again.stat().unwrap();
        assert_eq!((stat.st_ino, stat.st_size, mtime_of(&stat)), (inode, 0, UNWRITTEN));
        assert!(again.number > number && directory.stat(again.number).unwrap().unwrap().st_ino == inode);
        directory.close();
        let held = directory.open_file(again.number).unwrap();
        directory.drop_now(again.number);
        assert!(directory.stat(again.number).unwrap().is_none() && directory.ready.lock().is_empty());
        drop(held);
    }

    #[test]
    fn files_are_made_ready_up_to_a_bound_until_the_directory_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, _) = open(dir.path());
        directory.fill();
        assert_eq!((directory.len(), files_in(dir.path())), (0, READY_FILLED));
        let number = directory.reserve().unwrap();
        directory.return_reserved(number);
        assert_eq!(directory.reserve(), Some(number));
        assert!(directory.claim(number).is_some_and(|file| file.is_new) && directory.claim(number).is_none());
        let many: Vec<_> = (0..READY_MAX + 3).map(|_| directory.create().unwrap()).collect();
        many.into_iter().for_each(|file| directory.drop_now(file.number));
        let spare = directory.spare.lock().clone();
        assert_eq!(directory.ready.lock().len(), READY_MAX);
        directory.ready.lock().clear();
        directory.fill();
        assert!(directory.ready.lock().iter().all(|file| file.is_new && spare.contains(&file.number)));
        directory.close();
        directory.fill();
        assert!(directory.reserve().is_none());
        std::fs::remove_dir_all(dir.path()).unwrap();
    }

    #[test]
    fn names_that_are_no_numbers_are_not_taken_for_numbers() {
        assert_eq!(number_of(b"00000000000000ff"), Some(255));
        for name in [&b"00000000000000FF"[..], b"ff", b"+000000000000000", b"00000000000000fg", b"."] {
            assert_eq!(number_of(name), None);
        }
    }
}
