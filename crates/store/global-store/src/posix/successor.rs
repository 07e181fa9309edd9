//! A file that is written beside another, hidden, and then takes its name in one rename.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Gid, IFlags, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::file::PosixFile;
use super::{Root, locate, proc_path, reopen};
use crate::calls::StoreCall;
use crate::limits::{XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::{Dressed, StoreFile, Successor};

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
    fd: OwnedFd,
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
        Err(error) if forbids(&error) || locate::is_elsewhere(&error) => return Ok(None),
        other => other?,
    };
    if !is_at(&directory, name, &stat)? {
        return Ok(None);
    }
    let Some(fd) = create(&directory, hidden)? else { return Ok(None) };
    let data = fd.try_clone().inspect_err(|_| _ = fs::unlinkat(&directory, hidden, AtFlags::empty()))?;
    let file = PosixFile::new(root.calls, File::from(data), false);
    Ok(Some(PosixSuccessor {
        root: Arc::clone(root),
        old: Arc::clone(old),
        directory,
        name: name.to_owned(),
        hidden: hidden.to_owned(),
        fd,
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
        // Somebody else has made something of that name.
        Err(error) if [libc::EISDIR, libc::ENOTEMPTY, libc::EEXIST].iter().any(|errno| is(&error, *errno)) => Ok(None),
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

/// What came of asking or changing a store; `None`: it refuses for good. That there is no room, or that the store fails or is away,
/// is no refusal.
fn allowed<T>(done: Result<T, Errno>) -> io::Result<Option<T>> {
    match done {
        Ok(value) => Ok(Some(value)),
        Err(
            Errno::PERM
            | Errno::ACCESS
            | Errno::ROFS
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::NOTTY
            | Errno::INVAL
            | Errno::TOOBIG
            | Errno::RANGE
            | Errno::NODATA,
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What a file has beside its data, but for times.
#[derive(PartialEq, Eq)]
struct Dress {
    owner: (u32, u32),
    mode: u32,
    /// Extended attributes, access lists among them.
    attributes: BTreeMap<OsString, Vec<u8>>,
    /// What `chattr` sets; `None` where a store has no such flags.
    flags: Option<IFlags>,
}

impl Dress {
    /// `None`: it cannot be told.
    fn of(file: impl AsFd) -> io::Result<Option<Dress>> {
        let stat = fs::fstat(&file)?;
        let Some(attributes) = attributes(&proc_path(file.as_fd()))? else { return Ok(None) };
        // How a store keeps a file is its own affair.
        let flags = fs::ioctl_getflags(&file).ok().map(|flags| flags & IFlags::from_bits_retain(USERS_FLAGS));
        Ok(Some(Dress { owner: (stat.st_uid, stat.st_gid), mode: stat.st_mode & 0o7777, attributes, flags }))
    }
}

impl PosixSuccessor {
    /// What the other file has now; `None`: something that this one cannot have.
    fn wanted(&self) -> io::Result<Option<Dress>> {
        let old = match reopen(self.old.as_fd(), OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if forbids(&error) => return Ok(None),
            other => other?,
        };
        let locked = IFlags::IMMUTABLE | IFlags::APPEND;
        Ok(Dress::of(&old)?.filter(|dress| dress.flags.is_none_or(|flags| !flags.intersects(locked))))
    }

    fn dress_below(&self) -> io::Result<Dressed> {
        let Some(wanted) = self.wanted()? else { return Ok(Dressed::Unfit) };
        let mut dressed = Dressed::Same;
        if Dress::of(&self.fd)?.as_ref() != Some(&wanted) {
            if self.put_on(&wanted)?.is_none() || Dress::of(&self.fd)?.as_ref() != Some(&wanted) {
                return Ok(Dressed::Unfit);
            }
            dressed = Dressed::Changed;
        }
        self.copy_atime()?;
        Ok(dressed)
    }

    /// Gives it all that is wanted; `None`: it is refused.
    fn put_on(&self, wanted: &Dress) -> io::Result<Option<()>> {
        // Before anything: it lets nobody in meanwhile who may not open the other file, and an access list would suffer by it later.
        if allowed(fs::fchmod(&self.fd, Mode::RUSR | Mode::WUSR))?.is_none() {
            return Ok(None);
        }
        let (now, (owner, group)) = (fs::fstat(&self.fd)?, wanted.owner);
        let give = || fs::fchown(&self.fd, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
        if (now.st_uid, now.st_gid) != wanted.owner && allowed(give())?.is_none() {
            return Ok(None);
        }
        // Both may have changed some of them.
        let Some(now) = Dress::of(&self.fd)? else { return Ok(None) };
        let path = proc_path(self.fd.as_fd());
        // A default access list of the directory among them, which the other file lost or never had.
        for name in now.attributes.keys().filter(|name| !wanted.attributes.contains_key(*name)) {
            if allowed(fs::removexattr(&path, name.as_os_str()))?.is_none() {
                return Ok(None);
            }
        }
        for (name, value) in wanted.attributes.iter().filter(|(name, value)| now.attributes.get(*name) != Some(*value))
        {
            if allowed(fs::setxattr(&path, name.as_os_str(), value, XattrFlags::empty()))?.is_none() {
                return Ok(None);
            }
        }
        // Last, and only where access lists have not brought it: they may suffer by it.
        if fs::fstat(&self.fd)?.st_mode & 0o7777 == wanted.mode {
            return Ok(Some(()));
        }
        allowed(fs::fchmod(&self.fd, Mode::from_raw_mode(wanted.mode)))
    }

    fn copy_atime(&self) -> io::Result<()> {
        let (wanted, now) = (fs::fstat(&self.old)?, fs::fstat(&self.fd)?);
        if (now.st_atime, now.st_atime_nsec) != (wanted.st_atime, wanted.st_atime_nsec) {
            // Not worth a sync: reading moves it.
            let atime = Timespec { tv_sec: wanted.st_atime, tv_nsec: wanted.st_atime_nsec as _ };
            let omit = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
            fs::futimens(&self.fd, &Timestamps { last_access: atime, last_modification: omit })?;
        }
        Ok(())
    }

    fn take_place_below(&mut self) -> io::Result<bool> {
        let (former, new) = (fs::fstat(&self.old)?, fs::fstat(&self.fd)?);
        let alone = former.st_nlink == 1 && new.st_nlink == 1;
        // Who may write the directory may have put something else under either name.
        let there = is_at(&self.directory, &self.name, &former)? && is_at(&self.directory, &self.hidden, &new)?;
        if !alone || !there {
            return Ok(false);
        }
        let renamed = fs::renameat(&self.directory, &self.hidden, &self.directory, &self.name);
        // An answer that was lost on the way may have been a good one, and a good one may be of what was put there just now.
        let placed = is_at(&self.directory, &self.name, &new).ok();
        self.placed = placed.filter(|placed| *placed || renamed.is_err());
        if self.placed == Some(true) {
            return Ok(true);
        }
        renamed?;
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}

/// A file's attributes that another can have; `None`: they cannot all be told.
fn attributes(path: &Path) -> io::Result<Option<BTreeMap<OsString, Vec<u8>>>> {
    let mut list = vec![0; XATTR_LIST_BYTES_MAX];
    let len = match fs::listxattr(path, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => match allowed(other)? {
            Some(len) => len,
            None => return Ok(None),
        },
    };
    let is_users = |name: &&[u8]| !name.is_empty() && !LEFT.iter().any(|left| name.starts_with(left));
    let mut value = vec![0; if len == 0 { 0 } else { XATTR_VALUE_BYTES_MAX }];
    let mut found = BTreeMap::new();
    for name in list[..len].split(|&byte| byte == 0).filter(is_users).map(OsStr::from_bytes) {
        match fs::getxattr(path, name, &mut value[..]) {
            Ok(len) => drop(found.insert(name.to_owned(), value[..len].to_vec())),
            // Taken away since it was listed: whoever did that made a change that is seen.
            Err(Errno::NODATA) => {}
            Err(error) => {
                if allowed::<()>(Err(error))?.is_none() {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(found))
}

impl Successor for PosixSuccessor {
    fn file(&self) -> &dyn StoreFile {
        &self.file
    }

    fn dress(&self) -> io::Result<Dressed> {
        self.root.calls.call(StoreCall::Change, || self.dress_below())
    }

    fn take_place(&mut self) -> io::Result<bool> {
        let calls = self.root.calls;
        calls.call(StoreCall::Rename, || self.take_place_below())
    }

    fn is_placed(&self) -> Option<bool> {
        self.placed
    }

    fn sync_name(&self) -> io::Result<()> {
        Ok(self.root.calls.call(StoreCall::Sync, || fs::fsync(&self.directory))?)
    }
}

impl Drop for PosixSuccessor {
    fn drop(&mut self) {
        if self.placed == Some(false) {
            // What stays goes when the file gets another successor, at the next start, or when its directory is removed.
            let _ = self.root.calls.call(StoreCall::Remove, || {
                if is_at(&self.directory, &self.hidden, &fs::fstat(&self.fd)?)? {
                    fs::unlinkat(&self.directory, &self.hidden, AtFlags::empty())?;
                }
                Ok::<_, io::Error>(())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GlobalStore as _;
    use crate::posix::{PosixStore, StoreOptions};

    #[test] // S53
    fn a_store_that_fails_refuses_nothing() {
        for refusal in [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP, Errno::INVAL, Errno::TOOBIG] {
            assert_eq!(allowed::<()>(Err(refusal)).unwrap(), None, "{refusal}");
        }
        for failure in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::INTR, Errno::STALE, Errno::SHUTDOWN, Errno::NOMEM]
        {
            assert!(allowed::<()>(Err(failure)).is_err(), "{failure}");
        }
    }

    #[test] // S53
    fn a_hidden_name_that_somebody_else_has_made_something_of_is_no_failure() {
        let tree = tempfile::tempdir().unwrap();
        let root = fs::open(tree.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        assert!(!store.is_shared());
        std::fs::write(tree.path().join("f"), b"old").unwrap();
        let file = fs::open(tree.path().join("f"), OFlags::PATH, Mode::empty()).unwrap();
        let anchor = store.anchor(file, None).unwrap();
        let hidden = crate::hidden::name("agent", 7);
        std::fs::create_dir(tree.path().join(&hidden)).unwrap();
        assert!(anchor.begin_successor(&hidden).unwrap().is_none());
        std::fs::remove_dir(tree.path().join(&hidden)).unwrap();
        std::fs::write(tree.path().join(&hidden), b"what a death left").unwrap();
        let begun = anchor.begin_successor(&hidden).unwrap().unwrap();
        assert_eq!(begun.file().attributes().unwrap().fingerprint.size, 0);
    }

    #[test] // S53
    fn a_hidden_file_goes_and_nothing_else_that_is_called_so_or_stands_in_the_way() {
        let tree = tempfile::tempdir().unwrap();
        let root = fs::open(tree.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let (hidden, at) = (crate::hidden::name("agent", 7), |name: &str| tree.path().join(name));
        let removed = |directory: &str| store.remove_hidden(&Path::new(directory).join(&hidden)).unwrap();
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d").join(&hidden), b"what a death left").unwrap();
        std::os::unix::fs::symlink("d", at("link")).unwrap();
        std::fs::write(at("file"), b"").unwrap();
        assert!(!removed("gone") && !removed("link") && !removed("file"));
        assert!(removed("d") && !removed("d") && !at("d").join(&hidden).exists());
        std::os::unix::fs::symlink("file", at("d").join(&hidden)).unwrap();
        assert!(!removed("d") && at("d").join(&hidden).is_symlink(), "somebody else's");
        assert!(!store.remove_hidden(Path::new("file")).unwrap() && at("file").exists());
    }
}
