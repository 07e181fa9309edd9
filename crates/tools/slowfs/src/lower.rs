//! Access to the lower directory, by descriptors from its root and never by a path from outside.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use fuse_protocol::{Errno, Request, SetAttr, TimeOrNow};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags};

use crate::attributes;
use crate::nodes::Node;

const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Open flags that concern the caller's descriptor and not ours. The FUSE mount already bypasses the cache, names are
/// resolved, and the file exists.
const NOT_OURS: OFlags = OFlags::DIRECT.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW);

pub fn root(dir: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the entry `name` of `parent`, without following a symbolic link.
pub fn child(parent: &Node, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&parent.fd, name, flags, Mode::empty())?)
}

/// Returns a path to an open file that cannot be redirected to another file.
pub fn path_of(fd: BorrowedFd<'_>) -> CString {
    // The text is digits and literals, so it contains no NUL.
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Opens a file of which we have an `O_PATH` descriptor.
pub fn open(file: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    Ok(rustix::fs::open(path_of(file), (flags - NOT_OURS) | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a file, or creates it if it does not exist. Returns the descriptor and whether the file was created.
pub fn create(parent: &Node, name: &OsStr, flags: OFlags, mode: u32) -> Result<(OwnedFd, bool), Errno> {
    let exclusive = (flags - NOT_OURS) | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::openat(&parent.fd, name, exclusive, Mode::from_raw_mode(mode)) {
        Ok(fd) => Ok((fd, true)),
        // Another process created the file in the lower directory first.
        Err(rustix::io::Errno::EXIST) if !flags.contains(OFlags::EXCL) => {
            Ok((open(child(parent, name)?.as_fd(), flags)?, false))
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives a newly created file to the caller. Until then the file belongs to root.
///
/// Creating it on a thread with the caller's ids (setfsuid) would lack the supplementary groups, which the kernel used
/// for its check of the mode bits.
pub fn give(req: &Request, parent: &Node, file: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    if !rustix::process::geteuid().is_root() || (req.uid, req.gid) == (0, 0) {
        return Ok(());
    }
    // Below a set-group-id directory the lower file system has already set the directory's group.
    let inherits = attributes::of(&parent.fd)?.attr.mode & libc::S_ISGID != 0;
    let group = (!inherits).then(|| Gid::from_raw(req.gid));
    rustix::fs::chownat(file, c"", Some(Uid::from_raw(req.uid)), group, AtFlags::EMPTY_PATH)?;
    let kind = mode & libc::S_IFMT;
    if mode & SET_IDS != 0 && matches!(kind, 0 | libc::S_IFREG) {
        // The change of owner has cleared these bits.
        rustix::fs::chmod(path_of(file), Mode::from_raw_mode(mode & 0o7777))?;
    }
    Ok(())
}

/// Clears the set-id bits, as a write by another user does.
pub fn drop_set_ids(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mode = attributes::of(file)?.attr.mode;
    // Set-group-id without the group's execute bit was a mark of mandatory locking and gives no privilege.
    let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    let drop = mode & (libc::S_ISUID | group);
    if drop != 0 && mode & libc::S_IFMT == libc::S_IFREG {
        rustix::fs::chmod(path_of(file), Mode::from_raw_mode(mode & 0o7777 & !drop))?;
    }
    Ok(())
}

/// Applies chown, truncate, chmod and utimens, in an order in which no step undoes an earlier one.
pub fn set(node: &Node, open: Option<&OwnedFd>, set: &SetAttr) -> Result<(), Errno> {
    let file = node.fd.as_fd();
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        rustix::fs::chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(size) = set.size {
        match open {
            Some(open) => rustix::fs::ftruncate(open, size)?,
            None => rustix::fs::ftruncate(self::open(file, OFlags::WRONLY)?, size)?,
        }
    }
    if set.kill_suidgid {
        drop_set_ids(file)?;
    }
    if let Some(mode) = set.mode {
        rustix::fs::chmod(path_of(file), Mode::from_raw_mode(mode & 0o7777))?;
    }
    if set.atime.is_some() || set.mtime.is_some() {
        let times = Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
        rustix::fs::utimensat(file, c"", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::At(at)) => Timespec { tv_sec: at.seconds, tv_nsec: at.nanos.into() },
    }
}

/// Returns the complete value of an extended attribute.
pub fn xattr(node: &Node, name: &CStr) -> Result<Vec<u8>, Errno> {
    let path = path_of(node.fd.as_fd());
    let mut value = vec![0; fuse_protocol::limits::XATTR_MAX];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Returns the names of all extended attributes, each terminated by a NUL.
pub fn xattr_names(node: &Node) -> Result<Vec<u8>, Errno> {
    let path = path_of(node.fd.as_fd());
    let mut names = vec![0; fuse_protocol::limits::XATTR_MAX];
    let len = rustix::fs::listxattr(path, &mut names[..])?;
    names.truncate(len);
    Ok(names)
}

pub fn set_xattr(node: &Node, name: &CStr, value: &[u8], flags: i32, kill_sgid: bool) -> Result<(), Errno> {
    let path = path_of(node.fd.as_fd());
    rustix::fs::setxattr(&path, name, value, XattrFlags::from_bits_retain(flags.cast_unsigned()))?;
    if kill_sgid {
        let mode = attributes::of(&node.fd)?.attr.mode & 0o7777;
        rustix::fs::chmod(path, Mode::from_raw_mode(mode & !libc::S_ISGID))?;
    }
    Ok(())
}

pub fn remove_xattr(node: &Node, name: &CStr) -> Result<(), Errno> {
    Ok(rustix::fs::removexattr(path_of(node.fd.as_fd()), name)?)
}
