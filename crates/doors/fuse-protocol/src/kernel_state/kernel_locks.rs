//! Locks that programs hold through one kernel: they are claimed from a successor of the holder that granted them.
//!
//! K1. A lock is claimed if it was granted and its owner has not asked since to release it. A release counts from
//! when it is sent, a grant from when it is answered. A grant counts only if it was noted before the claims
//! for a successor of the holder that granted it were gathered.
//! K2. Two overlapping requests of one owner that were under way at once may have been executed in either order. From
//! then on that owner's locks on the file are in doubt. The doubt ends when the owner has released all of them by a
//! request that no other overlapped. It also ends when the open files of both requests are closed.

use std::collections::{BTreeMap, HashSet};

use types::{LockKind, LockOwner, RangeLock, RangeLocks};

use super::lock_change::{LockChange, LockOutcome};
use crate::NodeId;

#[derive(Debug, Clone, Default)]
struct OfFile {
    ranges: RangeLocks,
    flocks: RangeLocks,
    /// Doubtful locks: the owner, whether by flock, and the handle of the open file.
    doubts: HashSet<(u64, bool, u64)>,
}

impl OfFile {
    fn of(&mut self, change: &LockChange) -> &mut RangeLocks {
        if change.flock { &mut self.flocks } else { &mut self.ranges }
    }

    fn release(&mut self, change: &LockChange) {
        let (start, end) = change.range;
        self.of(change).release(change.owner.into(), start, end);
    }

    /// Returns whether the owner already has the whole range locked in that kind.
    fn has(&mut self, change: &LockChange) -> bool {
        let (start, end) = change.range;
        let covers = |held: &RangeLock| {
            held.owner == LockOwner::from(change.owner)
                && held.start <= start
                && held.end >= end
                && Some(held.kind) == change.kind
        };
        self.of(change).iter().any(covers)
    }

    /// Gives up the locks that no longer count from the moment at which a change is requested. Returns whether any
    /// was given up.
    fn before(&mut self, change: &LockChange) -> bool {
        let (start, end) = change.range;
        let mine = |held: &&RangeLock| change.is_over(held) && Some(held.kind) != change.kind;
        let changed: Vec<RangeLock> = self.of(change).iter().filter(mine).copied().collect();
        match change.kind {
            None => self.release(change),
            // Converting a flock gives it up first.
            Some(_) if change.flock && !changed.is_empty() => self.release(change),
            Some(LockKind::Shared) => {
                for held in &changed {
                    let held = *held;
                    let (start, end) = (held.start.max(start), held.end.min(end));
                    self.of(change).take(RangeLock { start, end, kind: LockKind::Shared, ..held });
                }
            }
            Some(_) => return false,
        }
        !changed.is_empty()
    }

    fn after(&mut self, change: &LockChange, outcome: LockOutcome) {
        match (outcome, change.kind) {
            (LockOutcome::Unsent, _) => {}
            (LockOutcome::Done, Some(kind)) => self.of(change).take(change.lock(kind)),
            (LockOutcome::Refused, Some(_)) if change.flock => _ = self.before(change),
            (LockOutcome::Refused, Some(_)) => {}
            (LockOutcome::Done | LockOutcome::Refused, None) | (LockOutcome::Died, _) => self.release(change),
        }
    }

    fn doubt(&mut self, change: &LockChange) {
        self.doubts.insert((change.owner, change.flock, change.handle));
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.flocks.is_empty() && self.doubts.is_empty()
    }
}

struct UnderWay {
    node: NodeId,
    change: LockChange,
    /// Whether no other request overlapped this one.
    alone: bool,
    /// Whether a claim left out locks that this request gives up. The request must then be carried to its end.
    gave: bool,
}

/// Locks of all files, by node number.
#[derive(Default)]
pub(crate) struct KernelLocks {
    files: BTreeMap<NodeId, OfFile>,
    /// Requests that are under way, by the kernel's number.
    under_way: BTreeMap<u64, UnderWay>,
}

