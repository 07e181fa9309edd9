//! The values that requests and replies carry, free of the kernel's layout (which is in `abi.rs` alone).

use std::time::Duration;

use types::Timestamp;

use crate::NodeId;

/// The bytes of a read; fewer than asked mean the end of the file.
pub enum ReadBytes {
    /// So many, in the buffer that came with the request.
    Copied(usize),
    /// These, one after the other, where they lie; at most [`READ_PARTS_MAX`](crate::limits::READ_PARTS_MAX).
    InPlace(Vec<Box<dyn AsRef<[u8]>>>),
}

/// An errno, 1..=4095.
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
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
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
    /// Inode number, as programs see it.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Preferred I/O size, bytes.
    pub blksize: u32,
}

/// The answer to a lookup: a node, or - with node 0 - a name that is known not to exist for `entry_valid`.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The node; never reused while the kernel knows it.
    pub node: NodeId,
    /// Its attributes.
    pub attr: Attr,
    /// How long the name may be trusted.
    pub entry_valid: Duration,
    /// How long the attributes may be trusted.
    pub attr_valid: Duration,
}

/// The answer to getattr and setattr.
#[derive(Debug, Clone, Copy)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long they may be trusted.
    pub valid: Duration,
}

/// A time to set: a moment, or the moment of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrNow {
    /// This moment.
    At(Timestamp),
    /// Now, by the clock of whoever applies it.
    Now,
}

/// What setattr changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<TimeOrNow>,
    /// Modification time.
    pub mtime: Option<TimeOrNow>,
    /// The open file, for ftruncate and the like.
    pub handle: Option<u64>,
    /// Clear set-id bits as a truncation or chown does.
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

/// How an open is answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenReply {
    /// Ours, given back with every later request.
    pub handle: u64,
    /// `FOPEN_*` bits of [`crate::fopen`] except `PASSTHROUGH`, which `backing` implies.
    pub flags: u32,
    /// The backing file that the kernel reads and writes directly.
    pub backing: Option<crate::BackingId>,
}

/// A lock of getlk and setlk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockArgs {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` means to the end.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// Who holds it, as a process id.
    pub pid: u32,
    /// Identifies the holder among the users of the file system.
    pub owner: u64,
    /// A whole-file flock instead of a POSIX range lock.
    pub flock: bool,
}

/// How the bytes of a write come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// By somebody who may not keep set-id bits: they go.
    pub kill_suidgid: bool,
    /// Written back from the page cache (a mapping), not by write(2).
    pub cached: bool,
    /// They must be durable when it is answered: a descriptor opened `O_DSYNC` or `O_SYNC`, or this one write asks.
    pub sync: bool,
    /// To the end of the file: `O_APPEND`, as the descriptor has it now and not when it was opened.
    pub append: bool,
}

/// A request that is not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// Its number.
    pub unique: u64,
    /// What it is about.
    pub node: NodeId,
    /// The thread that asks; 0 if the kernel asks by itself, or it cannot be seen from here.
    pub pid: u32,
    /// It asks for attributes, and [`DelayAction::Attributes`] is an answer.
    pub attributes: bool,
    /// It asks whether the file has capabilities, as the kernel does before a write: `ENODATA` says no.
    pub capabilities: bool,
    /// The caller got a signal.
    pub interrupted: bool,
    /// It waits for a thread: no handler has seen it.
    pub queued: bool,
    /// For how long it is here, at least.
    pub waited: std::time::Duration,
}

/// What becomes of a request that is not answered for long.
#[derive(Debug, Clone, Copy)]
pub enum DelayAction {
    /// Its handler goes on.
    Wait,
    /// The same, and it is stuck: another thread may work meanwhile.
    Stuck,
    /// It is answered with this error. What its handler answers later nobody gets, and it takes back what that gave.
    GiveUp(Errno),
    /// It is answered with these attributes.
    Attributes(AttrReply),
}
