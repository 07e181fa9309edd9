//! Changes of names that may be hidden.

use std::ffi::OsStr;
use std::io;

use global_store::hidden::is_hidden;
use global_store::{Access, StoreFile};
use namespace::{Caller, Found, HiddenFiles, Inode, NameKind, NewMode, NewName, component};
use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

use super::tree::{Content, WRITE, may};
use super::{MemoryNamespace, masked, number_of};

impl MemoryNamespace {
    pub(super) fn make_at(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        let (mut tree, directory) = (self.tree(), number_of(parent)?);
        if let NewName::Symlink(target) = new
            && target.is_empty()
        {
            return Err(Errno::NOENT.into());
        }
        tree.may_make(caller, directory, name)?;
        let (kind, mode) = match new {
            NewName::Directory(mode) => (FileType::Directory, masked(mode)),
            NewName::Special { kind, mode, .. } => (kind, masked(mode)),
            NewName::Symlink(_) => (FileType::Symlink, 0o777),
        };
        if matches!(kind, FileType::BlockDevice | FileType::CharacterDevice) && caller.uid != 0 {
            return Err(Errno::PERM.into());
        }
        let dress = tree.dressed(caller, directory, kind, mode)?;
        let number = match new {
            NewName::Directory(_) => {
                let content = Content::Directory { names: Default::default(), parent: directory };
                tree.add(kind, dress, content)
            }
            NewName::Special { kind: FileType::RegularFile, .. } => self.new_file(&mut tree, dress)?,
            NewName::Special { device, .. } => {
                let number = tree.add(kind, dress, Content::Special);
                tree.get_mut(number)?.device = device;
                number
            }
            NewName::Symlink(target) => tree.add(kind, dress, Content::Symlink(target.as_encoded_bytes().to_vec())),
        };
        Ok(tree.put(directory, name, number)?)
    }

    pub(super) fn remove_at(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        let (mut tree, directory) = (self.tree(), number_of(parent)?);
        tree.may_search(caller, directory)?;
        let victim = tree.find(directory, name)?.ok_or(Errno::NOENT)?;
        tree.may_remove(caller, directory, victim, what == NameKind::Directory)?;
        if what == NameKind::Directory && !tree.names(victim)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        tree.remove(directory, name)?;
        self.forget_bytes(&tree, victim)
    }

    pub(super) fn rename_at(
        &self,
        caller: &Caller,
        from: (&Inode, &OsStr),
        to: (&Inode, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        let (from, to) = ((number_of(from.0)?, from.1), (number_of(to.0)?, to.1));
        if !known.contains(flags) || flags == known {
            return Err(Errno::INVAL.into());
        }
        let mut tree = self.tree();
        tree.may_search(caller, from.0)?;
        tree.may_search(caller, to.0)?;
        let source = tree.find(from.0, from.1)?.ok_or(Errno::NOENT)?;
        let target = tree.find(to.0, to.1)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        match target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST.into()),
            None if exchange => return Err(Errno::NOENT.into()),
            _ => {}
        }
        if tree.is_within(to.0, source) {
            return Err(Errno::INVAL.into());
        }
        if target.is_some_and(|target| tree.is_within(from.0, target)) {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
        }
        if target == Some(source) {
            return Ok(());
        }
        let is_directory = |number: u64| Ok::<_, Errno>(tree.get(number)?.kind == FileType::Directory);
        let moves = is_directory(source)?;
        tree.may_remove(caller, from.0, source, moves)?;
        match target {
            None => tree.may_write_names(caller, to.0)?,
            Some(target) if exchange => tree.may_remove(caller, to.0, target, is_directory(target)?)?,
            Some(target) => tree.may_remove(caller, to.0, target, moves)?,
        }
        if from.0 != to.0 {
            for moved in [Some(source), target.filter(|_| exchange)].into_iter().flatten() {
                if is_directory(moved)? {
                    may(caller, tree.get(moved)?, WRITE)?;
                }
            }
        }
        if let Some(target) = target.filter(|_| !exchange) {
            if moves && !tree.names(target)?.is_empty() {
                return Err(Errno::NOTEMPTY.into());
            }
            tree.remove(to.0, to.1)?;
            self.forget_bytes(&tree, target)?;
        }
        tree.take(from.0, from.1)?;
        if let Some(target) = target.filter(|_| exchange) {
            tree.take(to.0, to.1)?;
            tree.put(from.0, from.1, target)?;
        }
        Ok(tree.put(to.0, to.1, source)?)
    }
}

fn hidden(name: &OsStr) -> Result<&OsStr, Errno> {
    if is_hidden(name) { Ok(name) } else { Err(Errno::INVAL) }
}

impl MemoryNamespace {
    fn create_at(
        &self,
        caller: &Caller,
        parent: &Inode,
        name: &OsStr,
        mode: u32,
    ) -> io::Result<(Found, Box<dyn StoreFile>)> {
        let (kind, mode) = (FileType::RegularFile, NewMode { mode, umask: 0 });
        self.make_at(caller, parent, name, NewName::Special { kind, mode, device: 0 })?;
        let tree = self.tree();
        let found = MemoryNamespace::found(&tree, tree.find(number_of(parent)?, name)?.ok_or(Errno::NOENT)?)?;
        let Content::File(anchor) = &tree.get(number_of(&found.inode)?)?.content else {
            return Err(Errno::STALE.into());
        };
        let file = anchor.open(Access::Write)?;
        Ok((found, file))
    }
}

impl HiddenFiles for MemoryNamespace {
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
        let tree = self.tree();
        MemoryNamespace::found(&tree, tree.find(number_of(parent)?, hidden(name)?)?.ok_or(Errno::NOENT)?)
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
