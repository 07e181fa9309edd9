//! Calls about two names, where a tree may have its border between them.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use data_store::is_interrupted;
use namespace::{Inode, Names, Namespace};
use rustix::io::Errno;
use types::HasErrno;

use super::TreesNamespace;
use crate::applying::Applying;
use crate::open_tree::OpenTree;

impl TreesNamespace {
    /// Asks about two inodes: their common tree, or the namespace below. Trees with a border between the two are given back first;
    /// `EXDEV` if that is not possible now.
    pub(super) fn ask_both<T>(
        &self,
        (one, other): (&Inode, &Inode),
        in_tree: impl Fn(&OpenTree) -> io::Result<T>,
        below: impl Fn(&dyn Namespace, &Inode, &Inode) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let trees = [self.live(one)?, self.live(other)?];
            match &trees {
                [Some(tree), Some(same)] if Arc::ptr_eq(tree, same) => match in_tree(tree) {
                    Err(error) if error.errno() == Some(libc::ESTALE) && tree.is_returned() => {}
                    answer => return answer,
                },
                [None, None] => {
                    let [one, other] = [self.lowered(one)?, self.lowered(other)?];
                    return below(self.below(), one.of(), other.of());
                }
                _ => trees.iter().flatten().try_for_each(|tree| self.give_back(tree))?,
            }
        }
    }

    fn give_back(&self, tree: &Arc<OpenTree>) -> io::Result<()> {
        let how = Applying { interrupted: &is_interrupted, ..Applying::by(&self.0.policy_of(tree)) };
        match self.0.give_back(tree, &how, false)? {
            None => Ok(()),
            Some(report) if report.interrupted => Err(Errno::INTR.into()),
            Some(_) => Err(Errno::XDEV.into()),
        }
    }

    /// Finds what has a name in a tree that was given back, while it has the name: it is asked about after a rename as well.
    pub(super) fn note_named(&self, (parent, name): (&Inode, &OsStr), below: &Inode) -> io::Result<()> {
        let Some((tree, _)) = self.0.of(parent)? else { return Ok(()) };
        let Ok(found) = tree.tree.lookup(parent, name) else { return Ok(()) };
        let Some((_, node)) = self.0.of(&found.inode)? else { return Ok(()) };
        match self.below().lookup(below, name) {
            Ok(there) => tree.note_lowered(node, there.inode),
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
