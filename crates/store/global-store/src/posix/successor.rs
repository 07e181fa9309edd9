//! A file that is written beside another, hidden, and then takes its name in one rename.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Gid, IFlags, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use types::Identity;

use super::file::PosixFile;
use super::{Root, identity, locate, proc_path, reopen};
use crate::calls::Call;
use crate::limits::{XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::{OpenFile, Successor};

/// Attributes of ours, which are not the user's.
const OURS: &[u8] = b"user.forebay.";

pub(super) struct PosixSuccessor {
    root: Arc<Root>,
    old: Arc<OwnedFd>,
    directory: OwnedFd,
    name: OsString,
    hidden: OsString,
    hint: PathBuf,
    identity: Identity,
    fd: OwnedFd,
    file: PosixFile,
    /// The old file when its attributes were read.
    dressed: Option<Stat>,
    placed: bool,
}

/// Begins one for the file `old`, which is at `path` below the root. `None`: it cannot have one.
pub(super) fn begin(
    root: &Arc<Root>,
    old: &Arc<OwnedFd>,
    path: &Path,
    hidden: &OsStr,
) -> io::Result<Option<PosixSuccessor>> {
    let Some(name) = path.file_name() else { return Ok(None) };
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
        // It is being renamed: whoever comes again finds where it is.
        return Err(Errno::INTR.into());
    }
    let Some(fd) = create(&directory, hidden)? else { return Ok(None) };
    let file = PosixFile::new(root.calls, File::from(fd.try_clone()?));
    let identity = identity::identify(fd.as_fd(), root.handles);
    let successor = PosixSuccessor {
        root: Arc::clone(root),
        old: Arc::clone(old),
        directory,
        name: name.to_owned(),
        hidden: hidden.to_owned(),
        hint: parent.join(hidden),
        identity: identity?,
        fd,
        file,
        dressed: None,
        placed: false,
    };
    Ok(Some(successor))
}

fn create(directory: &OwnedFd, hidden: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || Ok(fs::openat(directory, hidden, flags, Mode::RUSR | Mode::WUSR)?);
    let opened = match open() {
        // What we left when we died.
        Err(error) if is(&error, libc::EEXIST) => {
            fs::unlinkat(directory, hidden, AtFlags::empty())?;
            open()
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

fn ctime(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

impl PosixSuccessor {
    fn dress_below(&mut self) -> io::Result<bool> {
        let stat = fs::fstat(&self.old)?;
        let owner = fs::fchown(&self.fd, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
        if owner.is_err() || !self.copy_attributes()? || !self.copy_flags()? {
            return Ok(false);
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        fs::fchmod(&self.fd, mode)?;
        let atime = Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ };
        let omit = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
        fs::futimens(&self.fd, &Timestamps { last_access: atime, last_modification: omit })?;
        let now = fs::fstat(&self.fd)?;
        let same = (now.st_uid, now.st_gid, now.st_mode) == (stat.st_uid, stat.st_gid, stat.st_mode);
        self.dressed = Some(stat);
        Ok(same)
    }

    /// Extended attributes, access lists among them; false if one cannot be had.
    fn copy_attributes(&self) -> io::Result<bool> {
        let (from, to) = (proc_path(self.old.as_fd()), proc_path(self.fd.as_fd()));
        let (wanted, present) = (names(&from)?, names(&to)?);
        let mut value = vec![0; XATTR_VALUE_BYTES_MAX];
        for name in &wanted {
            let Ok(len) = fs::getxattr(&from, name.as_os_str(), &mut value[..]) else { return Ok(false) };
            let mut held = vec![0; len];
            let has = fs::getxattr(&to, name.as_os_str(), &mut held[..]) == Ok(len) && held == value[..len];
            if !has && fs::setxattr(&to, name.as_os_str(), &value[..len], XattrFlags::empty()).is_err() {
                return Ok(false);
            }
        }
        // A default access list of the directory, which the old file lost or never had.
        for name in present.iter().filter(|name| !wanted.contains(name)) {
            if fs::removexattr(&to, name.as_os_str()).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What `chattr` sets; false if it cannot be had.
    fn copy_flags(&self) -> io::Result<bool> {
        let old = match reopen(self.old.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if forbids(&error) => return Ok(false),
            other => other?,
        };
        let (Ok(wanted), Ok(present)) = (fs::ioctl_getflags(&old), fs::ioctl_getflags(&self.fd)) else {
            // A store without them.
            return Ok(true);
        };
        if wanted.intersects(IFlags::IMMUTABLE | IFlags::APPEND) {
            return Ok(false);
        }
        Ok(wanted == present || fs::ioctl_setflags(&self.fd, wanted).is_ok())
    }

    fn take_place_below(&mut self) -> io::Result<bool> {
        let now = fs::fstat(&self.old)?;
        let same = self.dressed.as_ref().is_some_and(|then| ctime(then) == ctime(&now) && now.st_nlink == 1);
        if !same || !is_at(&self.directory, &self.name, &now)? {
            return Ok(false);
        }
        let renamed = fs::renameat(&self.directory, &self.hidden, &self.directory, &self.name);
        if let Err(error) = renamed {
            // An answer that was lost on the way may have been a good one.
            if !is_at(&self.directory, &self.name, &fs::fstat(&self.fd)?)? {
                return Err(error.into());
            }
        }
        self.placed = true;
        Ok(true)
    }
}

/// The names of a file's attributes but for ours.
fn names(path: &Path) -> io::Result<Vec<OsString>> {
    use std::os::unix::ffi::OsStrExt;
    let mut bytes = vec![0; XATTR_LIST_BYTES_MAX];
    let len = match fs::listxattr(path, &mut bytes[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let each = bytes[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty() && !name.starts_with(OURS));
    Ok(each.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

impl Successor for PosixSuccessor {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn path_hint(&self) -> PathBuf {
        self.hint.clone()
    }

    fn file(&self) -> &dyn OpenFile {
        &self.file
    }

    fn dress(&mut self) -> io::Result<bool> {
        let calls = self.root.calls;
        calls.call(Call::Change, || self.dress_below())
    }

    fn take_place(&mut self) -> io::Result<bool> {
        let calls = self.root.calls;
        calls.call(Call::Rename, || self.take_place_below())
    }

    fn sync_name(&self) -> io::Result<()> {
        Ok(self.root.calls.call(Call::Sync, || fs::fsync(&self.directory))?)
    }
}

impl Drop for PosixSuccessor {
    fn drop(&mut self) {
        if !self.placed {
            // What stays goes when the file gets another successor, or its directory is removed.
            let _ =
                self.root.calls.call(Call::Remove, || fs::unlinkat(&self.directory, &self.hidden, AtFlags::empty()));
        }
    }
}
