//! A namespace in memory.

mod attributes;
mod changes;
mod directory;
mod tree;

use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::global::MemoryStore as GlobalMemory;
use concurrency::{Mutex, MutexGuard};
use global_store::calls::Store;
use global_store::hidden::is_hidden;
use global_store::{Anchor, GlobalStore};
use namespace::{
    AnchorFor, Caller, Exclusivity, Found, HiddenFiles, Hold, Inode, KeptFile, KnownSince, NameKind, Names, Namespace,
    NewFile, NewMode, NewName, OpenDirectory, plain,
};
use rustix::fs::FileType;
use rustix::io::Errno;
use types::Identity;

use tree::{Content, ROOT, Tree, may, owns};

/// A namespace in memory. The bytes of its files are in a global store in memory, under their inode numbers.
///
/// Users and groups, modes, set-group-id and sticky directories count. ACLs and the flags of chattr(1) do not exist.
pub struct MemoryNamespace {
    store: GlobalMemory,
    calls: Store,
    tree: Mutex<Tree>,
}

/// Number of a file, as [`Hold::Other`].
struct Number(u64);

/// A file that nobody else changes, as [`Hold::Kept`].
struct Exclusive {
    number: u64,
    identity: Identity,
    kind: FileType,
    exclusivity: Arc<Exclusivity>,
}

impl KeptFile for Exclusive {
    fn key(&self) -> Identity {
        self.identity.clone()
    }

    fn kind(&self) -> FileType {
        self.kind
    }

    fn exclusivity(&self) -> &Arc<Exclusivity> {
        &self.exclusivity
    }
}

impl MemoryNamespace {
    /// Creates an empty namespace, whose root belongs to a user and a group.
    pub fn new(uid: u32, gid: u32) -> MemoryNamespace {
        let calls = Store::register();
        MemoryNamespace { store: GlobalMemory::new(), calls, tree: Mutex::new(Tree::new(uid, gid)) }
    }

    /// Creates an empty namespace that nobody else changes until `exclusivity` ends.
    pub fn exclusive(uid: u32, gid: u32, exclusivity: Arc<Exclusivity>) -> MemoryNamespace {
        let names = MemoryNamespace::new(uid, gid);
        names.tree().exclusivity = Some(exclusivity);
        names
    }

    /// Returns the bytes of a file in the global store.
    pub fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut number = ROOT;
        for name in path {
            number = self.tree().find(number, name)?.ok_or(Errno::NOENT)?;
        }
        self.store.read(number.to_string())
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock()
    }

    fn inode(tree: &Tree, number: u64) -> io::Result<Inode> {
        let entry = tree.get(number)?;
        let identity = match &entry.content {
            Content::File(anchor) => anchor.identity().clone(),
            _ => Identity::new([b"name".as_slice(), &number.to_le_bytes()].concat()).expect("twelve bytes"),
        };
        let kind = entry.kind;
        Ok(match tree.exclusivity.clone() {
            Some(exclusivity) => Inode::kept(Arc::new(Exclusive { number, identity, kind, exclusivity }), number),
            None => Inode::new(identity, kind, number, Hold::Other(Arc::new(Number(number)))),
        })
    }

    fn found(tree: &Tree, number: u64) -> io::Result<Found> {
        Ok(Found { inode: MemoryNamespace::inode(tree, number)?, attributes: tree.attributes(number)? })
    }

    /// Creates the bytes of a regular file and its entry.
    fn new_file(&self, tree: &mut Tree, dress: (u32, u32, u32)) -> io::Result<u64> {
        let path = |number: u64| number.to_string();
        let number = tree.add(FileType::RegularFile, dress, Content::Special);
        self.store.create(path(number));
        tree.get_mut(number)?.content = Content::File(self.store.anchor(path(number))?);
        self.store.set_mode(path(number), dress.0)?;
        Ok(number)
    }

    /// Removes the bytes of a file whose last name is gone, as far as nobody has it open.
    fn forget_bytes(&self, tree: &Tree, number: u64) -> io::Result<()> {
        let entry = tree.get(number)?;
        if entry.links == 0 && entry.kind == FileType::RegularFile {
            self.store.unlink(number.to_string())?;
        }
        Ok(())
    }
}

/// Returns the number of a file of this namespace. `ESTALE` for one of another.
fn number_of(inode: &Inode) -> Result<u64, Errno> {
    match inode.hold() {
        Hold::Other(held) => held.downcast_ref().map(|Number(number)| *number).ok_or(Errno::STALE),
        Hold::Kept(held) => {
            let held: &dyn Any = &**held;
            held.downcast_ref().map(|Exclusive { number, .. }| *number).ok_or(Errno::STALE)
        }
        Hold::Descriptor(_) => Err(Errno::STALE),
    }
}

fn masked(new: NewMode) -> u32 {
    new.mode & 0o7777 & !(new.umask & 0o777)
}

impl Names for MemoryNamespace {
    fn root(&self) -> io::Result<Inode> {
        MemoryNamespace::inode(&self.tree(), ROOT)
    }

