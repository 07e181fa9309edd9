//! Client recovery records: names of the nodes that may hold locks, on durable storage. After a restart of the server
//! only these nodes may claim their locks. Until they have, or the grace period is over, no new locks are granted.
//!
//! L1. A node's record is written before it gets its first lock.
//! L2. The record of a node that is gone is removed before others get its locks. If it cannot be removed, the locks
//! stay held.
//! L3. A recorded node that has not claimed all its locks by the end of the grace period loses its record, before
//! anyone gets a new lock.
//! L4. A node that was forgotten and returns is another client, to which the record of the first does not belong. It
//! claims nothing, and gets its first lock after the old record is removed.
//!
//! So nobody else can have had a claimed lock meanwhile, however often servers crash, even within the grace period:
//! records change only at its end. A record is a name in a directory, so that removing one needs no space.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use concurrency::{Instant, Mutex, MutexGuard};
use durable::sync_directory as sync;
use types::Shown;

use crate::limits::CROSS_OUT_AGAIN;

/// Name of a node: random, and the same for every server.
pub type Name = [u8; 16];

/// Node as this server knows it: its name, and its client number. The number is not 0, and changes after the node was
/// forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locker {
    /// Name of the node.
    pub name: Name,
    /// Client number of the node.
    pub client: u64,
}

/// Client number of a record that a former server has written.
const FORMER: u64 = 0;

/// Locks of a node, held until dropped.
pub type LockHold = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct State {
    /// Recorded nodes, and the client number of each.
    listed: HashMap<Name, u64>,
    /// Recorded nodes that have not claimed yet.
    awaited: HashSet<Name>,
    /// Nodes that are gone and whose records cannot be removed.
    gone: Vec<(Locker, Option<LockHold>)>,
    /// Time of the last try to remove them.
    tried: Option<Instant>,
    /// Whether the server ends while nodes continue.
    ended: bool,
}

impl State {
    /// Returns whether the node's record belongs to this client. A former server's record belongs to the first client
    /// of that name that asks.
    fn has(&mut self, node: &Locker) -> bool {
        let Some(client) = self.listed.get_mut(&node.name) else { return false };
        if *client == FORMER {
            *client = node.client;
        }
        *client == node.client
    }
}

/// Client recovery records in one directory.
pub struct RecoveryRecords {
    dir: PathBuf,
    /// End of the grace period.
    until: Instant,
    state: Mutex<State>,
}

fn hex(name: &Name) -> String {
    format!("{:032x}", u128::from_be_bytes(*name))
}

fn name(hex: &str) -> Option<Name> {
    let valid = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(hex, 16).ok().filter(|_| valid).map(u128::to_be_bytes)
}

