//! Files under hidden names, on their way to a name that programs see.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use global_store::StoreFile;
use global_store::calls::StoreCall;
use global_store::hidden::is_hidden;
use global_store::posix::reopen_as_path;
use namespace::{Caller, Found, HiddenFiles, Inode, NameKind, NewMode, NewName, component, with_umask};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::names::judge;
use crate::{PosixNamespace, descriptor_of};

fn hidden(name: &OsStr) -> Result<&OsStr, Errno> {
    if is_hidden(name) { Ok(name) } else { Err(Errno::INVAL) }
}

impl PosixNamespace {
    /// Creates an empty regular file with these permission bits, which nobody sees yet.
    fn create_at(
        &self,
        caller: &Caller,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<(Found, Box<dyn StoreFile>)> {
        let directory = descriptor_of(parent)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |mode| fs::openat(directory, name, flags, Mode::from_raw_mode(mode & 0o7777));
        let created = self.impersonator.act(caller, judge(NewMode { mode, umask: 0 }, parent), || {
            self.change(StoreCall::Create, || with_umask(mode, 0, open))
        })?;
        let found = self.look_at(reopen_as_path(created.as_fd())?)?;
        Ok((found, self.store.file_created(created)))
    }
}

impl HiddenFiles for PosixNamespace {
    fn create_hidden(
        &self,
        caller: &Caller,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<(Found, Box<dyn StoreFile>)> {
        let name = component(name)?;
        match self.create_at(caller, parent, name, mode) {
            Err(error) if is_hidden(name) && error.raw_os_error() == Some(libc::EEXIST) => {
                self.remove_at(caller, parent, name, NameKind::File)?;
                self.create_at(caller, parent, name, mode)
            }
            created => created,
        }
    }

    fn make_hidden(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        self.make_at(caller, parent, hidden(name)?, new)
    }

    fn find_hidden(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        self.found_at(parent, hidden(name)?)
    }

    fn rename_hidden(
        &self,
        caller: &Caller,
        from: (&Inode, &OsStr),
        to: (&Inode, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        if !is_hidden(from.1) && !is_hidden(to.1) {
            return Err(Errno::INVAL.into());
        }
        self.rename_at(caller, (from.0, component(from.1)?), (to.0, component(to.1)?), flags)
    }

    fn remove_hidden(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        self.remove_at(caller, parent, hidden(name)?, what)
    }
}