impl KernelLocks {
    /// Notes that a request is about to be sent.
    pub fn begins(&mut self, unique: u64, node: NodeId, change: LockChange) {
        let mut alone = true;
        for other in self.under_way.values_mut().filter(|other| other.node == node && other.change.meets(&change)) {
            (other.alone, alone) = (false, false);
            let file = self.files.entry(node).or_default();
            file.doubt(&other.change);
            file.doubt(&change);
        }
        self.under_way.insert(unique, UnderWay { node, change, alone, gave: false });
    }

    /// Ends a request that was answered or that nobody waits for any more. Returns its file and change. Returns `None`
    /// if the request is unknown, or if its caller was killed while its owner already held the lock.
    pub fn ends(&mut self, unique: u64, outcome: LockOutcome) -> Option<(NodeId, LockChange)> {
        let UnderWay { node, change, alone, .. } = self.under_way.remove(&unique)?;
        if change.takes() && outcome == LockOutcome::Done {
            self.files.entry(node).or_default();
        }
        if let Some(file) = self.files.get_mut(&node) {
            // Open file descriptions are shared, so a lock held before may be another process's as well, and must not
            // be undone.
            if outcome == LockOutcome::Died && file.has(&change) {
                return None;
            }
            file.after(&change, outcome);
            if alone && outcome == LockOutcome::Done && change.releases_all() {
                file.doubts.retain(|(owner, flock, _)| (*owner, *flock) != change.who());
            }
            if file.is_empty() {
                self.files.remove(&node);
            }
        }
        Some((node, change))
    }

    /// Returns whether a request under way takes a lock.
    pub fn takes(&self, unique: u64) -> bool {
        self.under_way.get(&unique).is_some_and(|under_way| under_way.change.takes())
    }

    /// Returns whether the owner holds a lock in the range for which a request asks more. Undoing the request would
    /// release that lock, too.
    pub fn holds_there(&mut self, unique: u64) -> bool {
        let Some(UnderWay { node, change, .. }) = self.under_way.get(&unique) else { return false };
        let Some(file) = self.files.get_mut(node) else { return false };
        !file.has(change) && file.of(change).iter().any(|held| change.is_over(held))
    }

    /// Returns whether a request has given up a lock, even if no server has seen it.
    pub fn gave(&self, unique: u64) -> bool {
        self.under_way.get(&unique).is_some_and(|under_way| under_way.gave)
    }

    /// Removes the locks and doubts of an open file that is closed for good.
    pub fn closes(&mut self, node: NodeId, handle: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.ranges.release_handle(handle);
            file.flocks.release_handle(handle);
            file.doubts.retain(|(_, _, through)| *through != handle);
        }
    }

    /// Forgets a file of which nothing is open any more.
    pub fn forgets(&mut self, node: NodeId) {
        self.files.remove(&node);
    }

    /// Returns the locks to claim of a file. From then on these are all that count as held. Returns `None` if they
    /// are in doubt.
    pub fn claims(&mut self, node: NodeId) -> Option<Vec<LockChange>> {
        let Some(file) = self.files.get_mut(&node) else { return Some(Vec::new()) };
        if !file.doubts.is_empty() {
            return None;
        }
        for other in self.under_way.values_mut().filter(|other| other.node == node) {
            other.gave |= file.before(&other.change);
        }
        let claim = |flock| {
            move |held: &RangeLock| LockChange {
                owner: held.owner as u64,
                handle: held.handle,
                pid: held.pid,
                flock,
                range: (held.start, held.end),
                kind: Some(held.kind),
            }
        };
        Some(file.ranges.iter().map(claim(false)).chain(file.flocks.iter().map(claim(true))).collect())
    }
}

#[cfg(test)]
#[path = "kernel_locks_tests.rs"]
mod tests;
