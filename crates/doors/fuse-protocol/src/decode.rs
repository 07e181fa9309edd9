//! Decoding of a request's bytes to an [`Operation`]. All lengths are checked; invalid messages are refused, never
//! guessed.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

use types::Timestamp;

use crate::abi::{self, InHeader, Opcode, Plain, fattr, init_flags, take};
use crate::init::Agreed;
use crate::{Errno, Handle, LockArgs, NodeId, SetAttr, TimeOrNow, WriteFlags, limits};

/// Operation with its arguments; the node is in the header.
#[derive(Debug)]
#[allow(missing_docs, reason = "the methods of Filesystem document them")]
pub(crate) enum Operation<'a> {
    Lookup { name: &'a OsStr },
    Forget { count: u64 },
    BatchForget { ones: &'a [u8] },
    Getattr { handle: Option<Handle> },
    Statx { handle: Option<Handle> },
    Setattr { set: SetAttr },
    Readlink,
    Symlink { name: &'a OsStr, target: &'a OsStr },
    Mknod { name: &'a OsStr, mode: u32, umask: u32, rdev: u32 },
    Mkdir { name: &'a OsStr, mode: u32, umask: u32 },
    Unlink { name: &'a OsStr },
    Rmdir { name: &'a OsStr },
    Rename { name: &'a OsStr, to: NodeId, new_name: &'a OsStr, flags: u32 },
    Link { node: NodeId, new_name: &'a OsStr },
    Open { flags: i32, kill_suidgid: bool },
    Create { name: &'a OsStr, mode: u32, umask: u32, flags: i32 },
    Tmpfile { mode: u32, umask: u32, flags: i32 },
    Read { handle: Handle, offset: u64, size: usize },
    Write { handle: Handle, offset: u64, data: &'a [u8], how: WriteFlags },
    Flush { handle: Handle, owner: u64 },
    Release { handle: Handle, flags: i32, flock_owner: Option<u64> },
    Fsync { handle: Handle, data_only: bool },
    Opendir { flags: i32 },
    Readdir { handle: Handle, offset: u64, size: usize, plus: bool },
    Releasedir { handle: Handle },
    Fsyncdir { handle: Handle, data_only: bool },
    Statfs,
    Syncfs,
    Setxattr { name: &'a CStr, value: &'a [u8], flags: i32, kill_sgid: bool },
    Getxattr { name: &'a CStr, size: usize },
    Listxattr { size: usize },
    Removexattr { name: &'a CStr },
    Access { mask: i32 },
    Getlk { handle: Handle, lock: LockArgs },
    Setlk { handle: Handle, lock: LockArgs, wait: bool },
    Fallocate { handle: Handle, offset: u64, len: u64, mode: i32 },
    Lseek { handle: Handle, offset: u64, whence: i32 },
    CopyFileRange { from: (Handle, u64), to: (NodeId, Handle, u64), len: u64, flags: u64, wide: bool },
    Ioctl { handle: Handle, command: u32, input: &'a [u8], out_size: usize },
    Interrupt { unique: u64 },
    Destroy,
}

/// Refusal of a message that is not a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotARequest {
    /// The message is too short to tell which request to answer.
    Headless,
    /// The request must be answered with this error.
    Answer { unique: u64, errno: Errno },
}

/// Splits a message into header and operation. `apart` holds the data of a write whose message ends before it, and is
/// empty otherwise. Errors: [`NotARequest`].
pub(crate) fn decode<'a>(
    message: &'a [u8],
    apart: &'a [u8],
    agreed: &Agreed,
) -> Result<(InHeader, Operation<'a>), NotARequest> {
    let (header, body) = take::<InHeader>(message).ok_or(NotARequest::Headless)?;
    let refuse = |errno| NotARequest::Answer { unique: header.unique, errno };
    let whole = apart.is_empty();
    if header.len as usize != message.len() + apart.len() || !(whole || is_head_of_write(message)) {
        return Err(refuse(Errno::EIO));
    }
    let opcode = Opcode::of(header.opcode).ok_or(refuse(Errno::ENOSYS))?;
    let extensions = usize::from(header.total_extlen) * 8;
    let cut = |bytes: &'a [u8]| bytes.len().checked_sub(extensions).map(|len| &bytes[..len]);
    let body = if whole {
        cut(body).map(|rest| Body { rest, apart })
    } else {
        cut(apart).map(|apart| Body { rest: body, apart })
    };
    let operation = body.and_then(|body| operation(opcode, body, agreed)).ok_or(refuse(Errno::EIO))?;
    Ok((header, operation))
}

/// Returns whether a message is a whole write without its data.
pub(crate) fn is_head_of_write(message: &[u8]) -> bool {
    let header = take::<InHeader>(message).filter(|(_, body)| body.len() == size_of::<abi::WriteIn>());
    header.is_some_and(|(header, _)| Opcode::of(header.opcode) == Some(Opcode::Write))
}

/// Rest of a request's body, which is not decoded yet.
struct Body<'a> {
    rest: &'a [u8],
    apart: &'a [u8],
}

impl<'a> Body<'a> {
    fn fixed<T: Plain>(&mut self) -> Option<T> {
        let (value, rest) = take(self.rest)?;
        self.rest = rest;
        Some(value)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Returns the first `len` bytes of a write's data, from `apart` or from the message itself.
    fn data(&self, len: usize) -> Option<&'a [u8]> {
        if self.apart.is_empty() { self.rest.get(..len) } else { self.apart.get(..len) }
    }

    fn string(&mut self) -> Option<&'a CStr> {
        let string = CStr::from_bytes_until_nul(self.rest).ok()?;
        self.rest = &self.rest[string.count_bytes() + 1..];
        Some(string)
    }

    /// Takes one component of a path.
    fn name(&mut self) -> Option<&'a OsStr> {
        let name = self.string()?.to_bytes();
        (!name.is_empty() && !name.contains(&b'/')).then(|| OsStr::from_bytes(name))
    }
}

fn operation<'a>(opcode: Opcode, mut body: Body<'a>, agreed: &Agreed) -> Option<Operation<'a>> {
    use Operation as O;
    Some(match opcode {
        Opcode::Lookup => O::Lookup { name: body.name()? },
        Opcode::Forget => O::Forget { count: body.fixed::<abi::ForgetIn>()?.nlookup },
        Opcode::BatchForget => {
            let count = body.fixed::<abi::BatchForgetIn>()?.count as usize;
            O::BatchForget { ones: body.bytes(count.checked_mul(size_of::<abi::ForgetOne>())?)? }
        }
        Opcode::Getattr => {
            let fixed = body.fixed::<abi::GetattrIn>()?;
            O::Getattr { handle: (fixed.flags & abi::GETATTR_FH != 0).then_some(fixed.fh) }
        }
        Opcode::Statx => {
            let fixed = body.fixed::<abi::StatxIn>()?;
            O::Statx { handle: (fixed.flags & abi::GETATTR_FH != 0).then_some(fixed.fh) }
        }
        Opcode::Setattr => O::Setattr { set: set_attr(&body.fixed()?)? },
        Opcode::Readlink => O::Readlink,
        Opcode::Statfs => O::Statfs,
        Opcode::Syncfs => O::Syncfs,
        Opcode::Access => O::Access { mask: body.fixed::<abi::AccessIn>()?.mask.cast_signed() },
        Opcode::Interrupt => O::Interrupt { unique: body.fixed::<abi::InterruptIn>()?.unique },
        Opcode::Destroy => O::Destroy,
        // Sent only at the start: the session answers it before there is an agreement.
        Opcode::Init => return None,
        Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr | Opcode::Removexattr => xattr(opcode, body, agreed)?,
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => lock(opcode, &body.fixed()?),
        Opcode::Symlink
        | Opcode::Mknod
        | Opcode::Mkdir
        | Opcode::Unlink
        | Opcode::Rmdir
        | Opcode::Rename
        | Opcode::Rename2
        | Opcode::Link
        | Opcode::Create
        | Opcode::Tmpfile => naming(opcode, body)?,
        _ => open_file(opcode, body)?,
    })
}

/// Decodes requests that make, move or remove names.
fn naming<'a>(opcode: Opcode, mut body: Body<'a>) -> Option<Operation<'a>> {
    use Operation as O;
    Some(match opcode {
        Opcode::Symlink => {
            let name = body.name()?;
            O::Symlink { name, target: OsStr::from_bytes(body.string()?.to_bytes()) }
        }
        Opcode::Mknod => {
            let fixed = body.fixed::<abi::MknodIn>()?;
            O::Mknod { name: body.name()?, mode: fixed.mode, umask: fixed.umask, rdev: fixed.rdev }
        }
        Opcode::Mkdir => {
            let fixed = body.fixed::<abi::MkdirIn>()?;
            O::Mkdir { name: body.name()?, mode: fixed.mode, umask: fixed.umask }
        }
        Opcode::Unlink => O::Unlink { name: body.name()? },
        Opcode::Rmdir => O::Rmdir { name: body.name()? },
        Opcode::Rename => {
            let to = body.fixed::<abi::RenameIn>()?.newdir;
            O::Rename { name: body.name()?, to, new_name: body.name()?, flags: 0 }
        }
        Opcode::Rename2 => {
            let fixed = body.fixed::<abi::Rename2In>()?;
            O::Rename { name: body.name()?, to: fixed.newdir, new_name: body.name()?, flags: fixed.flags }
        }
        Opcode::Link => O::Link { node: body.fixed::<abi::LinkIn>()?.oldnodeid, new_name: body.name()? },
        Opcode::Create => {
            let fixed = body.fixed::<abi::CreateIn>()?;
            let flags = fixed.flags.cast_signed();
            O::Create { name: body.name()?, mode: fixed.mode, umask: fixed.umask, flags }
        }
        Opcode::Tmpfile => {
            // The kernel sends a name ("/") as for CREATE, without a meaning.
            let fixed = body.fixed::<abi::CreateIn>()?;
            O::Tmpfile { mode: fixed.mode, umask: fixed.umask, flags: fixed.flags.cast_signed() }
        }
        _ => return None,
    })
}

/// Converts the flags of a write.
pub(crate) fn write_how(fixed: &abi::WriteIn) -> WriteFlags {
    WriteFlags {
        kill_suidgid: fixed.write_flags & abi::WRITE_KILL_SUIDGID != 0,
        cached: fixed.write_flags & abi::WRITE_CACHE != 0,
        // Also set for a single write: pwritev2(2) with RWF_DSYNC or RWF_SYNC.
        sync: fixed.flags & libc::O_DSYNC.cast_unsigned() != 0,
        append: fixed.flags & libc::O_APPEND.cast_unsigned() != 0,
    }
}

/// Decodes requests about open files and directories.
fn open_file<'a>(opcode: Opcode, mut body: Body<'a>) -> Option<Operation<'a>> {
    use Operation as O;
    Some(match opcode {
        Opcode::Open => {
            let fixed = body.fixed::<abi::OpenIn>()?;
            let kill_suidgid = fixed.open_flags & abi::OPEN_KILL_SUIDGID != 0;
            O::Open { flags: fixed.flags.cast_signed(), kill_suidgid }
        }
        Opcode::Opendir => O::Opendir { flags: body.fixed::<abi::OpenIn>()?.flags.cast_signed() },
        Opcode::Read => {
            let fixed = body.fixed::<abi::ReadIn>()?;
            O::Read { handle: fixed.fh, offset: fixed.offset, size: (fixed.size as usize).min(limits::READ_MAX) }
        }
        Opcode::Readdir | Opcode::Readdirplus => {
            let fixed = body.fixed::<abi::ReadIn>()?;
            let size = (fixed.size as usize).min(limits::READ_MAX);
            O::Readdir { handle: fixed.fh, offset: fixed.offset, size, plus: opcode == Opcode::Readdirplus }
        }
        Opcode::Write => {
            let fixed = body.fixed::<abi::WriteIn>()?;
            let data = body.data(fixed.size as usize)?;
            O::Write { handle: fixed.fh, offset: fixed.offset, data, how: write_how(&fixed) }
        }
        Opcode::Flush => {
            let fixed = body.fixed::<abi::FlushIn>()?;
            O::Flush { handle: fixed.fh, owner: fixed.lock_owner }
        }
        Opcode::Release => {
            let fixed = body.fixed::<abi::ReleaseIn>()?;
            let unlock = fixed.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0;
            let flock_owner = unlock.then_some(fixed.lock_owner);
            O::Release { handle: fixed.fh, flags: fixed.flags.cast_signed(), flock_owner }
        }
        Opcode::Releasedir => O::Releasedir { handle: body.fixed::<abi::ReleaseIn>()?.fh },
        Opcode::Fsync | Opcode::Fsyncdir => {
            let fixed = body.fixed::<abi::FsyncIn>()?;
            let (handle, data_only) = (fixed.fh, fixed.fsync_flags & abi::FSYNC_FDATASYNC != 0);
            if opcode == Opcode::Fsync { O::Fsync { handle, data_only } } else { O::Fsyncdir { handle, data_only } }
        }
        Opcode::Fallocate => {
            let fixed = body.fixed::<abi::FallocateIn>()?;
            O::Fallocate { handle: fixed.fh, offset: fixed.offset, len: fixed.length, mode: fixed.mode.cast_signed() }
        }
        Opcode::Lseek => {
            let fixed = body.fixed::<abi::LseekIn>()?;
            O::Lseek { handle: fixed.fh, offset: fixed.offset, whence: fixed.whence.cast_signed() }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let fixed = body.fixed::<abi::CopyFileRangeIn>()?;
            O::CopyFileRange {
                from: (fixed.fh_in, fixed.off_in),
                to: (fixed.nodeid_out, fixed.fh_out, fixed.off_out),
                len: fixed.len,
                flags: fixed.flags,
                wide: opcode == Opcode::CopyFileRange64,
            }
        }
        Opcode::Ioctl => {
            let fixed = body.fixed::<abi::IoctlIn>()?;
            let input = body.bytes(fixed.in_size as usize)?;
            let out_size = (fixed.out_size as usize).min(limits::READ_MAX);
            O::Ioctl { handle: fixed.fh, command: fixed.cmd, input, out_size }
        }
        _ => return None,
    })
}

