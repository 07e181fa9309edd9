//! Numbers and layouts of the kernel (`linux/fuse.h`, protocol 7.45). Byte offsets are known only in this module.

mod layout;
mod opcode;
mod plain;

pub(crate) use layout::*;
pub use opcode::Opcode;
pub(crate) use plain::{Plain, bytes_of, take};

/// Defines modules of flags by the numbers of their bits.
macro_rules! bits {
    ($(#[$about:meta])* $visible:vis mod $module:ident: $type:ty { $($name:ident = $bit:literal),* $(,)? }) => {
        $(#[$about])*
        #[allow(missing_docs, reason = "the kernel's own names")]
        $visible mod $module {
            $(pub const $name: $type = 1 << $bit;)*
        }
    };
}

bits! {
    /// Features agreed at INIT. The upper half is sent in `flags2`.
    pub mod init_flags: u64 {
        ASYNC_READ = 0, POSIX_LOCKS = 1, FILE_OPS = 2, ATOMIC_O_TRUNC = 3, EXPORT_SUPPORT = 4, BIG_WRITES = 5,
        DONT_MASK = 6, SPLICE_WRITE = 7, SPLICE_MOVE = 8, SPLICE_READ = 9, FLOCK_LOCKS = 10, HAS_IOCTL_DIR = 11,
        AUTO_INVAL_DATA = 12, DO_READDIRPLUS = 13, READDIRPLUS_AUTO = 14, ASYNC_DIO = 15, WRITEBACK_CACHE = 16,
        NO_OPEN_SUPPORT = 17, PARALLEL_DIROPS = 18, HANDLE_KILLPRIV = 19, POSIX_ACL = 20, ABORT_ERROR = 21,
        MAX_PAGES = 22, CACHE_SYMLINKS = 23, NO_OPENDIR_SUPPORT = 24, EXPLICIT_INVAL_DATA = 25, MAP_ALIGNMENT = 26,
        SUBMOUNTS = 27, HANDLE_KILLPRIV_V2 = 28, SETXATTR_EXT = 29, INIT_EXT = 30, SECURITY_CTX = 32,
        HAS_INODE_DAX = 33, CREATE_SUPP_GROUP = 34, HAS_EXPIRE_ONLY = 35, DIRECT_IO_ALLOW_MMAP = 36, PASSTHROUGH = 37,
        NO_EXPORT_SUPPORT = 38, HAS_RESEND = 39, ALLOW_IDMAP = 40, OVER_IO_URING = 41, REQUEST_TIMEOUT = 42,
    }
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

bits! {
    /// Attributes that a SETATTR changes.
    pub(crate) mod fattr: u32 {
        MODE = 0, UID = 1, GID = 2, SIZE = 3, ATIME = 4, MTIME = 5, FH = 6, ATIME_NOW = 7, MTIME_NOW = 8,
        KILL_SUIDGID = 11,
    }
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