impl RecoveryRecords {
    /// Opens the records that former servers have left in `dir`, which is created if missing. The grace period begins
    /// now and lasts at most `grace`.
    pub fn open(dir: impl Into<PathBuf>, grace: Duration) -> io::Result<RecoveryRecords> {
        let dir = dir.into();
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => dir.parent().map_or(Ok(()), sync)?,
        }
        let mut awaited = HashSet::new();
        for entry in fs::read_dir(&dir)? {
            awaited.extend(entry?.file_name().to_str().and_then(name));
        }
        let listed = awaited.iter().map(|name| (*name, FORMER)).collect();
        let state = State { listed, awaited, ..State::default() };
        Ok(RecoveryRecords { dir, until: Instant::now() + grace, state: Mutex::new(state) })
    }

    /// Locks the state and ends the grace period if its time is over (L3). If a record cannot be removed, the grace
    /// period continues.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.awaited.is_empty() || Instant::now() < self.until {
            return state;
        }
        match self.cross_out(state.awaited.iter()) {
            Ok(()) => {
                let nodes = state.awaited.len();
                tracing::warn!(
                    nodes,
                    "nodes did not claim their locks within the grace period: these locks are released"
                );
                for name in std::mem::take(&mut state.awaited) {
                    state.listed.remove(&name);
                }
            }
            Err(error) => tracing::error!(
                %error,
                dir = %self.dir.shown(),
                "could not remove records of nodes: no new locks until that succeeds"
            ),
        }
        state
    }

    fn cross_out<'a>(&self, names: impl Iterator<Item = &'a Name>) -> io::Result<()> {
        for name in names {
            match fs::remove_file(self.dir.join(hex(name))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        sync(&self.dir)
    }

    /// Returns whether the grace period lasts, in which nobody gets a new lock.
    pub fn is_grace(&self) -> bool {
        !self.settled().awaited.is_empty()
    }

    /// Records a node before its first lock (L1). Returns false if it must wait. Errors: the record cannot be
    /// written, and the node must not get a lock.
    pub fn admit(&self, node: &Locker) -> io::Result<bool> {
        let mut state = self.settled();
        if !state.awaited.is_empty() {
            return Ok(false);
        }
        if state.listed.contains_key(&node.name) {
            return Ok(state.has(node));
        }
        File::create(self.dir.join(hex(&node.name)))?;
        sync(&self.dir)?;
        state.listed.insert(node.name, node.client);
        Ok(true)
    }

    /// Returns whether a node may claim the locks that it held. If so, nobody else can have had them meanwhile.
    pub fn may_claim(&self, node: &Locker) -> bool {
        self.settled().has(node)
    }

    /// Notes that a node has claimed all its locks. Returns false if it is too late, and the node holds none.
    pub fn has_claimed(&self, node: &Locker) -> bool {
        let mut state = self.settled();
        let has = state.has(node);
        if has {
            state.awaited.remove(&node.name);
        }
        has
    }

    /// Notes that a node is gone. `held`: its locks, which are released only after its record is removed (L2).
    pub fn gone(&self, node: &Locker, held: Option<LockHold>) {
        let mut state = self.state.lock();
        if state.ended || !state.has(node) {
            return;
        }
        state.gone.push((*node, held));
        let (released, crossed_out) = self.cross_out_gone(&mut state);
        if let Err(error) = crossed_out {
            let dir = self.dir.shown();
            tracing::error!(%error, %dir, "could not remove the record of a node that is gone: its locks stay held");
        }
        // Outside the lock: releasing closes open files.
        drop(state);
        drop(released);
    }

    /// Tries again to remove the records of nodes that are gone, unless the last try was just now. Releases their
    /// locks.
    pub fn try_again(&self) {
        let mut state = self.state.lock();
        if state.gone.is_empty() || state.tried.is_some_and(|tried| tried.elapsed() < CROSS_OUT_AGAIN) {
            return;
        }
        let (released, _still) = self.cross_out_gone(&mut state);
        // Outside the lock, as above.
        drop(state);
        drop(released);
    }

    fn cross_out_gone(&self, state: &mut State) -> (Vec<Option<LockHold>>, io::Result<()>) {
        let (mut released, mut outcome) = (Vec::new(), Ok(()));
        state.tried = Some(Instant::now());
        for (node, held) in std::mem::take(&mut state.gone) {
            if state.has(&node) {
                if let Err(error) = self.cross_out([&node.name].into_iter()) {
                    outcome = Err(error);
                    state.gone.push((node, held));
                    continue;
                }
                state.listed.remove(&node.name);
                state.awaited.remove(&node.name);
            }
            released.push(held);
        }
        (released, outcome)
    }

    /// Ends the changes of records: they stay for the next server.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let gone = std::mem::take(&mut state.gone);
        drop(state);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempTree;

    use super::*;

    const A: Locker = Locker { name: [0; 16], client: 1 };
    const B: Locker = Locker { name: [0xab; 16], client: 2 };
    const LONG: Duration = Duration::from_secs(1000);

    #[test] // S49
    fn who_held_a_lock_may_claim_it_and_nobody_gets_another_before() {
        let tree = TempTree::new();
        let open = |grace| RecoveryRecords::open(tree.path("lockers"), grace).unwrap();
        let first = open(LONG);
        assert!(!first.is_grace() && !first.may_claim(&A), "nobody is awaited");
        assert!(first.admit(&A).unwrap() && first.admit(&A).unwrap());
        let second = open(LONG);
        assert!(second.is_grace() && second.may_claim(&A) && !second.may_claim(&B));
        assert!(!second.admit(&B).unwrap() && !second.admit(&A).unwrap());
        // A server that crashes within the grace period changes nothing.
        let third = open(LONG);
        assert!(third.is_grace() && third.may_claim(&A));
        assert!(!third.has_claimed(&B) && third.is_grace(), "who held nothing is not awaited");
        assert!(third.has_claimed(&A) && third.has_claimed(&A) && !third.is_grace());
        assert!(third.admit(&B).unwrap());
        assert!(open(LONG).may_claim(&A) && open(LONG).may_claim(&B));
    }

    #[test] // S49
    fn who_comes_after_the_grace_period_or_has_been_gone_holds_nothing_for_this_server_and_the_next() {
        let tree = TempTree::new();
        let open = |grace| RecoveryRecords::open(tree.path("lockers"), grace).unwrap();
        let first = open(LONG);
        assert!(first.admit(&A).unwrap() && first.admit(&B).unwrap());
        first.gone(&B, None);
        first.gone(&B, None);
        let late = open(Duration::ZERO);
        assert!(!late.may_claim(&A) && !late.is_grace() && !late.has_claimed(&A));
        let next = open(LONG);
        assert!(!next.is_grace() && !next.may_claim(&A) && !next.may_claim(&B));
        assert!(next.admit(&B).unwrap());
        next.end();
        next.gone(&B, None);
        assert!(open(LONG).may_claim(&B), "the server has ended, and not the node");
    }

    #[test] // S49
    fn what_cannot_be_written_down_is_not_granted_and_the_grace_period_lasts_while_nobody_can_be_crossed_out() {
        let tree = TempTree::new();
        let first = RecoveryRecords::open(tree.path("lockers"), LONG).unwrap();
        assert!(first.admit(&A).unwrap());
        let late = RecoveryRecords::open(tree.path("lockers"), Duration::ZERO).unwrap();
        fs::rename(tree.path("lockers"), tree.path("away")).unwrap();
        assert!(late.is_grace() && !late.admit(&B).unwrap());
        fs::rename(tree.path("away"), tree.path("lockers")).unwrap();
        assert!(!late.is_grace());
        fs::rename(tree.path("lockers"), tree.path("away")).unwrap();
        assert!(late.admit(&B).is_err());
    }

    #[test] // S49
    fn a_node_that_was_forgotten_and_has_come_back_waits_until_it_is_crossed_out_and_is_not_crossed_out_again() {
        let tree = TempTree::new();
        let open = || RecoveryRecords::open(tree.path("lockers"), LONG).unwrap();
        let (recovery_records, again) = (open(), Locker { client: 3, ..A });
        assert!(recovery_records.admit(&A).unwrap());
        assert!(!recovery_records.may_claim(&again) && !recovery_records.has_claimed(&again), "that was another");
        assert!(!recovery_records.admit(&again).unwrap());
        recovery_records.gone(&A, None);
        assert!(recovery_records.admit(&again).unwrap() && !recovery_records.admit(&A).unwrap());
        recovery_records.gone(&A, None);
        recovery_records.try_again();
        let next = open();
        assert!(next.is_grace() && next.may_claim(&A), "it is written down, and the numbers are others now");
        assert!(!next.may_claim(&again) && !next.has_claimed(&again) && next.has_claimed(&A) && !next.is_grace());
    }

    #[test] // S49
    fn who_is_gone_keeps_its_locks_until_it_can_be_crossed_out() {
        let tree = TempTree::new();
        let recovery_records = RecoveryRecords::open(tree.path("lockers"), LONG).unwrap();
        assert!(recovery_records.admit(&A).unwrap() && recovery_records.admit(&B).unwrap());
        let (held, again): (LockHold, _) = (Arc::new(()), Locker { client: 3, ..A });
        let is_held = || Arc::strong_count(&held) > 1;
        fs::rename(tree.path("lockers"), tree.path("away")).unwrap();
        recovery_records.gone(&A, Some(Arc::clone(&held)));
        recovery_records.gone(&A, None);
        recovery_records.try_again();
        assert!(is_held() && !recovery_records.admit(&again).unwrap() && recovery_records.admit(&B).unwrap());
        fs::rename(tree.path("away"), tree.path("lockers")).unwrap();
        testkit::wait_until("it is crossed out", LONG, || {
            recovery_records.try_again();
            !is_held()
        });
        assert!(recovery_records.admit(&again).unwrap());
        fs::rename(tree.path("lockers"), tree.path("away")).unwrap();
        recovery_records.gone(&again, Some(Arc::clone(&held)));
        assert!(is_held());
        recovery_records.end();
        assert!(!is_held(), "nobody gets anything from a server that has ended");
    }

    #[test]
    fn what_else_lies_there_is_nobody() {
        let tree = TempTree::new();
        tree.file("lockers/README", "");
        tree.file("lockers/+0000000000000000000000000000001", "");
        assert!(!RecoveryRecords::open(tree.path("lockers"), LONG).unwrap().is_grace());
    }
}
