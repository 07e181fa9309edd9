//! Which locks programs of this node hold: what is claimed from a server that has forgotten them.
//!
//! K1. What is claimed was granted, and its owner has not asked since to release it: what releases counts from when it is sent, what takes
//!     from when it is answered. An answer of a server that was forgotten before it was noted takes nothing.
//! K2. In which order the server executed two requests of one owner that meet, and were under way at once, is not known here. What that owner
//!     holds of the file is in doubt from then until it has released all of it by a request that no other met, or the open files that the
//!     two went through are closed: one of them holds what is in doubt, or nobody.

use std::collections::{HashMap, HashSet};

use agent::locks::{LockKind, LockOwner, RangeLock, RangeLocks};
use fuse_protocol::LockArgs;

use crate::manner::is_success;

/// What a request does to the locks of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LockChange {
    /// By the number that the kernel gave him, through which open file, and as which process.
    pub owner: u64,
    pub handle: u64,
    pub pid: u32,
    /// Of the whole file, as flock(2) has it.
    pub flock: bool,
    /// First byte and last.
    pub range: (u64, u64),
    /// `None`: releases what he has there.
    pub kind: Option<LockKind>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockOutcome {
    Done,
    /// The server did not grant it.
    Refused,
    /// No server has seen it.
    Unsent,
    /// Its caller was killed, and whatever was done is to be undone.
    Died,
}

impl LockOutcome {
    /// By an answer of the server, or an event that is one.
    pub fn of(answer: &[u8]) -> LockOutcome {
        if is_success(answer) { LockOutcome::Done } else { LockOutcome::Refused }
    }
}

impl LockChange {
    fn who(&self) -> (u64, bool) {
        (self.owner, self.flock)
    }

    fn meets(&self, other: &LockChange) -> bool {
        self.who() == other.who() && self.range.0 <= other.range.1 && other.range.0 <= self.range.1
    }

    /// Whether its owner holds that, and it is about some of it.
    fn is_over(&self, held: &RangeLock) -> bool {
        held.owner == LockOwner::from(self.owner) && held.start <= self.range.1 && self.range.0 <= held.end
    }

    fn releases_all(&self) -> bool {
        self.kind.is_none() && (self.flock || (self.range.0 == 0 && self.range.1 >= i64::MAX as u64))
    }

    /// The lock that it takes.
    fn lock(&self, kind: LockKind) -> RangeLock {
        let (start, end) = self.range;
        RangeLock { start, end, kind, owner: self.owner.into(), pid: self.pid, handle: self.handle }
    }

    /// The same as the kernel says it.
    pub fn args(&self) -> LockArgs {
        let kind = match self.kind {
            Some(LockKind::Shared) => libc::F_RDLCK,
            Some(LockKind::Exclusive) => libc::F_WRLCK,
            None => libc::F_UNLCK,
        };
        let (start, end) = self.range;
        LockArgs { start, end, kind, pid: self.pid, owner: self.owner, flock: self.flock }
    }
}

#[derive(Debug, Clone, Default)]
struct OfFile {
    ranges: RangeLocks,
    flocks: RangeLocks,
    /// Owners, whether of flocks, and through which open files.
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

    /// Whether the owner has it already, in that kind.
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

    /// What is held no more from the moment that a change is asked for.
    fn before(&mut self, change: &LockChange) -> bool {
        let (start, end) = change.range;
        let mine = |held: &&RangeLock| change.is_over(held) && Some(held.kind) != change.kind;
        let changed: Vec<RangeLock> = self.of(change).iter().filter(mine).copied().collect();
        match change.kind {
            None => self.release(change),
            // A flock that is converted is given up first.
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
    node: u64,
    change: LockChange,
    /// No other met it.
    alone: bool,
    /// What it gives up was not claimed: it must come to its end.
    gave: bool,
}

/// All of it, by the numbers of files.
#[derive(Default)]
pub(crate) struct Locked {
    files: HashMap<u64, OfFile>,
    /// By the kernel's numbers of the requests.
    under_way: HashMap<u64, UnderWay>,
}

impl Locked {
    /// A request is about to be sent.
    pub fn begins(&mut self, unique: u64, node: u64, change: LockChange) {
        let mut alone = true;
        for other in self.under_way.values_mut().filter(|other| other.node == node && other.change.meets(&change)) {
            (other.alone, alone) = (false, false);
            let file = self.files.entry(node).or_default();
            file.doubt(&other.change);
            file.doubt(&change);
        }
        self.under_way.insert(unique, UnderWay { node, change, alone, gave: false });
    }

    /// It is answered, or nobody waits for that any more. What it was, if it is one of these.
    pub fn ends(&mut self, unique: u64, outcome: LockOutcome) -> Option<(u64, LockChange)> {
        let UnderWay { node, change, alone, .. } = self.under_way.remove(&unique)?;
        if change.kind.is_some() && outcome == LockOutcome::Done {
            self.files.entry(node).or_default();
        }
        if let Some(file) = self.files.get_mut(&node) {
            // Open file descriptions are shared: what was locked before is another process's too.
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

    /// Whether a request that is under way takes a lock.
    pub fn takes(&self, unique: u64) -> bool {
        self.under_way.get(&unique).is_some_and(|under_way| under_way.change.kind.is_some())
    }

    /// Whether its owner holds something where a request asks for more: what undoes the request would release that too.
    pub fn holds_there(&mut self, unique: u64) -> bool {
        let Some(UnderWay { node, change, .. }) = self.under_way.get(&unique) else { return false };
        let Some(file) = self.files.get_mut(node) else { return false };
        !file.has(change) && file.of(change).iter().any(|held| change.is_over(held))
    }

    /// Whether a request has given something up, though no server may have seen it.
    pub fn gave(&self, unique: u64) -> bool {
        self.under_way.get(&unique).is_some_and(|under_way| under_way.gave)
    }

    /// An open file is closed for good; what was locked through it is not any more.
    pub fn closes(&mut self, node: u64, handle: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.ranges.release_handle(handle);
            file.flocks.release_handle(handle);
            file.doubts.retain(|(_, _, through)| *through != handle);
        }
    }

    /// Nothing of the file is open any more.
    pub fn forgets(&mut self, node: u64) {
        self.files.remove(&node);
    }

    /// What is to be claimed of a file, and is all that is held of it from then on; `None`: that is in doubt.
    pub fn claims(&mut self, node: u64) -> Option<Vec<LockChange>> {
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
#[path = "locked_tests.rs"]
mod tests;
