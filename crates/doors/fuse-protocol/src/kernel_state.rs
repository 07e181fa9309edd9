//! State that the kernel has of one mount: node numbers, open files and locks, and the file of each.
//!
//! Whoever stands between the kernel and what answers it feeds the state with requests and answers as they pass. When
//! what answers has died or has forgotten the kernel, its successor is asked to restore everything ([`Claims`]).
//!
//! A file on which programs hold locks is claimed with all of these locks, or not at all. A program that believes it
//! has a lock must be told when the lock is lost.

mod claims;
mod kernel_locks;
mod lock_change;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use concurrency::Mutex;
use peer::StateHolder;
use types::{Identity, SessionInstance};

pub use self::claims::{Claims, FileReclaim, HeldFile, LockedFile};
use self::kernel_locks::KernelLocks;
pub use self::lock_change::{LockChange, LockOutcome};
use crate::{Envelope, Given, Handle, NodeId};

/// Identity of a file and the path at which it was last seen, told with an answer about it.
pub type AboutFile = (Identity, PathBuf);

#[derive(Default)]
struct Looked {
    lookups: u64,
    /// Identity and path, if the node is a directory.
    directory: Option<AboutFile>,
}

#[derive(Default)]
struct Table {
    holder: StateHolder,
    nodes: BTreeMap<NodeId, Looked>,
    opens: BTreeMap<Handle, HeldFile>,
    locks: KernelLocks,
}

impl Table {
    fn forgets(&mut self, node: NodeId, count: u64) {
        if let Some(looked) = self.nodes.get_mut(&node) {
            looked.lookups = looked.lookups.saturating_sub(count);
            if looked.lookups == 0 {
                self.nodes.remove(&node);
            }
        }
    }

    fn closes(&mut self, handle: Handle) -> Option<HeldFile> {
        let held = self.opens.remove(&handle)?;
        self.locks.closes(held.node, handle);
        if !self.opens.values().any(|other| other.node == held.node) {
            self.locks.forgets(held.node);
        }
        Some(held)
    }

    fn loses(&mut self, node: NodeId) -> Vec<HeldFile> {
        self.locks.forgets(node);
        self.opens.extract_if(.., |_, held| held.node == node).map(|(_, held)| held).collect()
    }

    /// Notes the lookup and the open file of an answer.
    fn gives(&mut self, envelope: &Envelope, answer: &[u8], about: Option<AboutFile>) {
        let Some(given) = Given::by(envelope, answer) else { return };
        if given.looked_up != 0 {
            let looked = self.nodes.entry(given.looked_up).or_default();
            looked.lookups += 1;
            if given.opened.is_none() {
                looked.directory = about.clone().or(looked.directory.take());
            }
        }
        if let (Some((node, handle)), Some((identity, hint))) = (given.opened, about) {
            let (flags, writes) = (envelope.open_flags(), envelope.opens_for_writing());
            self.opens.insert(handle, HeldFile { node, identity, hint, flags, writes });
        }
    }

    fn claim(&self, handle: Handle, held: &HeldFile) -> FileReclaim {
        let lookups = self.nodes.get(&held.node).map_or(1, |looked| looked.lookups);
        let (identity, hint) = (held.identity.clone(), held.hint.clone());
        FileReclaim { node: held.node, lookups, identity, hint, open: Some((handle, held.flags)) }
    }
}

/// Everything that the kernel knows of one mount.
#[derive(Default)]
pub struct KernelState(Mutex<Table>);

impl KernelState {
    /// Notes a request of the kernel that is about to be passed on. Returns the open file that it closes for good, if
    /// any. That file counts as closed from now on, whether or not anybody receives the request.
    pub fn sends(&self, envelope: &Envelope, message: &[u8]) -> Option<HeldFile> {
        if let Some(change) = LockChange::of(envelope, message) {
            self.0.lock().locks.begins(envelope.unique, envelope.node, change);
        }
        if envelope.releases() { self.0.lock().closes(envelope.first) } else { None }
    }

    /// Notes the answer of `by` to a request, before the kernel gets it: a lookup, an open file, a lock. `about`: the
    /// file that was opened, or the directory that was found. Returns false if the request takes a lock and `by` no
    /// longer holds this state. Such an answer is void: nothing is claimed from it, and another client may have got
    /// the lock since.
    pub fn answered(&self, envelope: &Envelope, answer: &[u8], about: Option<AboutFile>, by: SessionInstance) -> bool {
        let mut table = self.0.lock();
        if !table.holder.may_grant(by) && table.locks.takes(envelope.unique) {
            return false;
        }
        table.locks.ends(envelope.unique, LockOutcome::of(answer));
        table.gives(envelope, answer, about);
        true
    }

