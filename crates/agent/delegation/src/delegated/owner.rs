//! Calls of the owner of a delegated tree, who notes content and brings changes to the global store.

use std::io;
use std::sync::Arc;

use concurrency::MutexGuard;
use global_store::Anchor;
use namespace::Inode;
use rustix::io::Errno;
use types::Identity;

use super::DelegatedTree;
use super::anchor::NodeAnchor;
use crate::log::{FileUse, NameLog};
use crate::state::{BelowState, LogRecord, NodeKind, NodeNumber, NodeState};
use crate::tree::PendingNode;

/// Outcome for a node whose changes were applied to the global store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The global store has all.
    Done,
    /// The node was changed meanwhile, or its last name was removed. It is pending again.
    ChangedMeanwhile,
    /// The node is gone, and nothing is recorded of it: what the global store has of it is to be removed.
    Gone,
}

impl DelegatedTree {
    /// Returns another handle of this tree.
    pub fn share(&self) -> DelegatedTree {
        DelegatedTree { shared: Arc::clone(&self.shared) }
    }

    /// Ends the time in which nobody but this agent changes the tree's files. Comes before anybody else may change them. Whoever
    /// trusted what this tree told has to forget it then.
    pub fn end_exclusivity(&self) {
        self.shared.exclusivity.end();
    }

    /// Returns the number of an inode's node. `ESTALE` for an inode of another namespace.
    pub fn number_of(&self, inode: &Inode) -> io::Result<NodeNumber> {
        Ok(self.shared.held(inode)?.number)
    }

    /// Returns the state of a node, which may have no name any more; `None` if it is gone.
    pub fn state(&self, number: NodeNumber) -> Option<NodeState> {
        let inner = self.shared.inner.read();
        inner.tree.slot_of(number).map(|slot| inner.tree.state(slot))
    }

    /// Returns an inode of a node, with or without a name; `None` if it is gone.
    pub fn inode(&self, number: NodeNumber) -> Option<Inode> {
        // A node that is to be freed may be held again only under the lock for changes.
        let inner = self.shared.change();
        inner.tree.slot_of(number).map(|slot| self.shared.inode(&inner.tree, slot))
    }

    /// Returns an anchor of a regular file. Errors: `EISDIR` or `EINVAL` for others.
    pub fn anchor(&self, inode: &Inode) -> io::Result<Arc<dyn Anchor>> {
        let held = self.shared.held(inode)?;
        match self.shared.inner.read().tree.member(held.slot).kind {
            NodeKind::File => {}
            NodeKind::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(Arc::new(NodeAnchor::new(held)))
    }

    /// Returns up to `most` nodes whose state differs from what the global store has, by rising stamps; those after `after`.
    pub fn pending(&self, after: Option<PendingNode>, most: usize) -> Vec<PendingNode> {
        self.shared.inner.read().tree.pending(after, most)
    }

    /// Returns a node if its state differs from what the global store has.
    pub fn pending_node(&self, number: NodeNumber) -> Option<PendingNode> {
        self.shared.inner.read().tree.pending_one(number)
    }

    /// Waits until no apply of this tree runs, and keeps others from beginning.
    pub(crate) fn apply_alone(&self) -> MutexGuard<'_, ()> {
        self.shared.applying.lock()
    }

    /// Number of nodes that the global store lacks changes of.
    pub fn pending_len(&self) -> usize {
        self.shared.inner.read().tree.pending_len()
    }

    /// Records what the global store has of a node, or is about to get, while the node stays pending. To be called before anything
    /// is made there: who removes the node then leaves a tombstone. Returns false if the node is gone.
    pub fn note_below(&self, number: NodeNumber, below: BelowState) -> io::Result<bool> {
        let mut inner = self.shared.change();
        let Some(slot) = inner.tree.slot_of(number).filter(|slot| !inner.tree.is_forgotten(*slot)) else {
            return Ok(false);
        };
        let mut draft = inner.draft(&self.shared);
        let known = inner.tree.state(slot);
        let below = if known.below.is_doubtful() { below.doubted() } else { below };
        let state = NodeState { below, ..known };
        draft.records.push(LogRecord::State(Box::new(state)));
        inner.commit(&self.shared, draft)?;
        Ok(true)
    }

