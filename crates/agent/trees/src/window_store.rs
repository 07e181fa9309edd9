//! Windows on files of trees: where their records go, also those that a killed agent left.

use std::io;
use std::sync::Arc;

use config::Policy;
use data_store::{LeftFile, WindowFile, WindowStore, WindowUsage};
use delegation::{DelegatedTree, NodeNumber, node_of_key};
use global_store::Anchor;
use rustix::io::Errno;
use types::{ByteRange, HasErrno, Identity};

use crate::data::{DataHolder, TreesData};
use crate::left_files::LeftFiles;
use crate::registry::Trees;

impl WindowStore for TreesData {
    fn find_left(&self, identity: &Identity) -> io::Result<LeftFile> {
        let Some((log, node)) = node_of_key(identity) else {
            let below = self.below.extensions().windows;
            return below.map_or(Ok(LeftFile::Below), |below| below.find_left(identity));
        };
        if let Some((tree, node)) = self.trees.of_identity(identity) {
            return find_in(&tree.tree, node);
        }
        match self.trees.left_files(&log) {
            Ok(Some(left)) => find_in(&left.tree, node),
            Ok(None) => Ok(LeftFile::Gone),
            Err(error) if error.errno() == Some(libc::EUCLEAN) => Ok(LeftFile::Lost),
            Err(error) => Err(error),
        }
    }

    fn open_for_windows(
        &self,
        anchor: Arc<dyn Anchor>,
        policy: &Arc<Policy>,
        usage: WindowUsage,
    ) -> io::Result<WindowFile> {
        if let Some((log, node)) = node_of_key(anchor.identity()).filter(|_| usage == WindowUsage::Replay)
            && let Some(left) = self.trees.left_open(&log)
        {
            return left.files.open_for_windows(node, policy, usage);
        }
        match (self.holder(anchor.identity())?, self.below.extensions().windows) {
            (DataHolder::Tree(tree, node), Some(_)) => match tree.files.open_for_windows(node, policy, usage) {
                // The tree was given back meanwhile.
                Err(error) if error.errno() == Some(libc::ESTALE) => Err(Errno::OPNOTSUPP.into()),
                opened => opened,
            },
            (DataHolder::Below(None), Some(windows)) => windows.open_for_windows(anchor, policy, usage),
            // A window is recorded with the identity that its program's kernel knows. The next agent does not know that of a tree
            // that was given back, so what a kill leaves in the window would be lost.
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }

    fn changed_since(&self, identity: &Identity, client: &[u8; 16]) -> io::Result<Vec<ByteRange>> {
        self.below.extensions().windows.map_or(Ok(Vec::new()), |windows| windows.changed_since(identity, client))
    }
}

/// Finds a regular file with a name.
fn find_in(tree: &DelegatedTree, node: NodeNumber) -> io::Result<LeftFile> {
    let is_there = tree.content(node).is_some_and(|content| content.has_name);
    match tree.inode(node).filter(|_| is_there) {
        Some(inode) => tree.anchor(&inode).map(LeftFile::Here),
        None => Ok(LeftFile::Gone),
    }
}

impl Trees {
    /// Opens the files of a tree that could not be opened, until [`begin_work`](Trees::begin_work). `None` if there is no such tree. `EUCLEAN` if it
    /// is one whose log cannot be used, or may be.
    pub(crate) fn left_files(&self, log: &[u8; 16]) -> io::Result<Option<Arc<LeftFiles>>> {
        if let Some(open) = self.left_open(log) {
            return Ok(Some(open));
        }
        let mut unreadable = None;
        for tree in &*self.unopened.lock() {
            match tree.log_id() {
                Ok(id) if id.as_ref() == Some(log) => {
                    let files = Arc::new(tree.open_files()?);
                    self.open_left.lock().insert(*log, Arc::clone(&files));
                    return Ok(Some(files));
                }
                Ok(_) => {}
                Err(error) if error.errno() == Some(libc::EUCLEAN) => unreadable = Some(error),
                Err(error) => return Err(error),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// Returns the files of a tree that could not be opened, if they are open.
    pub(crate) fn left_open(&self, log: &[u8; 16]) -> Option<Arc<LeftFiles>> {
        self.open_left.lock().get(log).cloned()
    }
}
