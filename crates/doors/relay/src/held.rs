//! Numbers that the kernel of this node still uses for directories and open files, and the file of each.
//!
//! A file on which programs of this node hold locks is claimed with all of these locks, or not at all. A program that
//! believes it has a lock must be told when the lock is lost.

use std::collections::{HashMap, HashSet};

use concurrency::Mutex;
use transport::SessionInstance;
use types::Identity;

use crate::limits::LOCKS_CLAIMED_MAX;
use crate::locked::{LockChange, LockOutcome, Locked};

/// Open file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldFile {
    /// Node number.
    pub node: u64,
    /// Identity of the file.
    pub identity: Identity,
    /// Path at which the file was last seen.
    pub hint: wire::Path,
    /// Flags of open(2).
    pub flags: i32,
    /// Whether it is a file that is open for writing.
    pub writes: bool,
}

/// Number to be restored at the server, with its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileReclaim {
    pub node: u64,
    pub lookups: u64,
    pub identity: Identity,
    pub hint: wire::Path,
    /// Handle and open flags, if an open file is to be restored.
    pub open: Option<(u64, i32)>,
}

/// File on which locks are held, with everything that is to be claimed of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockedFile {
    pub node: u64,
    pub opens: Vec<FileReclaim>,
    pub locks: Vec<LockChange>,
}

/// Claims to make at a server that has forgotten this node, in this order.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub locked: Vec<LockedFile>,
    pub others: Vec<FileReclaim>,
    /// Open files that are not claimed: the locks held on them are in doubt, or there are too many locks.
    pub lost: Vec<HeldFile>,
}

#[derive(Default)]
struct Looked {
    lookups: u64,
    /// Identity and path, if the node is a directory.
    directory: Option<(Identity, wire::Path)>,
}

#[derive(Default)]
struct Table {
    /// Session instance of the server that holds, or is receiving, this state.
    memory: SessionInstance,
    nodes: HashMap<u64, Looked>,
    opens: HashMap<u64, HeldFile>,
    locked: Locked,
}

impl Table {
    /// Forgets all open files and locks of a file. Returns the open files.
    fn lose(&mut self, node: u64) -> Vec<HeldFile> {
        self.locked.forgets(node);
        self.opens.extract_if(|_, held| held.node == node).map(|(_, held)| held).collect()
    }

    fn claim(&self, handle: u64, held: &HeldFile) -> FileReclaim {
        let lookups = self.nodes.get(&held.node).map_or(1, |looked| looked.lookups);
        let (identity, hint) = (held.identity.clone(), held.hint.clone());
        FileReclaim { node: held.node, lookups, identity, hint, open: Some((handle, held.flags)) }
    }
}

/// Everything that this node's kernel holds at the server.
#[derive(Default)]
pub(crate) struct Holdings(Mutex<Table>);

impl Holdings {
    /// Counts a lookup that the kernel was given.
    pub fn looked_up(&self, node: u64, directory: Option<(Identity, wire::Path)>) {
        let mut table = self.0.lock();
        let looked = table.nodes.entry(node).or_default();
        looked.lookups += 1;
        looked.directory = directory.or(looked.directory.take());
    }

    /// Takes back `count` lookups that the kernel has forgotten. Runs `and` before any reclaim can start.
    pub fn forgets(&self, node: u64, count: u64, and: impl FnOnce()) {
        let mut table = self.0.lock();
        if let Some(looked) = table.nodes.get_mut(&node) {
            looked.lookups = looked.lookups.saturating_sub(count);
            if looked.lookups == 0 {
                table.nodes.remove(&node);
            }
        }
        and();
    }

    pub fn add(&self, handle: u64, held: HeldFile) {
        self.0.lock().opens.insert(handle, held);
    }

    /// Removes an open file that was closed, or whose open never reached the kernel.
    pub fn remove(&self, handle: u64) -> Option<HeldFile> {
        let mut table = self.0.lock();
        let held = table.opens.remove(&handle)?;
        table.locked.closes(held.node, handle);
        if !table.opens.values().any(|other| other.node == held.node) {
            table.locked.forgets(held.node);
        }
        Some(held)
    }

    /// Forgets all open files of a file that cannot be claimed, and returns them.
    pub fn lose(&self, node: u64) -> Vec<HeldFile> {
        self.0.lock().lose(node)
    }

    /// Returns whether the handle is open for writing.
    pub fn writes(&self, handle: u64) -> bool {
        self.0.lock().opens.get(&handle).is_some_and(|held| held.writes)
    }

    /// Notes that a request that changes locks is about to be sent.
    pub fn lock_begins(&self, unique: u64, node: u64, change: LockChange) {
        self.0.lock().locked.begins(unique, node, change);
    }

