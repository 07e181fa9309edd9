//! Values of requests and replies, independent of the kernel's layout (which only `abi` knows).

use std::time::Duration;
use types::HasErrno;

use types::Timestamp;

/// Number of a file towards the kernel. 1 is the root; other numbers are chosen by the file system and end at `forget`.
pub type NodeId = u64;
/// Number of an open file or directory, chosen by the file system. Valid from `open` to `release`.
pub type Handle = u64;

/// Id of a backing file registered with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackingId(pub i32);

/// Bytes of a read. Fewer than asked for mean the end of the file.
pub enum ReadBytes {
    /// Number of bytes, in the buffer that came with the request.
    Copied(usize),
    /// Buffers sent in place, one after the other. At most [`READ_PARTS_MAX`](crate::limits::READ_PARTS_MAX).
    InPlace(Vec<Box<dyn AsRef<[u8]>>>),
}

/// Error number, 1..=4095.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

#[allow(missing_docs, reason = "errno(3) documents them")]
impl Errno {
    pub const EPERM: Errno = Errno(libc::EPERM);
    pub const ENOENT: Errno = Errno(libc::ENOENT);
    pub const EINTR: Errno = Errno(libc::EINTR);
    pub const EIO: Errno = Errno(libc::EIO);
    pub const EBADF: Errno = Errno(libc::EBADF);
    pub const EAGAIN: Errno = Errno(libc::EAGAIN);
    pub const ENOMEM: Errno = Errno(libc::ENOMEM);
    pub const EACCES: Errno = Errno(libc::EACCES);
    pub const EBUSY: Errno = Errno(libc::EBUSY);
    pub const EEXIST: Errno = Errno(libc::EEXIST);
    pub const EXDEV: Errno = Errno(libc::EXDEV);
    pub const ENOTDIR: Errno = Errno(libc::ENOTDIR);
    pub const EISDIR: Errno = Errno(libc::EISDIR);
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    pub const ENOTTY: Errno = Errno(libc::ENOTTY);
    pub const ETXTBSY: Errno = Errno(libc::ETXTBSY);
    pub const EFBIG: Errno = Errno(libc::EFBIG);
    pub const ENOSPC: Errno = Errno(libc::ENOSPC);
    pub const EROFS: Errno = Errno(libc::EROFS);
    pub const ERANGE: Errno = Errno(libc::ERANGE);
    pub const EDEADLK: Errno = Errno(libc::EDEADLK);
    pub const ENOSYS: Errno = Errno(libc::ENOSYS);
    pub const ENODATA: Errno = Errno(libc::ENODATA);
    pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub const ESTALE: Errno = Errno(libc::ESTALE);
    pub const ENXIO: Errno = Errno(libc::ENXIO);
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.errno().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}

/// Attributes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    /// Inode number that programs see.
    pub ino: u64,
    /// Size, bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// Time of last access.
    pub atime: Timestamp,
    /// Time of last change of content.
    pub mtime: Timestamp,
    /// Time of last change of content or attributes.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Preferred I/O size, bytes.
    pub blksize: u32,
}

/// Answer to a lookup: a node, or, with node 0, a name that does not exist for the time of `entry_valid`.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Node id, never reused while the kernel knows it.
    pub node: NodeId,
    /// Attributes of the node.
    pub attr: Attr,
    /// Time for which the name may be cached.
    pub entry_valid: Duration,
    /// Time for which the attributes may be cached.
    pub attr_valid: Duration,
}

/// Answer to getattr and setattr.
#[derive(Debug, Clone, Copy)]
pub struct AttrReply {
    /// Attributes of the node.
    pub attr: Attr,
    /// Time for which the attributes may be cached.
    pub valid: Duration,
}

/// Time to set: a given moment or the current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrNow {
    /// Given moment.
    At(Timestamp),
    /// Current time, by the clock of whoever applies it.
    Now,
}

/// Attributes that setattr changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size, bytes.
    pub size: Option<u64>,
    /// New time of access.
    pub atime: Option<TimeOrNow>,
    /// New time of modification.
    pub mtime: Option<TimeOrNow>,
    /// Open file, for ftruncate and similar calls.
    pub handle: Option<u64>,
    /// Whether to clear set-id bits, as a truncation or chown does.
    pub kill_suidgid: bool,
}

/// File system statistics, as statvfs(3).
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "statvfs(3) documents them")]
pub struct StatFs {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
}

/// Answer to an open.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenReply {
    /// Handle chosen by the file system, returned with every later request.
    pub handle: u64,
    /// `FOPEN_*` bits of [`crate::fopen`] except `PASSTHROUGH`, which `backing` implies.
    pub flags: u32,
    /// The backing file that the kernel reads and writes directly.
    pub backing: Option<BackingId>,
}

/// Lock of getlk and setlk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockArgs {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` means to the end.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// Process id of the holder.
    pub pid: u32,
    /// Number that identifies the holder among the users of the file system.
    pub owner: u64,
    /// Whether this is a whole-file flock and not a POSIX range lock.
    pub flock: bool,
}

/// Conditions of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// Whether set-id bits must be cleared, because the writer may not keep them.
    pub kill_suidgid: bool,
    /// Whether the data is written back from the page cache (a mapping), not by write(2).
    pub cached: bool,
    /// Whether the data must be durable when the write is answered. True for a descriptor opened with `O_DSYNC` or
    /// `O_SYNC`, or if this one write asks for it.
    pub sync: bool,
    /// Whether to write at the end of the file (`O_APPEND`), as the descriptor is set now and not when it was opened.
    pub append: bool,
}

/// Request that has not been answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Number of the request.
    pub unique: u64,
    /// Node of the request.
    pub node: NodeId,
    /// Thread id of the caller. 0 if the kernel asks by itself, or if the caller cannot be seen from here.
    pub pid: u32,
    /// Whether the request asks for attributes, so that [`DelayAction::Attributes`] is a valid answer.
    pub attributes: bool,
    /// Whether the request asks if the file has capabilities, as the kernel does before a write. `ENODATA` means no.
    pub capabilities: bool,
    /// Whether the caller got a signal.
    pub interrupted: bool,
    /// Whether the request waits for a thread, so that no handler has seen it.
    pub queued: bool,
    /// Time since the request arrived, at least.
    pub waited: std::time::Duration,
}

/// Decision about a request that has not been answered for long.
#[derive(Debug, Clone, Copy)]
pub enum DelayAction {
    /// The handler goes on.
    Wait,
    /// The handler goes on but is stuck: another thread may work meanwhile.
    Stuck,
    /// The request is answered with this error. A later answer of the handler reaches nobody, and the handler takes
    /// back what that answer gave.
    GiveUp(Errno),
    /// The request is answered with these attributes.
    Attributes(AttrReply),
}
