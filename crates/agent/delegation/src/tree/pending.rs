//! Nodes whose state differs from what the global store has, in the order in which they began to.

use super::Tree;
use super::slots::NONE;
use crate::state::NodeNumber;

/// A node that the global store lacks changes of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingNode {
    /// The node.
    pub number: NodeNumber,
    /// Sequence of the first change that the global store lacks.
    pub stamp: u64,
    /// Which state it is in: [`applied`](crate::DelegatedTree::applied) tells by this whether the node was changed meanwhile.
    pub changes: u32,
}

/// A list through the nodes, by rising stamps.
pub(super) struct PendingList {
    first: u32,
    last: u32,
    pub len: usize,
}

impl Default for PendingList {
    fn default() -> PendingList {
        PendingList { first: NONE, last: NONE, len: 0 }
    }
}

impl Tree {
    /// Sets the stamp of a node, 0 for none. A new stamp is larger than all others.
    pub(super) fn set_stamp(&mut self, slot: u32, stamp: u64) {
        let before = std::mem::replace(&mut self.slots.member_mut(slot).stamp, stamp);
        if before == stamp {
            return;
        }
        if before != 0 {
            self.leave_pending(slot);
        }
        if stamp != 0 {
            self.join_pending(slot);
        }
    }

    fn join_pending(&mut self, slot: u32) {
        let last = std::mem::replace(&mut self.pending.last, slot);
        let member = self.slots.member_mut(slot);
        (member.pending_before, member.pending_after) = (last, NONE);
        match last {
            NONE => self.pending.first = slot,
            last => self.slots.member_mut(last).pending_after = slot,
        }
        self.pending.len += 1;
    }

    fn leave_pending(&mut self, slot: u32) {
        let member = self.slots.member_mut(slot);
        let (before, after) = (member.pending_before, member.pending_after);
        (member.pending_before, member.pending_after) = (NONE, NONE);
        match before {
            NONE => self.pending.first = after,
            before => self.slots.member_mut(before).pending_after = after,
        }
        match after {
            NONE => self.pending.last = before,
            after => self.slots.member_mut(after).pending_before = before,
        }
        self.pending.len -= 1;
    }

    pub(super) fn pending_slots(&self) -> impl Iterator<Item = u32> {
        let next = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(next(self.pending.first), move |slot| next(self.slots.member(*slot).pending_after))
    }

    fn pending_node(&self, slot: u32) -> PendingNode {
        let member = self.slots.member(slot);
        PendingNode { number: member.number, stamp: member.stamp, changes: member.changes }
    }

    /// Returns a node if it is pending.
    pub fn pending_one(&self, number: NodeNumber) -> Option<PendingNode> {
        self.slot_of(number).map(|slot| self.pending_node(slot)).filter(|node| node.stamp != 0)
    }

    /// Number of nodes that the global store lacks changes of.
    pub fn pending_len(&self) -> usize {
        self.pending.len
    }

    /// Returns up to `most` pending nodes that follow `after`, in the order of their stamps.
    pub fn pending(&self, after: Option<PendingNode>, most: usize) -> Vec<PendingNode> {
        let Some(after) = after else {
            return self.pending_slots().take(most).map(|slot| self.pending_node(slot)).collect();
        };
        // Goes on from the node itself where it still has its place, or else searches.
        let place = self.slot_of(after.number).filter(|slot| self.slots.member(*slot).stamp == after.stamp);
        let next = |slot: &u32| Some(self.slots.member(*slot).pending_after).filter(|slot| *slot != NONE);
        let start = match place {
            Some(slot) => next(&slot),
            None => self.pending_slots().find(|slot| self.slots.member(*slot).stamp >= after.stamp),
        };
        std::iter::successors(start, next).take(most).map(|slot| self.pending_node(slot)).collect()
    }
}
