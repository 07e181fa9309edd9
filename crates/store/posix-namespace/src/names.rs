//! Names in the global store.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use global_store::calls::StoreCall;
use global_store::hidden::is_hidden;
use global_store::posix::{PosixStore, reopen_as_path};
use global_store::{Anchor, GlobalStore};
use namespace::{
    Caller, FileAttributes, Found, Inode, KnownSince, NameKind, Names, NewFile, NewMode, NewName, OpenDirectory,
    component, plain, with_umask,
};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use types::Identity;

use crate::directory::StoreDirectory;
use crate::impersonator::{Judge, names_in};
use crate::{PosixNamespace, descriptor_name, descriptor_of, proc_path};

/// Returns what decides the permission to create this in a directory. For a directory outside the caller's groups, the
/// store clears set-group-id without an error, so groups must be read first.
pub(crate) fn judge(new: NewMode, directory: &Inode) -> Judge<'_> {
    if new.mode & 0o2000 == 0 { names_in(directory) } else { Judge::Groups }
}

impl PosixNamespace {
    /// Returns a file and its attributes.
    pub(crate) fn look_at(&self, fd: OwnedFd) -> io::Result<Found> {
        self.below(StoreCall::Attributes, || {
            let stat = fs::fstat(&fd)?;
            let attributes = FileAttributes::of_stat(&stat);
            Ok(Found { inode: self.inode(fd, stat.st_mode, stat.st_ino)?, attributes })
        })
    }

    /// Finds a name, which may be hidden.
    pub(crate) fn found_at(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        let parent = descriptor_of(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.look_at(self.below(StoreCall::Lookup, || fs::openat(parent, name, flags, Mode::empty()))?)
    }

    /// Makes a name, which may be hidden.
    pub(crate) fn make_at(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        let directory = descriptor_of(parent)?;
        let bits = |mode| Mode::from_raw_mode(mode & 0o7777);
        let masked = |mode: NewMode, make: &dyn Fn(u32) -> Result<(), Errno>| with_umask(mode.mode, mode.umask, make);
        let judge = match new {
            NewName::Directory(mode) | NewName::Special { mode, .. } => judge(mode, parent),
            NewName::Symlink(_) => names_in(parent),
        };
        self.impersonator.act(caller, judge, || {
            self.change(StoreCall::Create, || match new {
                NewName::Directory(mode) => masked(mode, &|mode| fs::mkdirat(directory, name, bits(mode))),
                NewName::Special { kind, mode, device } => {
                    masked(mode, &|mode| fs::mknodat(directory, name, kind, bits(mode), device))
                }
                NewName::Symlink(target) => fs::symlinkat(target, directory, name),
            })
        })
    }

    /// Removes a name, which may be hidden.
    pub(crate) fn remove_at(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        let directory = descriptor_of(parent)?;
        let remove = |flags| {
            let remove = || fs::unlinkat(directory, name, flags);
            self.impersonator.act(caller, names_in(parent), || self.change(StoreCall::Remove, remove))
        };
        match what {
            NameKind::File => remove(AtFlags::empty()),
            NameKind::Directory => self.emptying(caller, (directory, name), || remove(AtFlags::REMOVEDIR)),
        }
    }

    /// Renames; either name may be hidden.
    pub(crate) fn rename_at(
        &self,
        caller: &Caller,
        from: (&Inode, &OsStr),
        to: (&Inode, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        let (old, new) = ((descriptor_of(from.0)?, from.1), (descriptor_of(to.0)?, to.1));
        let rename = || {
            let rename = || fs::renameat_with(old.0, old.1, new.0, new.1, flags);
            self.impersonator.act(caller, names_in(from.0), || self.change(StoreCall::Rename, rename))
        };
        match flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) {
            true => rename(),
            false => self.emptying(caller, new, rename),
        }
    }
}

impl Names for PosixNamespace {
    fn root(&self) -> io::Result<Inode> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(self.store.root(), ".", flags, Mode::empty())?;
        let stat = fs::fstat(&root)?;
        self.inode(root, stat.st_mode, stat.st_ino)
    }

    fn lookup(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        if is_hidden(name) {
            return Err(Errno::NOENT.into());
        }
        self.found_at(parent, component(name)?)
    }

    fn create(&self, caller: &Caller, parent: &Inode, new: NewFile<'_>) -> io::Result<(Found, Arc<dyn Anchor>)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let (flags, name) = match new.name {
            Some(name) => (flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, plain(name)?),
            None if new.exclusive => (flags | OFlags::TMPFILE | OFlags::EXCL, OsStr::new(".")),
            None => (flags | OFlags::TMPFILE, OsStr::new(".")),
        };
        let directory = descriptor_of(parent)?;
        let create = |mode| fs::openat(directory, name, flags, Mode::from_raw_mode(mode & 0o7777));
        let created = self.impersonator.act(caller, judge(new.mode, parent), || {
            match self.change(StoreCall::Create, || with_umask(new.mode.mode, new.mode.umask, create)) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) && !new.exclusive => Err(Errno::STALE.into()),
                created => created,
            }
        })?;
        let found = self.look_at(reopen_as_path(created.as_fd())?)?;
        let anchor = self.anchor_created(&found.inode, created, new.name.map(|name| (parent, name)))?;
        Ok((found, anchor))
    }

    fn make(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        self.make_at(caller, parent, plain(name)?, new)
    }

    fn link(&self, caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> io::Result<()> {
        let (from, directory, name) = (descriptor_name(inode)?, descriptor_of(parent)?, plain(name)?);
        let link = || fs::linkat(&self.descriptors, &from, directory, name, AtFlags::SYMLINK_FOLLOW);
        self.impersonator.act(caller, names_in(parent), || self.change(StoreCall::Create, link))
    }

    fn remove(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        self.remove_at(caller, parent, plain(name)?, what)
    }

    fn rename(&self, caller: &Caller, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> io::Result<()> {
        self.rename_at(caller, (from.0, plain(from.1)?), (to.0, plain(to.1)?), flags)
    }

    fn read_symlink(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        let fd = descriptor_of(inode)?;
        let target = self.below(StoreCall::Read, || fs::readlinkat(fd, "", Vec::new()))?;
        Ok(OsString::from_vec(target.into_bytes()).into_vec())
    }

    fn open_directory(&self, caller: &Caller, inode: &Inode) -> io::Result<Box<dyn OpenDirectory>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Not opened as `.` in it, which would need search permission: read permission must suffice.
        let name = descriptor_name(inode)?;
        let fd = self.impersonator.act(caller, Judge::Inode(inode, 4), || {
            Ok(self.below(StoreCall::List, || fs::openat(&self.descriptors, &name, flags, Mode::empty()))?)
        })?;
        Ok(Box::new(StoreDirectory::new(self.store.calls(), fd)))
    }

    fn find(&self, identity: &Identity, hint: &Path, since: KnownSince) -> io::Result<Option<Inode>> {
        if since == KnownSince::Restart && !PosixStore::is_lasting(identity) {
            return Ok(None);
        }
        let Some(fd) = self.store.find(identity, hint)? else { return Ok(None) };
        self.look_at(fd).map(|found| Some(found.inode))
    }

    fn path_of(&self, inode: &Inode) -> Option<PathBuf> {
        let below = |path: String| std::fs::read_link(path).ok();
        let root = below(format!("/proc/self/fd/{}", self.store.root().as_raw_fd()))?;
        below(proc_path(inode).ok()?)?.strip_prefix(root).ok().map(Path::to_path_buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.store.sync_point()?.sync()
    }
}
