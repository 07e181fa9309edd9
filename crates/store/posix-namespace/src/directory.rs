//! Reading directories by the global store's own offsets.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use concurrency::Mutex;
use global_store::calls::{Store, StoreCall};
use global_store::hidden::is_hidden;
use namespace::{DirectoryEntry, OpenDirectory};
use rustix::fs::{self, RawDir, SeekFrom};

use crate::limits;

/// An open directory of the global store.
pub(crate) struct StoreDirectory {
    calls: Store,
    fd: OwnedFd,
    read: Mutex<ReadAhead>,
}

/// Entries that were read but not yet returned. Invariant: the first of `entries` is the one that follows `at`.
#[derive(Default)]
struct ReadAhead {
    at: u64,
    entries: VecDeque<DirectoryEntry>,
    /// Whether the store has reported the end of the directory.
    ended: bool,
}

impl StoreDirectory {
    pub(crate) fn new(calls: Store, fd: OwnedFd) -> StoreDirectory {
        StoreDirectory { calls, fd, read: Mutex::default() }
    }

    /// Reads a buffer of entries. False at the end of the directory.
    fn fill(&self, entries: &mut VecDeque<DirectoryEntry>) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); limits::DIRECTORY_BUFFER_BYTES];
        let mut raw = RawDir::new(&self.fd, &mut buffer);
        let mut any = false;
        while let Some(entry) = raw.next() {
            any = true;
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !is_hidden(name) {
                entries.push_back(DirectoryEntry {
                    ino: entry.ino(),
                    next: entry.next_entry_cookie(),
                    kind: entry.file_type(),
                    name: name.to_os_string(),
                });
            }
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(any)
    }
}

impl OpenDirectory for StoreDirectory {
    fn read(&self, offset: u64, take: &mut dyn FnMut(&DirectoryEntry) -> bool) -> io::Result<()> {
        let mut read = self.read.lock();
        if offset == 0 || offset != read.at {
            fs::seek(&self.fd, SeekFrom::Start(offset))?;
            *read = ReadAhead { at: offset, ..ReadAhead::default() };
        }
        loop {
            while let Some(entry) = read.entries.front() {
                if !take(entry) {
                    return Ok(());
                }
                let next = entry.next;
                read.at = next;
                read.entries.pop_front();
            }
            // The kernel reads once more after the last entry. Entries created meanwhile need not be seen.
            if read.ended {
                return Ok(());
            }
            read.ended = !self.calls.call(StoreCall::List, || self.fill(&mut read.entries))?;
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.calls.call(StoreCall::Sync, || fs::fsync(&self.fd))?)
    }
}
