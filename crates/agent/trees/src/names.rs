//! The namespace that an agent gets: trees answer for what is in them, the namespace below for the rest.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_store::is_interrupted;
use global_store::Anchor;
use namespace::{
    Attributes, Caller, Found, Inode, KnownSince, NameKind, Names, Namespace, NewFile, NewName, OpenDirectory,
};
use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;
use types::{HasErrno, Identity};

use crate::applying::Applying;
use crate::just_made::JustMade;
use crate::open_tree::OpenTree;
use crate::registry::Trees;

mod borders;

/// A namespace with delegated trees.
pub struct TreesNamespace(pub(crate) Arc<Trees>);

impl TreesNamespace {
    /// Creates the namespace of these trees and of what is below them.
    pub fn new(trees: &Arc<Trees>) -> TreesNamespace {
        TreesNamespace(Arc::clone(trees))
    }

    pub(crate) fn below(&self) -> &dyn Namespace {
        &*self.0.settings.namespace
    }

    /// Asks the tree of an inode, or the namespace below if there is none or it was given back.
    pub(crate) fn ask<T>(
        &self,
        inode: &Inode,
        in_tree: impl FnOnce(&OpenTree) -> io::Result<T>,
        below: impl FnOnce(&dyn Namespace, &Inode) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some((tree, node)) = self.0.of(inode)? else { return below(self.below(), inode) };
        if let Some(lowered) = tree.lowered(node)? {
            return below(self.below(), &lowered);
        }
        match in_tree(&tree) {
            // The tree was given back meanwhile.
            Err(error) if error.errno() == Some(libc::ESTALE) => match tree.lowered(node)? {
                Some(lowered) => below(self.below(), &lowered),
                None => Err(error),
            },
            answer => answer,
        }
    }

    /// Returns the tree of an inode, if it is delegated now.
    pub(crate) fn live(&self, inode: &Inode) -> io::Result<Option<Arc<OpenTree>>> {
        Ok(self.0.of(inode)?.map(|(tree, _)| tree).filter(|tree| !tree.is_returned()))
    }

    /// Returns the inode of the namespace below that stands for an inode.
    pub(crate) fn lowered<'a>(&self, inode: &'a Inode) -> io::Result<Lowered<'a>> {
        match self.0.of(inode)? {
            None => Ok(Lowered::Same(inode)),
            Some((tree, node)) => Ok(Lowered::Other(tree.lowered(node)?.ok_or(Errno::STALE)?)),
        }
    }

    /// Puts the root of a tree in the place of the directory that it is below.
    fn instead(&self, (parent, name): (&Inode, &OsStr), found: Found, is_just_made: bool) -> io::Result<Found> {
        if found.inode.kind() != FileType::Directory {
            return Ok(found);
        }
        let Some(tree) = self.0.rooted_at(&found.inode)? else {
            if is_just_made {
                self.0.unmarked.note(&found.attributes);
                self.0.met.meet(found.inode.ino());
                return Ok(found);
            }
            self.0.wait_for_mark(&found.inode, &found.attributes)?;
            if !self.0.is_to_lease(&found.inode) {
                return Ok(found);
            }
            return match self.0.lease(found.inode)? {
                Some(tree) => root_of(&tree),
                None => self.below().lookup(parent, name),
            };
        };
        root_of(&tree)
    }

    /// Returns the tree whose root has this name below.
    fn named(&self, parent: &Inode, name: &OsStr) -> io::Result<Option<Arc<OpenTree>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        match self.below().lookup(parent, name) {
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            found => {
                let inode = found?.inode;
                if inode.kind() == FileType::Directory { self.0.rooted_at(&inode) } else { Ok(None) }
            }
        }
    }

    /// Prepares for the removal of a tree's root: the global store loses what the tree has lost. `ENOTEMPTY` if names are left.
    fn empty(&self, tree: &OpenTree) -> io::Result<()> {
        self.read(tree, &tree.tree.root()?)?;
        if !tree.is_bare()? {
            return Err(Errno::NOTEMPTY.into());
        }
        let how = Applying { interrupted: &is_interrupted, ..Applying::by(&self.0.policy_of(tree)) };
        let report = tree.apply(&how, None)?;
        match report.stuck.first() {
            Some(stuck) => Err(io::Error::from_raw_os_error(stuck.errno)),
            None if report.interrupted => Err(Errno::INTR.into()),
            None => Ok(()),
        }
    }

    /// Renames below, where a tree's root may be moved or replaced.
    fn rename_below(
        &self,
        caller: &Caller,
        from: (&Inode, &OsStr),
        to: (&Inode, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        let keeps = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
        let replaces = !RenameFlags::from_bits_retain(flags).intersects(keeps);
        let replaced = if replaces { self.named(to.0, to.1)? } else { None };
        let moved = if replaced.is_some() { self.named(from.0, from.1)? } else { None };
        let replaced = replaced.filter(|tree| moved.as_ref().is_none_or(|moved| !Arc::ptr_eq(tree, moved)));
        if let Some(tree) = &replaced {
            self.empty(tree)?;
        }
        self.below().rename(caller, from, to, flags)?;
        replaced.map_or(Ok(()), |tree| self.0.end(&tree))
    }
}

/// Returns the root of a tree, as a lookup finds it.
fn root_of(tree: &OpenTree) -> io::Result<Found> {
    let inode = tree.tree.root()?;
    let attributes = tree.tree.attributes(&inode)?;
    Ok(Found { inode, attributes })
}

/// An inode of the namespace below.
pub(crate) enum Lowered<'a> {
    Same(&'a Inode),
    Other(Arc<Inode>),
}

