//! Conversions between the agent's types and the protocol's.

use agent::locks::client_of;
use agent::{Caller, FileAttributes, NewAttributes, WriteHow};
use data_store::NewTime;
use fuse_protocol::{Attr, LockArgs, Request, SetAttr, TimeOrNow};
use types::{LockKind, RangeLock};

pub fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid, gid: req.gid, pid: req.pid }
}

pub fn attr(of: &FileAttributes) -> Attr {
    Attr {
        ino: of.ino,
        size: of.size,
        blocks: of.blocks,
        atime: of.atime,
        mtime: of.mtime,
        ctime: of.ctime,
        mode: of.mode,
        nlink: of.nlink,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev,
        blksize: of.blksize,
    }
}

pub fn new_attributes(set: &SetAttr) -> NewAttributes {
    let time = |time: TimeOrNow| match time {
        TimeOrNow::At(at) => NewTime::At(at),
        TimeOrNow::Now => NewTime::Now,
    };
    NewAttributes {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        clear_set_id: set.kill_suidgid,
    }
}

/// Returns the way of a write. Bytes written back from the page cache have their offset already, and no program waits
/// for them: such a write neither appends nor syncs.
pub fn write_how(how: fuse_protocol::WriteFlags) -> WriteHow {
    let cached = how.cached;
    WriteHow { append: how.append && !cached, sync: how.sync && !cached, clear_set_id: how.kill_suidgid, cached }
}

pub fn kind(of: rustix::fs::FileType) -> u32 {
    match of {
        rustix::fs::FileType::Unknown => libc::DT_UNKNOWN.into(),
        known => known.as_raw_mode() >> 12,
    }
}

/// Converts a held lock to the answer for a client that asked for `wanted`. The process id is 0 if the holder is on
/// another machine.
pub fn held_lock(held: &RangeLock, wanted: LockArgs, client: u64) -> LockArgs {
    let kind = match held.kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    let pid = if client_of(held.owner) == client { held.pid } else { 0 };
    LockArgs { start: held.start, end: held.end, kind, pid, ..wanted }
}
