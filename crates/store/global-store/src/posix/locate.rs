//! Finding a file by its identity.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, Dir, FileType, Mode, OFlags, ResolveFlags};
use types::Identity;

use super::Root;
use super::identity::{self, ByHandle};
use crate::limits::WALK_TRIES;

/// Opens `path` below the root as `O_PATH`. Never follows a symbolic link, leaves the root, or enters another mount.
pub(super) fn open_beneath(root: &Root, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let open = || fs::openat2(&root.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    for _ in 1..WALK_TRIES {
        // EAGAIN: a rename raced with the walk, so the kernel could not prove that the path stays below the root.
        match open() {
            Err(rustix::io::Errno::AGAIN) => {}
            other => return Ok(other?),
        }
    }
    Ok(open()?)
}

/// Finds a file and returns an `O_PATH` descriptor of it.
///
/// The hint is tried first. It is as cheap as the handle, and a descriptor opened by name knows its path, which one
/// opened by handle may not.
pub(super) fn locate(root: &Root, identity: &Identity, hint: &Path, scan: bool) -> io::Result<Option<OwnedFd>> {
    if !hint.as_os_str().is_empty()
        && let Some(fd) = at_path(root, identity, hint)?
    {
        return Ok(Some(fd));
    }
    if let Some(readable) = &root.readable {
        match identity::open_by_handle(readable.as_fd(), identity)? {
            ByHandle::Found(fd) => return Ok(is_alive(&fd)?.then_some(fd)),
            ByHandle::Gone => return Ok(None),
            ByHandle::Unable => {}
        }
    }
    if scan { walk(root, identity) } else { Ok(None) }
}

/// Finds a file or directory by hint or handle, without a walk. Returns `None` if it is not there or now lies outside
/// the root.
pub(super) fn find(root: &Root, identity: &Identity, hint: &Path) -> io::Result<Option<OwnedFd>> {
    let is_directory = |fd: &OwnedFd| {
        let stat = fs::fstat(fd)?;
        Ok::<_, io::Error>(stat.st_nlink > 0 && FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    if let Some(fd) = locate(root, identity, hint, false)? {
        return Ok(Some(fd));
    }
    if !hint.as_os_str().is_empty()
        && let Ok(fd) = open_beneath(root, hint, OFlags::PATH | OFlags::NOFOLLOW)
        && is_directory(&fd)?
        && identity::identify(fd.as_fd(), root.handles)? == *identity
    {
        return Ok(Some(fd));
    }
    let Some(readable) = &root.readable else { return Ok(None) };
    let ByHandle::Found(fd) = identity::open_by_handle(readable.as_fd(), identity)? else { return Ok(None) };
    let below = is_directory(&fd)? && root.below(&super::proc_link(fd.as_fd())?)?.is_some();
    Ok(below.then_some(fd))
}

/// Returns whether a descriptor's file is a regular file that still has a name.
fn is_alive(fd: &OwnedFd) -> io::Result<bool> {
    let stat = fs::fstat(fd)?;
    Ok(stat.st_nlink > 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Returns whether an error of `open_beneath` means that the file sought is not at the path. The path is absent, behind
/// a symbolic link, or on another mount.
fn is_elsewhere(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    let gone = matches!(errno, Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV));
    gone || matches!(errno, Some(libc::EACCES | libc::ENAMETOOLONG | libc::EINVAL))
}

/// Returns the file at a path if it has this identity.
pub(super) fn at_path(root: &Root, identity: &Identity, path: &Path) -> io::Result<Option<OwnedFd>> {
    let fd = match open_beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(fd) => fd,
        Err(error) if is_elsewhere(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let same = is_alive(&fd)? && identity::identify(fd.as_fd(), root.handles)? == *identity;
    Ok(same.then_some(fd))
}

/// Searches the whole tree. Errors: those of directories that cannot be read, because the file could be in them.
fn walk(root: &Root, identity: &Identity) -> io::Result<Option<OwnedFd>> {
    let wanted = identity::inode_of(identity);
    let mut unread = None;
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        match walk_directory(root, identity, wanted, &directory, &mut directories) {
            Ok(Some(fd)) => return Ok(Some(fd)),
            Ok(None) => {}
            // The directory was removed or replaced since it was listed, or is a mount point.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV)) => {}
            Err(e) => unread = Some(e),
        }
    }
    unread.map_or(Ok(None), Err)
}

fn walk_directory(
    root: &Root,
    identity: &Identity,
    wanted: Option<u64>,
    directory: &Path,
    directories: &mut Vec<PathBuf>,
) -> io::Result<Option<OwnedFd>> {
    let fd = open_beneath(root, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    for entry in Dir::new(fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let path = directory.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        let kind = entry.file_type();
        if kind == FileType::Directory {
            directories.push(path);
            continue;
        }
        if kind != FileType::RegularFile && kind != FileType::Unknown {
            continue;
        }
        if kind == FileType::RegularFile && wanted.is_some_and(|inode| inode != entry.ino()) {
            continue;
        }
        if let Some(fd) = at_path(root, identity, &path)? {
            return Ok(Some(fd));
        }
        if kind == FileType::Unknown && open_beneath(root, &path, OFlags::PATH | OFlags::DIRECTORY).is_ok() {
            directories.push(path);
        }
    }
    Ok(None)
}