    /// Notes the answer to a request. Returns false if the request takes a lock and `by` is no longer the server that
    /// holds this state. Such an answer is void: nothing is claimed from it, and another client may have got the lock
    /// since.
    pub fn lock_answered(&self, unique: u64, outcome: LockOutcome, by: SessionInstance) -> bool {
        let mut table = self.0.lock();
        let counts = table.memory == by || !table.locked.takes(unique);
        if counts {
            table.locked.ends(unique, outcome);
        }
        counts
    }

    /// Notes the answer of server `by` to a wait for a lock. Returns false if the answer is void. That is so if `by`
    /// no longer holds this state, or if the request has ended and is being undone.
    pub fn lock_comes(&self, unique: u64, outcome: LockOutcome, by: SessionInstance) -> bool {
        let mut table = self.0.lock();
        table.memory == by && table.locked.ends(unique, outcome).is_some()
    }

    /// Ends a request whose answer nobody awaits. Returns its file and lock change, if it changes locks.
    pub fn lock_ends(&self, unique: u64, outcome: LockOutcome) -> Option<(u64, LockChange)> {
        self.0.lock().locked.ends(unique, outcome)
    }

    /// Returns whether a request has released a lock here, even if no server has seen it. Its program must then not
    /// be told that nothing happened.
    pub fn lock_gave(&self, unique: u64) -> bool {
        self.0.lock().locked.gave(unique)
    }

    /// Returns whether undoing a request would release locks that its owner held before.
    pub fn lock_holds_there(&self, unique: u64) -> bool {
        self.0.lock().locked.holds_there(unique)
    }

    /// Notes the first server that this kernel meets.
    pub fn meets(&self, memory: SessionInstance) {
        self.0.lock().memory = memory;
    }

    /// Returns the session instance of the server that holds, or is receiving, this state.
    pub fn memory(&self) -> SessionInstance {
        self.0.lock().memory
    }

