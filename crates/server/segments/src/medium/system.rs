//! The system's files, below one directory that no other store uses.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::{Errno, pwritev};

use super::{SegmentDirectory, SegmentFile};

/// A directory of the system. Holds a lock on it, so that no second store uses it.
pub(crate) struct SystemDirectory {
    path: PathBuf,
    directory: File,
}

impl SystemDirectory {
    /// Opens the directory, or makes it for its owner alone. Errors: `EWOULDBLOCK` if another store has it open.
    pub(crate) fn open(path: &Path) -> io::Result<SystemDirectory> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let directory = File::open(path)?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(SystemDirectory { path: path.to_owned(), directory })
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        options
    }
}

impl SegmentDirectory for SystemDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
        names.collect()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(Self::options().create_new(true).open(self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(Self::options().open(self.path.join(name))?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

impl SegmentFile for File {
    fn read_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while !buffer.is_empty() {
            match FileExt::read_at(self, buffer, offset) {
                Ok(0) => break,
                Ok(count) => {
                    (read, offset) = (read + count, offset + count as u64);
                    buffer = &mut buffer[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, head: &[u8], body: &[u8], offset: u64) -> io::Result<()> {
        let all = head.len() + body.len();
        let mut written = 0;
        while written < all {
            let (head, body) = (&head[written.min(head.len())..], &body[written.saturating_sub(head.len())..]);
            match pwritev(self, &[IoSlice::new(head), IoSlice::new(body)], offset + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        match fallocate(self, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
