//! Reading a directory. The lower directory's offsets are used unchanged, so no state is kept between calls.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use fuse_protocol::{DirSink, Entry, Errno};
use parking_lot::Mutex;
use rustix::fs::{RawDir, SeekFrom};

use crate::limits::LISTING_BYTES;

type Lookup<'a> = &'a dyn Fn(&OsStr) -> Result<Entry, Errno>;

/// An open directory. The lock protects its file position.
pub struct Directory(Mutex<OwnedFd>);

impl Directory {
    pub fn new(fd: OwnedFd) -> Directory {
        Directory(Mutex::new(fd))
    }

    /// Fills `sink` with the entries after `offset`.
    ///
    /// With `lookup`, each entry except `.` and `..` is looked up, which counts as a lookup of the kernel. So `lookup`
    /// is called only for entries that fit. An entry that was removed meanwhile is left out.
    pub fn read(&self, offset: u64, sink: &mut DirSink<'_>, lookup: Option<Lookup<'_>>) -> Result<(), Errno> {
        let fd = self.0.lock();
        rustix::fs::seek(&*fd, SeekFrom::Start(offset))?;
        let mut buffer = Box::new_uninit_slice(LISTING_BYTES);
        let mut entries = RawDir::new(&*fd, &mut buffer as &mut [MaybeUninit<u8>]);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let next = entry.next_entry_cookie();
            if !sink.remaining_for(name) {
                break;
            }
            match lookup.filter(|_| name != "." && name != "..") {
                None => {
                    let kind = entry.file_type().as_raw_mode() >> 12;
                    sink.add(entry.ino(), next, kind, name);
                }
                Some(lookup) => match lookup(name) {
                    Ok(entry) => _ = sink.add_plus(&entry, next, name),
                    Err(Errno::ENOENT) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        // Without the lock, because an fsync may take long and does not use the position.
        let fd = rustix::io::fcntl_dupfd_cloexec(&*self.0.lock(), 0)?;
        if data_only {
            rustix::fs::fdatasync(fd)?
        } else {
            rustix::fs::fsync(fd)?
        }
        Ok(())
    }
}