    /// Notes that the global store has the state in which [`pending`](DelegatedTree::pending) has found a node.
    pub fn applied(&self, node: PendingNode, below: BelowState) -> io::Result<Applied> {
        let mut inner = self.shared.change();
        let tree = &inner.tree;
        let Some(slot) = tree.slot_of(node.number).filter(|slot| !tree.is_forgotten(*slot)) else {
            return Ok(Applied::Gone);
        };
        let mut draft = inner.draft(&self.shared);
        let (is_root, mut state) = (node.number == NodeNumber::ROOT, NodeState { below, ..tree.state(slot) });
        let is_done = tree.member(slot).changes == node.changes && (is_root || !state.names.is_empty());
        state.stamp = if is_done { 0 } else { draft.sequence };
        if !is_done {
            state.below = state.below.doubted();
        }
        draft.records.push(LogRecord::State(Box::new(state)));
        inner.commit(&self.shared, draft)?;
        Ok(if is_done { Applied::Done } else { Applied::ChangedMeanwhile })
    }

    /// Notes that the global store has nothing more of a node without names, which needs no tombstone any more. Errors: `EBUSY` if
    /// the node has a name; those of the log.
    pub fn forgotten(&self, number: NodeNumber) -> io::Result<()> {
        let mut inner = self.shared.change();
        let Some(slot) = inner.tree.slot_of(number).filter(|slot| !inner.tree.is_forgotten(*slot)) else {
            return Ok(());
        };
        if number == NodeNumber::ROOT || inner.tree.member(slot).names() > 0 {
            return Err(Errno::BUSY.into());
        }
        let mut draft = inner.draft(&self.shared);
        draft.records.push(LogRecord::Forgotten(number));
        inner.commit(&self.shared, draft)
    }

    /// Ends all changes of nodes with names, unless the global store lacks some: those fail with `ESTALE` from then on. Returns
    /// whether that is so now.
    pub fn freeze(&self) -> bool {
        let mut inner = self.shared.change();
        inner.is_frozen |= inner.tree.pending_len() == 0;
        inner.is_frozen
    }

    /// Ends all changes of nodes with names, whatever the global store lacks: they fail with `ESTALE` from then on.
    pub fn abandon(&self) {
        self.shared.change().is_frozen = true;
    }

    /// Returns the identity by which programs' requests name a node.
    pub fn key(&self, number: NodeNumber) -> Identity {
        self.shared.key(number)
    }

    /// Whether anybody holds an inode or an anchor of the tree. Takes time in proportion to the tree.
    pub fn is_held(&self) -> bool {
        self.shared.holders.has_any()
    }

    /// Returns the states of all nodes that the log has, in no order.
    pub fn states(&self) -> Vec<NodeState> {
        self.shared.inner.read().tree.states().collect()
    }

    /// Number of nodes and of second and further names, held ones without a name included.
    pub fn len(&self) -> usize {
        self.shared.change().tree.len()
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Returns the log.
    pub fn log(&self) -> &NameLog {
        &self.shared.log
    }

    /// Returns a number that grows with each change by programs or an apply, and with nothing else.
    pub fn changes(&self) -> u64 {
        let inner = self.shared.inner.read();
        // Whoever logs holds this lock.
        self.shared.log.end() - inner.unchanging
    }

    /// Returns the log's files and the number of records in each that are still needed, the oldest first.
    pub fn log_files(&self) -> Vec<(FileUse, u64)> {
        let inner = self.shared.inner.read();
        self.shared.log.files().into_iter().map(|file| (file, inner.tree.live(file.number))).collect()
    }

    /// Checks everything that must be true of the index at any time, for tests.
    ///
    /// # Panics
    ///
    /// If something is not.
    pub fn assert_invariants(&self) {
        self.shared.change().tree.assert_invariants();
    }
}
