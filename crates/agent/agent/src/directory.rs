//! Reading directories by the global store's own offsets. How well these survive changes depends on that store.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use concurrency::Mutex;
use global_store::calls::{Store, StoreCall};
use global_store::hidden::is_hidden;
use rustix::fs::{self, FileType, Mode, OFlags, RawDir, SeekFrom};

use crate::agent::Agent;
use crate::caller::{Caller, Judge};
use crate::limits;
use crate::node::Node;

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Inode number.
    pub ino: u64,
    /// Offset at which reading continues after this entry.
    pub next: u64,
    /// File type.
    pub kind: FileType,
    /// File name; `.` and `..` are among the entries.
    pub name: OsString,
}

/// An open directory.
pub struct OpenDirectory {
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

impl Agent {
    /// Opens a directory for reading, as the caller.
    pub fn open_directory(&self, caller: &Caller, node: &Node) -> io::Result<OpenDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Not opened as `.` in it, which would need search permission: read permission must suffice.
        let name = self.descriptor_name(node);
        let fd = self.impersonator.act(caller, Judge::Node(node, 4), || {
            Ok(self.below(StoreCall::List, || fs::openat(&self.descriptors, &name, flags, Mode::empty()))?)
        })?;
        Ok(OpenDirectory { calls: self.store_calls(), fd, read: Mutex::default() })
    }
}

impl OpenDirectory {
    /// Passes the entries that follow `offset` (0: a fresh start) to `take`, until it refuses one or all were passed.
    pub fn read(&self, offset: u64, mut take: impl FnMut(&DirectoryEntry) -> bool) -> io::Result<()> {
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

    /// Makes the directory's names durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(self.calls.call(StoreCall::Sync, || fs::fsync(&self.fd))?)
    }
}
