//! A file that is written beside another, hidden, and then takes its name in one rename.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Gid, IFlags, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use types::Identity;

use super::anchor::PosixAnchor;
use super::file::PosixFile;
use super::{Root, identity, locate, proc_path, reopen};
use crate::calls::Call;
use crate::limits::{XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::{Anchor, Dressed, OpenFile, Successor};

/// Attributes that are not the user's: ours, what the kernel knows of the content, and where stores keep what is their own of a
/// file (its place, its stripes), which another file has otherwise.
const LEFT: [&[u8]; 13] = [
    b"user.forebay.",
    b"security.ima",
    b"security.evm",
    b"ceph.",
    b"gpfs.",
    b"lustre.",
    b"trusted.fid",
    b"trusted.hsm",
    b"trusted.link",
    b"trusted.lma",
    b"trusted.lov",
    b"trusted.som",
    b"trusted.glusterfs.",
];

/// Those of `chattr` that anybody may set (`FS_FL_USER_MODIFIABLE` of the kernel's `fs.h`).
const USERS_FLAGS: u32 = 0x0003_80FF;

pub(super) struct PosixSuccessor {
    root: Arc<Root>,
    old: Arc<OwnedFd>,
    directory: OwnedFd,
    name: OsString,
    hidden: OsString,
    identity: Identity,
    fd: Arc<OwnedFd>,
    file: PosixFile,
    placed: Option<bool>,
}

/// Begins one for the file `old`, which is at `path` below the root. `None`: it cannot have one.
pub(super) fn begin(
    root: &Arc<Root>,
    old: &Arc<OwnedFd>,
    path: &Path,
    hidden: &OsStr,
) -> io::Result<Option<PosixSuccessor>> {
    let Some(name) = path.file_name().filter(|_| root.replaces) else { return Ok(None) };
    let parent = path.parent().unwrap_or(Path::new(""));
    let stat = fs::fstat(old)?;
    if stat.st_nlink != 1 {
        return Ok(None);
    }
    let directory = match locate::open_beneath(root, parent, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(error) if forbids(&error) => return Ok(None),
        other => other?,
    };
    if !is_at(&directory, name, &stat)? {
        return Ok(None);
    }
    let Some(fd) = create(&directory, hidden)? else { return Ok(None) };
    let file = PosixFile::new(root.calls, File::from(fd.try_clone()?));
    let identity = identity::identify(fd.as_fd(), root.handles)?;
    Ok(Some(PosixSuccessor {
        root: Arc::clone(root),
        old: Arc::clone(old),
        directory,
        name: name.to_owned(),
        hidden: hidden.to_owned(),
        identity,
        fd: Arc::new(fd),
        file,
        placed: Some(false),
    }))
}

fn create(directory: &OwnedFd, hidden: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || Ok(fs::openat(directory, hidden, flags, Mode::RUSR | Mode::WUSR)?);
    let opened = match open() {
        // What we left when we died.
        Err(error) if is(&error, libc::EEXIST) => {
            fs::unlinkat(directory, hidden, AtFlags::empty()).map_err(io::Error::from).and_then(|()| open())
        }
        other => other,
    };
    match opened {
        Err(error) if forbids(&error) || is(&error, libc::ENAMETOOLONG) => Ok(None),
        other => other.map(Some),
    }
}

fn is(error: &io::Error, errno: i32) -> bool {
    error.raw_os_error() == Some(errno)
}

fn forbids(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

/// Whether the file of `stat` has this name.
fn is_at(directory: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<bool> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What was given, and whether it had it; or why it cannot have it. A store without room is no reason.
fn given(done: Result<(), Errno>) -> io::Result<Dressed> {
    match done {
        Ok(()) => Ok(Dressed::Changed),
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(error.into()),
        Err(_) => Ok(Dressed::Unfit),
    }
}

impl PosixSuccessor {
    fn dress_below(&self) -> io::Result<Dressed> {
        let wanted = fs::fstat(&self.old)?;
        let (owner, group) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
        let mut dressed = Dressed::Same;
        let now = fs::fstat(&self.fd)?;
        if (now.st_uid, now.st_gid) != (wanted.st_uid, wanted.st_gid) {
            self.close_to_others()?;
            dressed = dressed.max(given(fs::fchown(&self.fd, Some(owner), Some(group)))?);
        }
        dressed = dressed.max(self.copy_attributes()?).max(self.copy_flags()?);
        // The mode comes last: a change of owner takes some of it away, and access lists are part of it.
        if dressed != Dressed::Unfit && fs::fstat(&self.fd)?.st_mode != wanted.st_mode {
            let mode = Mode::from_raw_mode(wanted.st_mode & 0o7777);
            dressed = dressed.max(given(fs::fchmod(&self.fd, mode))?);
        }
        let atime = Timespec { tv_sec: wanted.st_atime, tv_nsec: wanted.st_atime_nsec as _ };
        let now = fs::fstat(&self.fd)?;
        if (now.st_atime, now.st_atime_nsec) != (wanted.st_atime, wanted.st_atime_nsec) {
            // Not worth a sync: reading moves it.
            let omit = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
            fs::futimens(&self.fd, &Timestamps { last_access: atime, last_modification: omit })?;
        }
        let same = (now.st_uid, now.st_gid, now.st_mode) == (wanted.st_uid, wanted.st_gid, wanted.st_mode);
        Ok(if same { dressed } else { Dressed::Unfit })
    }

    /// While it changes hands it lets nobody in who may not open the other file; the mode comes last.
    fn close_to_others(&self) -> io::Result<()> {
        Ok(fs::fchmod(&self.fd, Mode::RUSR | Mode::WUSR)?)
    }

    /// Extended attributes, access lists among them.
    fn copy_attributes(&self) -> io::Result<Dressed> {
        let (from, to) = (proc_path(self.old.as_fd()), proc_path(self.fd.as_fd()));
        let (wanted, present) = (names(&from)?, names(&to)?);
        let mut dressed = Dressed::Same;
        let mut value = vec![0; if wanted.is_empty() { 0 } else { XATTR_VALUE_BYTES_MAX }];
        for name in &wanted {
            let len = match fs::getxattr(&from, name.as_os_str(), &mut value[..]) {
                Ok(len) => len,
                // Taken away since it was listed: whoever did that made a change that is seen.
                Err(Errno::NODATA) => continue,
                Err(_) => return Ok(Dressed::Unfit),
            };
            let mut held = vec![0; len];
            let has = fs::getxattr(&to, name.as_os_str(), &mut held[..]) == Ok(len) && held == value[..len];
            // One that is empty asks for its length.
            let has = has && (len > 0 || present.contains(name));
            if !has {
                self.close_to_others()?;
                let set = fs::setxattr(&to, name.as_os_str(), &value[..len], XattrFlags::empty());
                dressed = dressed.max(given(set)?);
            }
        }
        // A default access list of the directory, which the old file lost or never had.
        for name in present.iter().filter(|name| !wanted.contains(name)) {
            self.close_to_others()?;
            dressed = dressed.max(given(fs::removexattr(&to, name.as_os_str()))?);
        }
        Ok(dressed)
    }

    /// What `chattr` sets.
    fn copy_flags(&self) -> io::Result<Dressed> {
        let old = match reopen(self.old.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if forbids(&error) => return Ok(Dressed::Unfit),
            other => other?,
        };
        let (Ok(wanted), Ok(present)) = (fs::ioctl_getflags(&old), fs::ioctl_getflags(&self.fd)) else {
            // A store without them.
            return Ok(Dressed::Same);
        };
        if wanted.intersects(IFlags::IMMUTABLE | IFlags::APPEND) {
            return Ok(Dressed::Unfit);
        }
        // How a store keeps a file is its own affair.
        let users = IFlags::from_bits_retain(USERS_FLAGS);
        if wanted & users == present & users {
            return Ok(Dressed::Same);
        }
        given(fs::ioctl_setflags(&self.fd, (wanted & users) | (present - users)))
    }

    fn take_place_below(&mut self) -> io::Result<bool> {
        let now = fs::fstat(&self.old)?;
        if now.st_nlink != 1 || !is_at(&self.directory, &self.name, &now)? {
            return Ok(false);
        }
        let renamed = fs::renameat(&self.directory, &self.hidden, &self.directory, &self.name);
        if let Err(error) = renamed {
            // An answer that was lost on the way may have been a good one.
            let there = fs::fstat(&self.fd).map_err(io::Error::from);
            self.placed = there.and_then(|stat| is_at(&self.directory, &self.name, &stat)).ok();
            return if self.placed == Some(true) { Ok(true) } else { Err(error.into()) };
        }
        self.placed = Some(true);
        Ok(true)
    }
}

/// The names of a file's attributes that another can have.
fn names(path: &Path) -> io::Result<Vec<OsString>> {
    let mut bytes = vec![0; XATTR_LIST_BYTES_MAX];
    let len = match fs::listxattr(path, &mut bytes[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let is_users = |name: &&[u8]| !name.is_empty() && !LEFT.iter().any(|left| name.starts_with(left));
    let each = bytes[..len].split(|&byte| byte == 0).filter(is_users);
    Ok(each.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

impl Successor for PosixSuccessor {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn file(&self) -> &dyn OpenFile {
        &self.file
    }

    fn anchor(&self) -> Arc<dyn Anchor> {
        Arc::new(PosixAnchor::new(Arc::clone(&self.root), Arc::clone(&self.fd), None, self.identity.clone()))
    }

    fn dress(&self) -> io::Result<Dressed> {
        self.root.calls.call(Call::Change, || self.dress_below())
    }

    fn is_fit(&self) -> io::Result<bool> {
        self.root.calls.call(Call::Change, || {
            let fit = self.dress_below()? != Dressed::Unfit;
            self.close_to_others()?;
            let (us, ours) = (rustix::process::geteuid(), rustix::process::getegid());
            fs::fchown(&self.fd, Some(us), Some(ours))?;
            Ok(fit)
        })
    }

    fn take_place(&mut self) -> io::Result<bool> {
        let calls = self.root.calls;
        calls.call(Call::Rename, || self.take_place_below())
    }

    fn is_placed(&self) -> Option<bool> {
        self.placed
    }

    fn sync_name(&self) -> io::Result<()> {
        Ok(self.root.calls.call(Call::Sync, || fs::fsync(&self.directory))?)
    }
}

impl Drop for PosixSuccessor {
    fn drop(&mut self) {
        if self.placed == Some(false) {
            // What stays goes when the file gets another successor, at the next start, or when its directory is removed.
            let _ =
                self.root.calls.call(Call::Remove, || fs::unlinkat(&self.directory, &self.hidden, AtFlags::empty()));
        }
    }
}