impl Lowered<'_> {
    pub(crate) fn of(&self) -> &Inode {
        match self {
            Lowered::Same(inode) => inode,
            Lowered::Other(inode) => inode,
        }
    }
}

impl Names for TreesNamespace {
    fn root(&self) -> io::Result<Inode> {
        let root = self.below().root()?;
        self.0.rooted_at(&root)?.map_or(Ok(root), |tree| tree.tree.root())
    }

    fn lookup(&self, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        let below = |below: &dyn Namespace, parent: &Inode| {
            let just_made = JustMade::take(parent, name);
            if let Some(tree) = just_made.as_ref().and_then(|made| made.tree.as_ref())
                && !tree.is_returned()
            {
                // The store need not be asked who that is.
                return root_of(tree);
            }
            self.instead((parent, name), below.lookup(parent, name)?, just_made.is_some())
        };
        self.ask(parent, |tree| self.lookup_in(tree, parent, name), below)
    }

    fn create(&self, caller: &Caller, parent: &Inode, new: NewFile<'_>) -> io::Result<(Found, Arc<dyn Anchor>)> {
        let below = |below: &dyn Namespace, parent: &Inode| below.create(caller, parent, new);
        let in_tree = |tree: &OpenTree| {
            self.read(tree, parent)?;
            tree.tree.create(caller, parent, new)
        };
        self.ask(parent, in_tree, below)
    }

    fn make(&self, caller: &Caller, parent: &Inode, name: &OsStr, new: NewName<'_>) -> io::Result<()> {
        let make = |below: &dyn Namespace, parent: &Inode| {
            below.make(caller, parent, name, new)?;
            let path = below.path_of(parent).unwrap_or_default();
            if matches!(new, NewName::Directory(_)) {
                let is_wanted = self.0.wants(caller, &path.join(name));
                let tree = if is_wanted { self.0.begin(caller, parent, name) } else { None };
                JustMade::note(parent, name, tree);
            }
            Ok(())
        };
        let in_tree = |tree: &OpenTree| {
            self.read(tree, parent)?;
            tree.tree.make(caller, parent, name, new)
        };
        self.ask(parent, in_tree, make)
    }

    fn link(&self, caller: &Caller, inode: &Inode, parent: &Inode, name: &OsStr) -> io::Result<()> {
        if delegation::node_of_key(inode.key()).is_none() && self.link_outside(caller, inode, parent, name)?.is_some() {
            return Ok(());
        }
        let below = |below: &dyn Namespace, inode: &Inode, parent: &Inode| below.link(caller, inode, parent, name);
        let in_tree = |tree: &OpenTree| {
            self.read(tree, parent)?;
            tree.tree.link(caller, inode, parent, name)
        };
        self.ask_both((inode, parent), in_tree, below)
    }

    fn remove(&self, caller: &Caller, parent: &Inode, name: &OsStr, what: NameKind) -> io::Result<()> {
        let remove = |below: &dyn Namespace, parent: &Inode| {
            let tree = if what == NameKind::Directory { self.named(parent, name)? } else { None };
            if let Some(tree) = &tree {
                self.empty(tree)?;
            }
            below.remove(caller, parent, name, what)?;
            tree.map_or(Ok(()), |tree| self.0.end(&tree))
        };
        self.ask(parent, |tree| self.remove_in(tree, caller, (parent, name), what), remove)
    }

    fn rename(&self, caller: &Caller, from: (&Inode, &OsStr), to: (&Inode, &OsStr), flags: u32) -> io::Result<()> {
        let in_tree = |tree: &OpenTree| self.rename_in(tree, caller, from, to, flags);
        self.ask_both((from.0, to.0), in_tree, |_, old, new| {
            self.note_named(from, old)?;
            self.note_named(to, new)?;
            self.rename_below(caller, (old, from.1), (new, to.1), flags)
        })
    }

    fn read_symlink(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        self.ask(inode, |tree| tree.tree.read_symlink(inode), |below, inode| below.read_symlink(inode))
    }

    fn open_directory(&self, caller: &Caller, inode: &Inode) -> io::Result<Box<dyn OpenDirectory>> {
        let below = |below: &dyn Namespace, inode: &Inode| below.open_directory(caller, inode);
        let in_tree = |tree: &OpenTree| {
            self.read(tree, inode)?;
            tree.tree.open_directory(caller, inode)
        };
        self.ask(inode, in_tree, below)
    }

    fn find(&self, identity: &Identity, hint: &Path, since: KnownSince) -> io::Result<Option<Inode>> {
        if delegation::node_of_key(identity).is_some() {
            return Ok(self.0.of_identity(identity).and_then(|(tree, number)| tree.tree.inode(number)));
        }
        let Some(inode) = self.below().find(identity, hint, since)? else { return Ok(None) };
        match self.0.rooted_at(&inode)? {
            Some(tree) => Ok(Some(tree.tree.root()?)),
            None => {
                if inode.kind() == FileType::Directory {
                    self.0.met.meet(inode.ino());
                }
                Ok(Some(inode))
            }
        }
    }

    fn path_of(&self, inode: &Inode) -> Option<PathBuf> {
        let Some((tree, node)) = self.0.of(inode).ok()? else { return self.below().path_of(inode) };
        if let Ok(Some(lowered)) = tree.lowered(node) {
            return self.below().path_of(&lowered);
        }
        let inside = tree.tree.path_of(inode)?;
        let root = self.below().path_of(&tree.root)?;
        Some(if inside.as_os_str().is_empty() { root } else { root.join(inside) })
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()?;
        self.below().sync()
    }
}