    /// Moves this state to a server that has forgotten it. Returns the claims to make from `memory`, and the files
    /// that are lost. Runs `and` before the kernel can give anything back.
    pub fn claims(&self, memory: SessionInstance, and: impl FnOnce()) -> Claims {
        let mut table = self.0.lock();
        table.memory = memory;
        let (mut claims, mut files, mut locks) = (Claims::default(), HashMap::new(), 0);
        let nodes: HashSet<u64> = table.opens.values().map(|held| held.node).collect();
        for node in nodes {
            match table.locked.claims(node) {
                Some(held) if locks + held.len() <= LOCKS_CLAIMED_MAX => {
                    locks += held.len();
                    files.insert(node, LockedFile { node, opens: Vec::new(), locks: held });
                }
                _ => claims.lost.extend(table.lose(node)),
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

    /// Forgets all open files and returns them.
    pub fn clear(&self) -> Vec<HeldFile> {
        self.0.lock().opens.drain().map(|(_, held)| held).collect()
    }
}

#[cfg(test)]
mod tests {
    use types::LockKind;

    use super::*;

    const LATER: SessionInstance = [1; 16];

    fn identity(byte: u8) -> Identity {
        Identity::new(vec![1, 2, byte]).unwrap()
    }

    fn held(node: u64) -> HeldFile {
        HeldFile {
            node,
            identity: identity(node as u8),
            hint: wire::Path::default(),
            flags: libc::O_RDWR,
            writes: true,
        }
    }

    #[test]
    fn an_open_file_is_held_until_it_is_closed() {
        let holdings = Holdings::default();
        holdings.add(70, held(7));
        assert!(holdings.writes(70) && !holdings.writes(71));
        assert_eq!(holdings.remove(70), Some(held(7)));
        assert!(!holdings.writes(70) && holdings.remove(70).is_none());
        holdings.add(80, held(8));
        assert_eq!(holdings.clear(), [held(8)]);
        assert_eq!(holdings.clear(), []);
    }

    #[test]
    fn directories_and_open_files_are_claimed_with_their_lookups_and_what_is_forgotten_is_not() {
        let holdings = Holdings::default();
        let directory = || Some((identity(5), wire::Path::default()));
        holdings.looked_up(5, directory());
        holdings.looked_up(5, None);
        holdings.looked_up(7, None);
        holdings.looked_up(9, directory());
        holdings.add(70, held(7));
        holdings.forgets(9, 1, || ());
        let Claims { mut others, locked, lost } = holdings.claims(LATER, || ());
        others.sort_by_key(|claim| claim.node);
        let told: Vec<_> = others.iter().map(|claim| (claim.node, claim.lookups, claim.open)).collect();
        assert_eq!(told, [(5, 2, None), (7, 1, Some((70, libc::O_RDWR)))]);
        assert_eq!((locked, lost), (vec![], vec![]));
    }

    fn take(owner: u64, handle: u64, flock: bool) -> LockChange {
        let range = (0, i64::MAX as u64);
        LockChange { owner, handle, flock, range, kind: Some(LockKind::Exclusive), ..LockChange::default() }
    }

    fn granted(holdings: &Holdings, node: u64, change: LockChange) {
        holdings.lock_begins(2, node, change);
        holdings.lock_ends(2, LockOutcome::Done);
    }

    #[test] // S49
    fn a_file_is_claimed_with_its_locks_while_it_is_open() {
        let holdings = Holdings::default();
        for node in [1, 2, 3, 4] {
            holdings.add(node * 10, held(node));
            granted(&holdings, node, take(100, node * 10, node == 3));
        }
        holdings.add(11, held(1));
        granted(&holdings, 2, LockChange { kind: None, ..take(100, 20, false) });
        assert!(holdings.remove(40).is_some(), "its locks go with the last close");
        holdings.add(41, held(4));
        for _ in 0..2 {
            let Claims { mut locked, others, lost } = holdings.claims(LATER, || ());
            locked.sort_by_key(|file| file.node);
            let told: Vec<_> = locked.iter().map(|file| (file.node, file.opens.len(), file.locks.clone())).collect();
            assert_eq!(told, [(1, 2, vec![take(100, 10, false)]), (3, 1, vec![take(100, 30, true)])]);
            assert_eq!((others.len(), lost.len()), (2, 0));
        }
        assert_eq!(holdings.lose(1).len(), 2);
        assert_eq!(holdings.claims(LATER, || ()).locked.len(), 1);
    }

    #[test] // S49
    fn a_file_on_which_nobody_knows_the_locks_and_one_with_too_many_are_not_claimed() {
        let holdings = Holdings::default();
        holdings.add(10, held(1));
        holdings.lock_begins(4, 1, take(100, 10, false));
        granted(&holdings, 1, LockChange { kind: None, ..take(100, 10, false) });
        holdings.lock_ends(4, LockOutcome::Done);
        const FILES: u64 = 64;
        for node in 2..2 + FILES {
            holdings.add(node * 10, held(node));
            for owner in 0..=LOCKS_CLAIMED_MAX as u64 / FILES {
                granted(&holdings, node, LockChange { kind: Some(LockKind::Shared), ..take(owner, node * 10, false) });
            }
        }
        let claims = holdings.claims(LATER, || ());
        assert_eq!((claims.lost.len(), claims.locked.len(), claims.others.len()), (2, FILES as usize - 1, 0));
        assert_eq!(holdings.claims(LATER, || ()).lost, [], "who is lost stays so, and nobody else is");
    }

    #[test] // S49
    fn what_a_former_server_granted_is_not_believed_once_its_successor_was_told_what_is_held() {
        let holdings = Holdings::default();
        let (former, share) =
            (SessionInstance::default(), LockChange { kind: Some(LockKind::Shared), ..take(100, 10, true) });
        holdings.add(10, held(1));
        granted(&holdings, 1, share);
        holdings.lock_begins(4, 1, take(100, 10, true));
        holdings.lock_begins(6, 1, LockChange { kind: None, ..take(200, 10, false) });
        assert_eq!(holdings.claims(LATER, || ()).locked, [], "it was given up to be converted");
        for outcome in [LockOutcome::Done, LockOutcome::Refused] {
            assert!(!holdings.lock_answered(4, outcome, former));
        }
        assert!(holdings.lock_answered(6, LockOutcome::Done, former), "what is released nobody has");
        assert!(holdings.lock_answered(8, LockOutcome::Done, former), "it is about no lock");
        assert!(holdings.claims(LATER, || ()).locked.is_empty());
        assert!(holdings.lock_answered(4, LockOutcome::Done, LATER));
        assert_eq!(holdings.claims(LATER, || ()).locked[0].locks, [take(100, 10, true)]);
    }

    #[test] // S49
    fn a_lock_that_is_granted_late_is_not_believed_once_its_request_was_undone() {
        let holdings = Holdings::default();
        let former = SessionInstance::default();
        holdings.add(10, held(1));
        for outcome in [LockOutcome::Died, LockOutcome::Unsent, LockOutcome::Refused] {
            holdings.lock_begins(4, 1, take(100, 10, true));
            holdings.lock_ends(4, outcome);
            assert!(!holdings.lock_comes(4, LockOutcome::Done, former), "{outcome:?}");
        }
        holdings.lock_begins(4, 1, take(100, 10, true));
        assert!(!holdings.lock_comes(4, LockOutcome::Done, LATER), "nobody has asked that one");
        assert!(
            holdings.lock_comes(4, LockOutcome::Done, former) && !holdings.lock_comes(4, LockOutcome::Done, former)
        );
        assert_eq!(holdings.claims(LATER, || ()).locked[0].locks, [take(100, 10, true)]);
    }
}
