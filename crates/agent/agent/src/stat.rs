//! Attributes of files and of the file system, as programs see them.

use std::io;
use std::os::fd::BorrowedFd;

use data_store::Overlay;
use rustix::fs::{self, FileType, Stat};
use types::{Fingerprint, Timestamp};

use crate::limits;

/// Attributes of a node as programs see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "stat(3type) documents them")]
pub struct Attributes {
    pub ino: u64,
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Preferred I/O size, bytes.
    pub blksize: u32,
}

/// File system statistics of the global store, in blocks of `frsize` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "statvfs(3) documents them")]
pub struct FileSystemSpace {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u64,
    pub namelen: u64,
    pub frsize: u64,
}

pub(crate) fn of_stat(stat: &Stat) -> Attributes {
    let time = |seconds, nanos| Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
    Attributes {
        ino: stat.st_ino,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        mode: stat.st_mode,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: (rustix::fs::minor(stat.st_rdev) & 0xff)
            | (rustix::fs::major(stat.st_rdev) << 8)
            | ((rustix::fs::minor(stat.st_rdev) & !0xff) << 12),
        blksize: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => limits::PREFERRED_IO_BYTES,
            // Readers of directories use this size for their buffer.
            _ => u32::try_from(stat.st_blksize).unwrap_or(4096),
        },
    }
}

impl Attributes {
    /// Replaces the values for which the file cache has newer ones.
    pub(crate) fn lay_over(&mut self, overlay: &Overlay) {
        if overlay.ahead {
            (self.size, self.blocks, self.mtime) = (overlay.size, overlay.blocks, overlay.mtime);
        }
        self.ctime = match overlay.below {
            Some(below) if below == self.ctime => overlay.ctime,
            Some(_) if overlay.ahead => self.ctime.max(overlay.ctime),
            Some(_) => self.ctime,
            None => overlay.ctime,
        };
    }

    /// Fingerprint of the content that these attributes belong to.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let attributes = Fingerprint::attributes_of(self.mode, self.uid, self.gid, self.nlink.into());
        Fingerprint { size: self.size, mtime: self.mtime, ctime: self.ctime, attributes }
    }

    /// Reads the attributes of an open file.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Attributes> {
        Ok(of_stat(&fs::fstat(file)?))
    }
}
