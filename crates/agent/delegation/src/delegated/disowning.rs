//! Nodes that the tree gives up, and nodes that the global store has lost.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use global_store::hidden::is_hidden;

use super::{DelegatedTree, Draft, Inner};
use crate::limits;
use crate::state::{BelowCopy, BelowState, LogRecord, NodeKind, NodeName, NodeNumber, NodeState};

/// Whether a name in the store is one that only an apply gives.
fn is_of_apply(name: &[u8]) -> bool {
    is_hidden(OsStr::from_bytes(name))
}

impl Inner {
    /// Returns a node and all that is below it by first names, each after what is in it.
    fn with_all_below(&self, slot: u32) -> Vec<u32> {
        let (mut found, mut ahead, mut met) = (Vec::new(), vec![slot], HashSet::from([slot]));
        while let Some(at) = ahead.pop() {
            found.push(at);
            let inside = self.tree.children_after(at, 0).map(|child| child.node);
            ahead.extend(inside.filter(|child| met.insert(*child)));
        }
        found.reverse();
        found
    }

    /// Returns those of some directories, each after what is in it, that the store may have under a hidden name or in such a
    /// directory: what waits there was made by an apply.
    fn hidden_directories(&self, slots: &[u32]) -> HashSet<NodeNumber> {
        let mut hidden = HashSet::new();
        for state in slots.iter().rev().map(|slot| self.tree.state(*slot)) {
            let BelowState::At(copy) = &state.below else { continue };
            let is_unseen = |name: &NodeName| is_of_apply(name.name.as_bytes()) || hidden.contains(&name.parent);
            if state.kind == NodeKind::Directory && copy.names.iter().any(is_unseen) {
                hidden.insert(state.number);
            }
        }
        hidden
    }
}

impl DelegatedTree {
    /// Returns the numbers of a node and of all nodes below it, each after those that are in it. Nothing if it is gone.
    pub fn with_all_below(&self, number: NodeNumber) -> Vec<NodeNumber> {
        let inner = self.shared.inner.read();
        let Some(slot) = inner.tree.slot_of(number) else { return Vec::new() };
        inner.with_all_below(slot).into_iter().map(|slot| inner.tree.member(slot).number).collect()
    }

    /// Drops a node and all that is below it, as if the tree had never had them: what the global store has under names stays there.
    /// Files that have names elsewhere in the tree keep those. Returns the states of the nodes that were dropped. The root stays.
    ///
    /// Errors: those of the log. Then some nodes may be dropped.
    pub fn disown(&self, number: NodeNumber) -> io::Result<Vec<NodeState>> {
        // An apply that has begun would go on with what is dropped.
        let _alone = self.apply_alone();
        let mut inner = self.shared.change();
        let Some(slot) = inner.tree.slot_of(number) else { return Ok(Vec::new()) };
        let slots = inner.with_all_below(slot);
        let within: HashSet<NodeNumber> = slots.iter().map(|slot| inner.tree.member(*slot).number).collect();
        let unseen = inner.hidden_directories(&slots);
        let mut dropped = Vec::new();
        for some in slots.chunks(limits::TRANSACTION_RECORDS_MAX) {
            let mut draft = inner.draft(&self.shared);
            for state in some.iter().map(|slot| inner.tree.state(*slot)).filter(|one| one.number != NodeNumber::ROOT) {
                dropped.extend(draft.disown(state, number, &within, &unseen));
            }
            inner.commit(&self.shared, draft)?;
        }
        Ok(dropped)
    }

    /// Notes that the global store lacks all of some nodes, which it had: the next apply makes them anew where they are not found.
    pub fn require_again(&self, numbers: &[NodeNumber]) -> io::Result<()> {
        let _alone = self.apply_alone();
        let mut inner = self.shared.change();
        for some in numbers.chunks(limits::TRANSACTION_RECORDS_MAX) {
            let mut draft = inner.draft(&self.shared);
            for slot in some.iter().filter_map(|number| inner.tree.slot_of(*number)) {
                let mut state = inner.tree.state(slot);
                state.below = state.below.doubted();
                draft.change(state);
            }
            inner.commit(&self.shared, draft)?;
        }
        Ok(())
    }
}

impl Draft {
    /// Adds the loss of those names of a node that are in dropped directories, or of all if it is the one that is dropped. Returns
    /// the state of before if no name stays.
    /// `unseen`: directories in which what is pending was made by applies, and nobody has seen it.
    fn disown(
        &mut self,
        before: NodeState,
        top: NodeNumber,
        within: &HashSet<NodeNumber>,
        unseen: &HashSet<NodeNumber>,
    ) -> Option<NodeState> {
        let mut state = before.clone();
        state.names.retain(|name| before.number != top && !within.contains(&name.parent));
        if let BelowState::At(copy) = &before.below {
            let mut copy = BelowCopy::clone(copy);
            let is_pending = before.stamp != 0;
            let is_left_over =
                |name: &NodeName| is_of_apply(name.name.as_bytes()) || is_pending && unseen.contains(&name.parent);
            copy.names.retain(|name| is_left_over(name) || state.names.contains(name));
            state.below = BelowState::At(Arc::new(copy));
        }
        let has_leftover = matches!(&state.below, BelowState::At(copy) if !copy.names.is_empty());
        match (state.names.is_empty(), has_leftover) {
            (true, false) => self.records.push(LogRecord::Forgotten(state.number)),
            // What has a hidden name in the store is removed by the next apply.
            _ => self.change(state.clone()),
        }
        state.names.is_empty().then_some(before)
    }
}
