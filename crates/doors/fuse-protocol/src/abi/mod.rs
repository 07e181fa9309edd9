//! Numbers and layouts of the kernel (`linux/fuse.h`, protocol 7.45). Byte offsets are known only in this module.

mod layout;
mod opcode;
mod plain;

pub(crate) use layout::*;
pub use opcode::Opcode;
pub(crate) use plain::{Plain, bytes_of, take};

/// Features agreed at INIT. The upper half is sent in `flags2`.
#[allow(missing_docs, reason = "the kernel's own names")]
pub mod init_flags {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const FILE_OPS: u64 = 1 << 2;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const SPLICE_WRITE: u64 = 1 << 7;
    pub const SPLICE_MOVE: u64 = 1 << 8;
    pub const SPLICE_READ: u64 = 1 << 9;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const MAP_ALIGNMENT: u64 = 1 << 26;
    pub const SUBMOUNTS: u64 = 1 << 27;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const SECURITY_CTX: u64 = 1 << 32;
    pub const HAS_INODE_DAX: u64 = 1 << 33;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    pub const OVER_IO_URING: u64 = 1 << 41;
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// Flags of an open file for the kernel, in [`crate::OpenReply::flags`].
pub mod fopen {
    /// Every read and write is a request; the page cache is bypassed.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages cached by earlier opens stay valid.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// lseek(2) fails with `ESPIPE`.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The entries of this directory may be cached.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// The file has no position.
    pub const STREAM: u32 = 1 << 4;
    /// close(2) sends no FLUSH.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes within the file's size may run at the same time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// Reads, writes and mappings go to the backing file; set by [`crate::OpenReply::backing`].
    pub const PASSTHROUGH: u32 = 1 << 7;
}

pub(crate) const KERNEL_MAJOR: u32 = 7;

/// Numbers of the messages that are also made here.
pub(crate) const RELEASE: u32 = 18;
pub(crate) const SETLK: u32 = 32;
pub(crate) const INTERRUPT: u32 = 36;
pub(crate) const BATCH_FORGET: u32 = 42;

pub(crate) mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

pub(crate) const GETATTR_FH: u32 = 1 << 0;
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub(crate) const LK_FLOCK: u32 = 1 << 0;
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
pub(crate) const INVAL_ENTRY_EXPIRE_ONLY: u32 = 1 << 0;

/// Codes of notifications, in the `error` field of a message with number 0.
pub(crate) mod notify_code {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const DELETE: i32 = 6;
}

/// Returns `_IOW(229, number, size)`.
const fn device_write_ioctl(number: u64, size: usize) -> u64 {
    (1 << 30) | ((size as u64) << 16) | (229 << 8) | number
}

pub(crate) const IOC_BACKING_OPEN: u64 = device_write_ioctl(1, size_of::<BackingMap>());
pub(crate) const IOC_BACKING_CLOSE: u64 = device_write_ioctl(2, size_of::<u32>());
