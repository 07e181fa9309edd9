//! Where log files lie: a directory of the burst buffer, or what a test puts in its place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use types::Step;

/// A directory of log files, each with a number.
pub trait LogDirectory: Send + Sync {
    /// Returns the numbers of all log files, in any order.
    fn list(&self) -> io::Result<Vec<u32>>;

    /// Creates a file of zeros, with room for `bytes` where the file system can promise room. Errors: `ENOSPC` if there is none;
    /// `EEXIST`. After an error there is no file.
    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn LogFile>>;

    /// Returns the content of a file.
    fn read(&self, number: u32) -> io::Result<Vec<u8>>;

    /// Cuts a file to so many bytes, durably.
    fn cut(&self, number: u32, bytes: u64) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, number: u32) -> io::Result<()>;

    /// Keeps a copy of a damaged file under a name that is no log file's.
    fn keep_damaged(&self, number: u32) -> io::Result<()>;

    /// Makes the files' names durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open log file.
pub trait LogFile: Send + Sync {
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of a mounted file system. It must hold the files of one log alone, and be opened once at a time.
pub struct MountedLogDirectory(PathBuf);

const SUFFIX: &str = ".names";

impl MountedLogDirectory {
    /// Opens a directory, which is created if it does not exist.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<MountedLogDirectory> {
        let path = path.into();
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).step("create the name log's directory")
            }
            _ => Ok(MountedLogDirectory(path)),
        }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.0.join(format!("{number:010}{SUFFIX}"))
    }
}

fn number_of(name: &Path) -> Option<u32> {
    let digits = name.to_str()?.strip_suffix(SUFFIX)?;
    (digits.len() == 10 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

impl LogDirectory for MountedLogDirectory {
    fn list(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.0).step("list the name log")? {
            numbers.extend(number_of(Path::new(&entry?.file_name())));
        }
        Ok(numbers)
    }

    fn create(&self, number: u32, bytes: u64) -> io::Result<Arc<dyn LogFile>> {
        let path = self.path(number);
        let mut options = OpenOptions::new();
        let file =
            options.write(true).create_new(true).mode(0o600).open(&path).step("create a file of the name log")?;
        match rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(Arc::new(MountedLogFile(file))),
            Err(error) => {
                // The error of the allocation is the one to tell.
                let _ = fs::remove_file(&path);
                Err(error.into()).step("make room for the name log")
            }
        }
    }

    fn read(&self, number: u32) -> io::Result<Vec<u8>> {
        fs::read(self.path(number)).step("read the name log")
    }

    fn cut(&self, number: u32, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(number)).step("open the name log")?;
        file.set_len(bytes).and_then(|()| file.sync_all()).step("cut the name log")
    }

    fn remove(&self, number: u32) -> io::Result<()> {
        fs::remove_file(self.path(number)).step("remove a file of the name log")
    }

    fn keep_damaged(&self, number: u32) -> io::Result<()> {
        let path = self.path(number);
        fs::copy(&path, path.with_extension("damaged")).map(drop).step("copy a damaged file of the name log")
    }

    fn sync(&self) -> io::Result<()> {
        durable::sync_directory(&self.0).step("sync the name log's directory")
    }
}

/// A file of a mounted file system.
struct MountedLogFile(File);

impl LogFile for MountedLogFile {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset).step("write the name log")
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data().step("sync the name log")
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempTree;

    use super::*;

    #[test]
    fn log_files_are_found_by_their_numbers_and_others_are_left_alone() {
        let tree = TempTree::new();
        let directory = MountedLogDirectory::new(tree.path("log")).unwrap();
        tree.file("log/other", b"");
        tree.file("log/+000000001.names", b"");
        directory.create(7, 4096).unwrap().write_at(b"abc", 5).unwrap();
        assert_eq!(directory.create(7, 4096).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        directory.keep_damaged(7).unwrap();
        assert_eq!(directory.list().unwrap(), [7]);
        assert_eq!(&directory.read(7).unwrap()[..9], b"\0\0\0\0\0abc\0");
        directory.cut(7, 6).unwrap();
        assert_eq!(directory.read(7).unwrap(), b"\0\0\0\0\0a");
        directory.remove(7).unwrap();
        directory.sync().unwrap();
        assert!(directory.list().unwrap().is_empty());
    }
}
