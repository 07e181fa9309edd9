//! The questions about attributes.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, FileType, Stat};
use types::{Fingerprint, NewTime, Timestamp};

use crate::caller::Caller;
use crate::inode::Inode;
use crate::limits;
use crate::mode::Mode;

/// Attributes of a file as programs see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "stat(3type) documents them")]
pub struct FileAttributes {
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

/// File system statistics, in blocks of `frsize` bytes.
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

/// Attributes of the files of a [`Names`](crate::Names). All methods may be called from any thread.
///
/// Calls with a caller do what that user may do, and fail with `EACCES` or `EPERM` otherwise. Size, and the times that
/// follow from writes, are those of the global copy; a data store may have newer ones.
pub trait Attributes: Send + Sync {
    /// Returns the attributes of a file, also after its last name was removed.
    fn attributes(&self, inode: &Inode) -> io::Result<FileAttributes>;

    /// Changes user and group; `None` leaves one unchanged. Set-id bits are cleared as chown(2) clears them.
    fn set_owner(&self, caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()>;

    /// Sets the permission bits, `0o7777` at most. Set-group-id is cleared for a caller outside the file's group.
    fn set_mode(&self, caller: &Caller, inode: &Inode, mode: u32) -> io::Result<()>;

    /// Sets the times of last access and last modification; `None` leaves one unchanged.
    fn set_times(&self, caller: &Caller, inode: &Inode, times: [Option<NewTime>; 2]) -> io::Result<()>;

    /// Checks that the caller may open a file in this mode now. For a mode that writes, all that would refuse a later
    /// write must refuse here. The file is not truncated.
    fn check_open(&self, caller: &Caller, inode: &Inode, mode: Mode) -> io::Result<()>;

    /// Returns the value of an extended attribute. `ENODATA` if there is none.
    fn xattr(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>>;

    /// Returns the names of all extended attributes, each ended by a NUL byte.
    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>>;

    /// Sets an extended attribute; `flags` are those of setxattr(2).
    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()>;

    /// Removes an extended attribute. `ENODATA` if there is none.
    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()>;

    /// Runs an ioctl of flags (`chattr`, project quotas). `argument` is read or written, as the command demands.
    /// `ENOTTY` if the command is not known.
    fn flags(&self, caller: &Caller, inode: &Inode, command: u32, argument: &mut [u8]) -> io::Result<()>;

    /// Whether POSIX ACLs are supported.
    fn keeps_acls(&self) -> bool;

    /// Returns how much space there is.
    fn space(&self) -> io::Result<FileSystemSpace>;
}

impl FileAttributes {
    /// Returns the attributes that a stat(2) has found.
    pub fn of_stat(stat: &Stat) -> FileAttributes {
        let time = |seconds, nanos| Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
        FileAttributes {
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
            rdev: (fs::minor(stat.st_rdev) & 0xff)
                | (fs::major(stat.st_rdev) << 8)
                | ((fs::minor(stat.st_rdev) & !0xff) << 12),
            blksize: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => limits::PREFERRED_IO_BYTES,
                // Readers of directories use this size for their buffer.
                _ => u32::try_from(stat.st_blksize).unwrap_or(4096),
            },
        }
    }

    /// Reads the attributes of an open file.
    pub fn of(file: impl AsFd) -> io::Result<FileAttributes> {
        Ok(FileAttributes::of_stat(&fs::fstat(file)?))
    }

    /// Fingerprint of the content that these attributes belong to.
    pub fn fingerprint(&self) -> Fingerprint {
        let attributes = Fingerprint::attributes_of(self.mode, self.uid, self.gid, self.nlink.into());
        Fingerprint { size: self.size, mtime: self.mtime, ctime: self.ctime, attributes }
    }
}