fn xattr<'a>(opcode: Opcode, mut body: Body<'a>, agreed: &Agreed) -> Option<Operation<'a>> {
    use Operation as O;
    Some(match opcode {
        Opcode::Setxattr => {
            let fixed = if agreed.has(init_flags::SETXATTR_EXT) {
                body.fixed::<abi::SetxattrIn>()?
            } else {
                let short = body.fixed::<abi::SetxattrCompatIn>()?;
                abi::SetxattrIn { size: short.size, flags: short.flags, ..Default::default() }
            };
            let name = body.string()?;
            let value = body.bytes(fixed.size as usize)?;
            let kill_sgid = fixed.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
            O::Setxattr { name, value, flags: fixed.flags.cast_signed(), kill_sgid }
        }
        Opcode::Getxattr => {
            let size = body.fixed::<abi::GetxattrIn>()?.size as usize;
            O::Getxattr { name: body.string()?, size }
        }
        Opcode::Listxattr => O::Listxattr { size: body.fixed::<abi::GetxattrIn>()?.size as usize },
        Opcode::Removexattr => O::Removexattr { name: body.string()? },
        _ => return None,
    })
}

/// Converts the lock of a request.
pub(crate) fn lock_args(fixed: &abi::LkIn) -> LockArgs {
    LockArgs {
        start: fixed.lk.start,
        end: fixed.lk.end,
        kind: fixed.lk.kind.cast_signed(),
        pid: fixed.lk.pid,
        owner: fixed.owner,
        flock: fixed.lk_flags & abi::LK_FLOCK != 0,
    }
}

