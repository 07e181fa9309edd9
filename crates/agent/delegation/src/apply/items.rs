//! Nodes that an apply is to bring to the store.

use std::collections::HashSet;
use std::sync::Arc;

use namespace::Inode;
use types::Identity;

use super::Run;
use crate::state::{BelowCopy, BelowState, DataPlace, NodeKind, NodeName, NodeNumber, NodeState};
use crate::tree::PendingNode;

/// Progress of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Todo,
    Doing,
    Placed,
    Failed,
}

/// A pending node.
pub(super) struct Item {
    pub pending: PendingNode,
    pub state: Arc<NodeState>,
    pub progress: Progress,
    /// Whether `names` and `inode` are what the store has, and not only what the log says.
    pub located: bool,
    pub names: Vec<NodeName>,
    pub identity: Option<Identity>,
    pub inode: Option<Arc<Inode>>,
    /// Record of the node in the store, as the log has it. Its names are all where the node may be if the store's machine crashes.
    pub noted: Option<Arc<BelowCopy>>,
    /// Whether the store's content may be other than size and time tell, since an earlier apply.
    pub doubtful: bool,
    /// Whether this apply has created the node with all its attributes.
    pub dressed: bool,
    /// Whether this apply has created the node.
    pub is_made: bool,
    /// Whether this apply has given a directory its attributes.
    pub is_finished: bool,
    /// Whether the progress of this apply counts the node among those that are left.
    pub is_left: bool,
}

impl Item {
    fn new(pending: PendingNode, state: NodeState) -> Item {
        let noted = if let BelowState::At(copy) = &state.below { Some(Arc::clone(copy)) } else { None };
        let (identity, names, doubtful) = match noted.as_deref().cloned() {
            Some(BelowCopy { identity, names, doubtful }) => (identity, names, doubtful),
            None => (None, Vec::new(), false),
        };
        Item {
            pending,
            state: Arc::new(state),
            progress: Progress::Todo,
            located: false,
            names,
            identity,
            inode: None,
            noted,
            doubtful,
            dressed: false,
            is_made: false,
            is_finished: false,
            is_left: false,
        }
    }

    pub fn is_tombstone(&self) -> bool {
        self.state.names.is_empty() && self.state.number != NodeNumber::ROOT
    }

    pub fn is_directory(&self) -> bool {
        self.state.kind == NodeKind::Directory
    }

    /// Closes the node in the store. It is looked for when it is needed again.
    pub fn close(&mut self) {
        self.located &= self.inode.take().is_none();
    }

    /// Bytes of content that the store may lack.
    pub fn bytes(&self) -> u64 {
        if has_content(&self.state) && !self.is_tombstone() { self.state.size } else { 0 }
    }
}

/// Whether this agent has a file's content, which the store may lack.
pub(super) fn has_content(state: &NodeState) -> bool {
    matches!(state.data, DataPlace::Replica(_) | DataPlace::Packed(_))
}

impl Run<'_> {
    /// Takes up all pending nodes.
    pub(super) fn load_all(&mut self) {
        if !std::mem::replace(&mut self.has_all, true) {
            let pending = self.hands.tree.pending(None, usize::MAX);
            pending.into_iter().for_each(|node| self.load(node));
        }
    }

    /// Takes up a node and all directories that it needs, as far as they are pending.
    pub(super) fn load_with_directories(&mut self, number: NodeNumber) {
        let (mut wanted, mut met) = (vec![number], HashSet::from([number]));
        while let Some(number) = wanted.pop() {
            let Some(state) = self.hands.tree.state(number) else { continue };
            let below = if let BelowState::At(copy) = &state.below { copy.names.clone() } else { Vec::new() };
            let parents = state.names.iter().chain(&below).map(|name| name.parent);
            wanted.extend(parents.filter(|parent| met.insert(*parent)));
            if let Some(pending) = self.hands.tree.pending_node(number) {
                self.load(pending);
            }
        }
    }

    fn load(&mut self, pending: PendingNode) {
        if self.items.contains_key(&pending.number) {
            return;
        }
        let Some(state) = self.hands.tree.state(pending.number) else { return };
        let item = Item::new(pending, state);
        if let Some(identity) = &item.identity {
            self.owners.insert(identity.clone(), pending.number);
            if item.is_tombstone() && !item.is_directory() {
                self.vacated.extend(item.names.iter().map(|name| (name.clone(), identity.clone())));
            }
        }
        self.order.push(pending.number);
        self.items.insert(pending.number, item);
    }
}
