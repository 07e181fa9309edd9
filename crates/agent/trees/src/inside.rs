//! Names in trees: those of a leased tree are read first, and some of its files the global store answers for.

use std::ffi::OsStr;
use std::io;

use data_store::is_interrupted;
use delegation::NodeNumber;
use namespace::{Caller, Found, Inode, NameKind, Names};
use types::HasErrno;

use crate::applying::Applying;
use crate::names::TreesNamespace;
use crate::open_tree::OpenTree;

impl TreesNamespace {
    /// Finds a name in a tree. A file for which the global store answers is found there.
    pub(crate) fn lookup_in(&self, tree: &OpenTree, parent: &Inode, name: &OsStr) -> io::Result<Found> {
        self.read(tree, parent)?;
        let found = tree.tree.lookup(parent, name)?;
        match tree.outside_named(parent, name)? {
            None => Ok(found),
            Some(node) => {
                let inode = tree.file_below(node)?;
                let attributes = self.below().attributes(&inode)?;
                tree.note_outside(inode.identity(), node);
                Ok(Found { inode, attributes })
            }
        }
    }

    /// Reads the names in a directory of a tree, unless that was done.
    pub(crate) fn read(&self, tree: &OpenTree, directory: &Inode) -> io::Result<()> {
        if tree.is_leased() && tree.tree.is_unread(directory)? {
            tree.read_names(directory, self.0.policy_of(tree).name_streams)?;
        }
        Ok(())
    }

    /// Reads a directory of a tree, and the one that has this name in it: who removes or replaces it asks whether it is empty.
    pub(crate) fn read_both(&self, tree: &OpenTree, parent: &Inode, name: &OsStr) -> io::Result<()> {
        self.read(tree, parent)?;
        match tree.directory_named(parent, name)? {
            Some(directory) => self.read(tree, &directory),
            None => Ok(()),
        }
    }

    /// Removes a name in a tree.
    pub(crate) fn remove_in(
        &self,
        tree: &OpenTree,
        caller: &Caller,
        (parent, name): (&Inode, &OsStr),
        what: NameKind,
    ) -> io::Result<()> {
        self.read_both(tree, parent, name)?;
        let outside = tree.outside_named(parent, name)?;
        tree.tree.remove(caller, parent, name, what)?;
        self.bring(tree, outside);
        Ok(())
    }

    /// Renames in a tree.
    pub(crate) fn rename_in(
        &self,
        tree: &OpenTree,
        caller: &Caller,
        from: (&Inode, &OsStr),
        to: (&Inode, &OsStr),
        flags: u32,
    ) -> io::Result<()> {
        self.read(tree, from.0)?;
        self.read_both(tree, to.0, to.1)?;
        let outside = [tree.outside_named(from.0, from.1)?, tree.outside_named(to.0, to.1)?];
        if let [Some(one), Some(other)] = outside
            && tree.is_one_file(one, other)
        {
            // Two names of one file stay as they are.
            return Ok(());
        }
        tree.tree.rename(caller, from, to, flags)?;
        self.bring(tree, outside.into_iter().flatten());
        Ok(())
    }

    /// Gives a file for which the global store answers another name in the tree that has it. `None`: no tree has both.
    pub(crate) fn link_outside(
        &self,
        caller: &Caller,
        inode: &Inode,
        parent: &Inode,
        name: &OsStr,
    ) -> io::Result<Option<()>> {
        let Some(tree) = self.live(parent)?.filter(|tree| tree.is_leased()) else { return Ok(None) };
        let outside = tree.outside_node(inode.identity()).and_then(|node| Some((node, tree.tree.inode(node)?)));
        let Some((node, inode)) = outside else { return Ok(None) };
        self.read(&tree, parent)?;
        match tree.tree.link(caller, &inode, parent, name) {
            // It was given back meanwhile, or has lost its name.
            Err(error) if matches!(error.errno(), Some(libc::ESTALE | libc::ENOENT)) => Ok(None),
            linked => {
                linked?;
                self.bring(&tree, [node]);
                Ok(Some(()))
            }
        }
    }

    /// Brings the names of files at once for which the global store answers: who asks it must see their names and links. What is
    /// not possible now is done with the rest of the tree.
    pub(crate) fn bring(&self, tree: &OpenTree, nodes: impl IntoIterator<Item = NodeNumber>) {
        let mut policy = None;
        for node in nodes {
            let policy = policy.get_or_insert_with(|| self.0.policy_of(tree));
            // What fails is noted there.
            let _ = tree.apply(&Applying { interrupted: &is_interrupted, ..Applying::by(policy) }, Some(node));
        }
    }
}