fn lock<'a>(opcode: Opcode, fixed: &abi::LkIn) -> Operation<'a> {
    let lock = lock_args(fixed);
    match opcode {
        Opcode::Getlk => Operation::Getlk { handle: fixed.fh, lock },
        _ => Operation::Setlk { handle: fixed.fh, lock, wait: opcode == Opcode::Setlkw },
    }
}

fn set_attr(fixed: &abi::SetattrIn) -> Option<SetAttr> {
    let has = |flag| fixed.valid & flag != 0;
    let time = |set: u32, now: u32, seconds: u64, nanos: u32| -> Option<Option<TimeOrNow>> {
        match (has(set), has(now)) {
            (false, _) => Some(None),
            (true, true) => Some(Some(TimeOrNow::Now)),
            (true, false) if nanos < 1_000_000_000 => {
                Some(Some(TimeOrNow::At(Timestamp { seconds: seconds.cast_signed(), nanos })))
            }
            (true, false) => None,
        }
    };
    Some(SetAttr {
        mode: has(fattr::MODE).then_some(fixed.mode),
        uid: has(fattr::UID).then_some(fixed.uid),
        gid: has(fattr::GID).then_some(fixed.gid),
        size: has(fattr::SIZE).then_some(fixed.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, fixed.atime, fixed.atimensec)?,
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, fixed.mtime, fixed.mtimensec)?,
        handle: has(fattr::FH).then_some(fixed.fh),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