    fn lookup(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        if is_hidden(name) {
            return Err(Errno::NOENT.into());
        }
        let (tree, name) = (self.tree(), plain(name)?);
        MemoryNamespace::found(&tree, tree.find(number_of(parent)?, name)?.ok_or(Errno::NOENT)?)
    }

    fn create(&self, caller: &Caller, parent: &Inode, new: NewFile<'_>) -> io::Result<(Found, Arc<dyn Anchor>)> {
        let (mut tree, directory) = (self.tree(), number_of(parent)?);
        let name = new.name.map(plain).transpose()?;
        match name.map(|name| tree.may_make(caller, directory, name)) {
            Some(Err(Errno::EXIST)) if !new.exclusive => return Err(Errno::STALE.into()),
            Some(may_make) => may_make?,
            None => {
                tree.names(directory)?;
                tree.may_write_names(caller, directory)?;
            }
        }
        let dress = tree.dressed(caller, directory, FileType::RegularFile, masked(new.mode))?;
        let number = self.new_file(&mut tree, dress)?;
        match name {
            Some(name) => tree.put(directory, name, number)?,
            None => {
                tree.get_mut(number)?.linkable = !new.exclusive;
                self.forget_bytes(&tree, number)?;
            }
        }
        let Content::File(anchor) = &tree.get(number)?.content else { return Err(Errno::STALE.into()) };
        Ok((MemoryNamespace::found(&tree, number)?, Arc::clone(anchor)))
    }

    fn make(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        self.make_at(caller, parent, plain(name)?, new)
    }

    fn link(&self, caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> io::Result<()> {
        let (mut tree, number, directory) = (self.tree(), number_of(inode)?, number_of(parent)?);
        let name = plain(name)?;
        tree.may_search(caller, directory)?;
        if tree.find(directory, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let entry = tree.get(number)?;
        // The sysctl protected_hardlinks, which distributions set.
        let privileged = entry.mode & 0o4000 != 0 || entry.mode & 0o2010 == 0o2010;
        let is_safe = entry.kind == FileType::RegularFile && !privileged && may(caller, entry, 6).is_ok();
        if !owns(caller, entry) && !is_safe {
            return Err(Errno::PERM.into());
        }
        tree.may_write_names(caller, directory)?;
        if entry.kind == FileType::Directory {
            return Err(Errno::PERM.into());
        }
        if entry.links == 0 {
            if !entry.linkable {
                return Err(Errno::NOENT.into());
            }
            self.store.name(inode.identity().clone(), number.to_string())?;
            tree.get_mut(number)?.linkable = false;
        }
        Ok(tree.put(directory, name, number)?)
    }

    fn remove(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        self.remove_at(caller, parent, plain(name)?, what)
    }

    fn rename(&self, caller: &Caller, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> io::Result<()> {
        self.rename_at(caller, (from.0, plain(from.1)?), (to.0, plain(to.1)?), flags)
    }

    fn read_symlink(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        match &self.tree().get(number_of(inode)?)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn open_directory(&self, caller: &Caller, inode: &Inode) -> io::Result<Box<dyn OpenDirectory>> {
        directory::open(&self.tree(), caller, number_of(inode)?)
    }

    fn find(&self, identity: &Identity, _hint: &Path, _since: KnownSince) -> io::Result<Option<Inode>> {
        let tree = self.tree();
        for (number, _) in tree.entries.iter().filter(|(_, entry)| entry.links > 0) {
            let inode = MemoryNamespace::inode(&tree, *number)?;
            if inode.identity() == identity {
                return Ok(Some(inode));
            }
        }
        Ok(None)
    }

    fn path_of(&self, inode: &Inode) -> Option<PathBuf> {
        let (tree, mut at, mut path) = (self.tree(), number_of(inode).ok()?, PathBuf::new());
        while at != ROOT {
            let named = |directory: &u64| {
                let names = tree.names(*directory).ok()?;
                names.iter().find(|(_, number)| **number == at).map(|(name, _)| (*directory, name.clone()))
            };
            let (directory, name) = tree.entries.keys().find_map(named)?;
            path = if path.as_os_str().is_empty() { name.into() } else { Path::new(&name).join(path) };
            at = directory;
        }
        Some(path)
    }

    fn sync(&self) -> io::Result<()> {
        self.store.sync()
    }
}

impl Namespace for MemoryNamespace {
    fn anchor(&self, inode: &Inode, _: AnchorFor<'_>) -> io::Result<Arc<dyn Anchor>> {
        match &self.tree().get(number_of(inode)?)?.content {
            Content::File(anchor) => Ok(Arc::clone(anchor)),
            Content::Directory { .. } => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn identify(&self, _: &Inode, _: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
        Ok(true)
    }

    fn calls(&self) -> Store {
        self.calls
    }

    fn acts_for_all(&self) -> bool {
        true
    }

    fn hidden_files(&self) -> &dyn HiddenFiles {
        self
    }

    fn store(&self) -> &dyn GlobalStore {
        &self.store
    }
}