    /// Notes the late answer of `by` to a wait for a lock. Returns false if the answer is void. That is so if `by` no
    /// longer holds this state, or if the request has ended and is being undone.
    pub fn answered_late(&self, unique: u64, answer: &[u8], by: SessionInstance) -> bool {
        let mut table = self.0.lock();
        table.holder.may_grant(by) && table.locks.ends(unique, LockOutcome::of(answer)).is_some()
    }

    /// Ends a request whose answer nobody awaits. Returns its file and lock change, if it changes locks. Returns `None`
    /// also if its caller was killed while its owner already held the lock.
    pub fn ends(&self, unique: u64, outcome: LockOutcome) -> Option<(NodeId, LockChange)> {
        self.0.lock().locks.ends(unique, outcome)
    }

    /// Takes back what an answer gave that the kernel never received. Returns its open file, if it was noted.
    pub fn takes_back(&self, given: &Given) -> Option<HeldFile> {
        let mut table = self.0.lock();
        table.forgets(given.looked_up, 1);
        given.opened.and_then(|(_, handle)| table.closes(handle))
    }

    /// Takes back `count` lookups that the kernel has forgotten. Runs `and` before any claims can be gathered.
    pub fn forgets(&self, node: NodeId, count: u64, and: impl FnOnce()) {
        let mut table = self.0.lock();
        table.forgets(node, count);
        and();
    }

    /// Returns whether the handle is open for writing.
    pub fn writes(&self, handle: Handle) -> bool {
        self.0.lock().opens.get(&handle).is_some_and(|held| held.writes)
    }

    /// Returns whether a request has released a lock here, even if nobody has received it. Its program must then not
    /// be told that nothing happened.
    pub fn gave_lock(&self, unique: u64) -> bool {
        self.0.lock().locks.gave(unique)
    }

    /// Returns whether undoing a request would release locks that its owner held before.
    pub fn holds_lock_there(&self, unique: u64) -> bool {
        self.0.lock().locks.holds_there(unique)
    }

    /// Notes the first holder of this state.
    pub fn meets(&self, holder: SessionInstance) {
        self.0.lock().holder.moves_to(holder);
    }

    /// Returns who holds, or is receiving, this state.
    pub fn holder(&self) -> SessionInstance {
        self.0.lock().holder.instance()
    }

    /// Moves this state to `holder`, which has forgotten it or never had it. Returns the claims to make, with at most
    /// `locks_max` locks, and the files that are lost. Runs `and` before the kernel can give anything back.
    pub fn claims(&self, holder: SessionInstance, locks_max: usize, and: impl FnOnce()) -> Claims {
        let mut table = self.0.lock();
        table.holder.moves_to(holder);
        let (mut claims, mut files, mut locks) = (Claims::default(), BTreeMap::new(), 0);
        let nodes: BTreeSet<NodeId> = table.opens.values().map(|held| held.node).collect();
        for node in nodes {
            match table.locks.claims(node) {
                Some(held) if locks + held.len() <= locks_max => {
                    locks += held.len();
                    files.insert(node, LockedFile { node, opens: Vec::new(), locks: held });
                }
                _ => claims.lost.extend(table.loses(node)),
            }
        }
        for (node, looked) in &table.nodes {
            let Some((identity, hint)) = looked.directory.clone() else { continue };
            claims.others.push(FileReclaim { node: *node, lookups: looked.lookups, identity, hint, open: None });
        }
        for (handle, held) in &table.opens {
            let claim = table.claim(*handle, held);
            match files.get_mut(&held.node).filter(|file| !file.locks.is_empty()) {
                Some(file) => file.opens.push(claim),
                None => claims.others.push(claim),
            }
        }
        claims.locked = files.into_values().filter(|file| !file.locks.is_empty()).collect();
        and();
        claims
    }

    /// Forgets an open file that could not be claimed, and returns it.
    pub fn loses_open(&self, handle: Handle) -> Option<HeldFile> {
        self.0.lock().closes(handle)
    }

    /// Forgets all open files and locks of a file that could not be claimed. Returns the open files.
    pub fn loses_file(&self, node: NodeId) -> Vec<HeldFile> {
        self.0.lock().loses(node)
    }

    /// Forgets all open files, after the end of the mount, and returns them.
    pub fn clear(&self) -> Vec<HeldFile> {
        std::mem::take(&mut self.0.lock().opens).into_values().collect()
    }
}

#[cfg(test)]
#[path = "kernel_state_tests.rs"]
mod tests;
