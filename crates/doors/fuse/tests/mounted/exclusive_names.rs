//! Names of a directory below which nobody else changes anything, until that ends.

use std::ffi::{CStr, OsStr};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use global_store::calls::Store;
use global_store::{Anchor, GlobalStore};
use namespace::{
    AnchorFor, Attributes, Caller, Exclusivity, FileAttributes, FileSystemSpace, Found, HiddenFiles, Inode, KnownSince,
    Mode, NameKind, Names, Namespace, NewFile, NewName, OpenDirectory,
};
use posix_namespace::PosixNamespace;
use types::{Identity, NewTime};

/// Names of the global store, all inodes of which but the top's are exclusive.
pub struct ExclusiveNames {
    below: PosixNamespace,
    exclusivity: Arc<Exclusivity>,
}

impl ExclusiveNames {
    pub fn new(below: PosixNamespace, exclusivity: Arc<Exclusivity>) -> ExclusiveNames {
        ExclusiveNames { below, exclusivity }
    }

    fn exclusive(&self, found: Found) -> Found {
        Found { inode: found.inode.with_exclusivity(Arc::clone(&self.exclusivity)), ..found }
    }
}

impl Names for ExclusiveNames {
    fn root(&self) -> io::Result<Inode> {
        self.below.root()
    }

    fn lookup(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        Ok(self.exclusive(self.below.lookup(parent, name)?))
    }

    fn create(&self, caller: &Caller, parent: &Inode, new: NewFile<'_>) -> io::Result<(Found, Arc<dyn Anchor>)> {
        let (found, anchor) = self.below.create(caller, parent, new)?;
        Ok((self.exclusive(found), anchor))
    }

    fn make(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        self.below.make(caller, parent, name, new)
    }

    fn link(&self, caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> io::Result<()> {
        self.below.link(caller, inode, parent, name)
    }

    fn remove(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        self.below.remove(caller, parent, name, what)
    }

    fn rename(&self, caller: &Caller, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> io::Result<()> {
        self.below.rename(caller, from, to, flags)
    }

    fn read_symlink(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        self.below.read_symlink(inode)
    }

    fn open_directory(&self, caller: &Caller, inode: &Inode) -> io::Result<Box<dyn OpenDirectory>> {
        self.below.open_directory(caller, inode)
    }

    fn find(&self, identity: &Identity, hint: &Path, since: KnownSince) -> io::Result<Option<Inode>> {
        self.below.find(identity, hint, since)
    }

    fn path_of(&self, inode: &Inode) -> Option<PathBuf> {
        self.below.path_of(inode)
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }
}

impl Attributes for ExclusiveNames {
    fn attributes(&self, inode: &Inode) -> io::Result<FileAttributes> {
        self.below.attributes(inode)
    }

    fn set_owner(&self, caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        self.below.set_owner(caller, inode, uid, gid)
    }

    fn set_mode(&self, caller: &Caller, inode: &Inode, mode: u32) -> io::Result<()> {
        self.below.set_mode(caller, inode, mode)
    }

    fn set_times(&self, caller: &Caller, inode: &Inode, times: [Option<NewTime>; 2]) -> io::Result<()> {
        self.below.set_times(caller, inode, times)
    }

    fn check_open(&self, caller: &Caller, inode: &Inode, mode: Mode) -> io::Result<()> {
        self.below.check_open(caller, inode, mode)
    }

    fn xattr(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>> {
        self.below.xattr(inode, name)
    }

    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        self.below.xattr_names(inode)
    }

    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        self.below.set_xattr(caller, inode, name, value, flags)
    }

    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        self.below.remove_xattr(caller, inode, name)
    }

    fn flags(&self, caller: &Caller, inode: &Inode, command: u32, argument: &mut [u8]) -> io::Result<()> {
        self.below.flags(caller, inode, command, argument)
    }

    fn keeps_acls(&self) -> bool {
        self.below.keeps_acls()
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        self.below.space()
    }
}

impl Namespace for ExclusiveNames {
    fn anchor(&self, inode: &Inode, what: AnchorFor<'_>) -> io::Result<Arc<dyn Anchor>> {
        self.below.anchor(inode, what)
    }

    fn identify(&self, inode: &Inode, may_be_known: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
        self.below.identify(inode, may_be_known)
    }

    fn calls(&self) -> Store {
        self.below.calls()
    }

    fn acts_for_all(&self) -> bool {
        self.below.acts_for_all()
    }

    fn hidden_files(&self) -> &dyn HiddenFiles {
        self.below.hidden_files()
    }

    fn store(&self) -> &dyn GlobalStore {
        self.below.store()
    }
}
