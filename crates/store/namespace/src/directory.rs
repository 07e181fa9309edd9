//! Reading of directories.

use std::ffi::OsString;
use std::io;

use rustix::fs::FileType;

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

/// An open directory. How well its offsets survive changes depends on who keeps the names.
pub trait OpenDirectory: Send + Sync {
    /// Passes the entries that follow `offset` (0: a fresh start) to `take`, until it refuses one or all were passed.
    fn read(&self, offset: u64, take: &mut dyn FnMut(&DirectoryEntry) -> bool) -> io::Result<()>;

    /// Makes the directory's names durable.
    fn sync(&self) -> io::Result<()>;
}
