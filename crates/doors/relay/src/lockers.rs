//! Which nodes may hold locks, written down: those alone may claim theirs from a server that was started again, and until they have, or
//! the grace period is over, nobody gets a new one.
//!
//! L1. A node is written down before it gets its first lock.
//! L2. A node that is gone is crossed out before anybody gets what it held.
//! L3. Whom a former server wrote down, and who has not claimed all it had when the grace period is over, is crossed out before anybody
//!     gets a new lock.
//!
//! So nobody else can have had meanwhile what is claimed, however often servers die, also within the grace period: what is written down
//! changes with its end alone. A name in a directory for each node: what is crossed out needs no room.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What a node calls itself: random, and the same for every server that it meets.
pub(crate) type Name = [u8; 16];

#[derive(Default)]
struct State {
    /// As they are written down.
    listed: HashSet<Name>,
    /// Those of them that have not claimed yet.
    awaited: HashSet<Name>,
    /// The server ends, and the nodes do not.
    ended: bool,
}

/// The list.
pub struct Lockers {
    dir: PathBuf,
    /// The end of the grace period.
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

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

impl Lockers {
    /// What former servers have written down in `dir`, which is made if it is missing; the grace period begins, and lasts `grace` at most.
    pub fn open(dir: impl Into<PathBuf>, grace: Duration) -> io::Result<Lockers> {
        let dir = dir.into();
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => dir.parent().map_or(Ok(()), sync)?,
        }
        let mut listed = HashSet::new();
        for entry in fs::read_dir(&dir)? {
            listed.extend(entry?.file_name().to_str().and_then(name));
        }
        let state = State { awaited: listed.clone(), listed, ended: false };
        Ok(Lockers { dir, until: Instant::now() + grace, state: Mutex::new(state) })
    }

    /// Crosses out who has not come in time (L3). What cannot be crossed out keeps the grace period from ending.
    fn settle(&self, state: &mut State) {
        if state.awaited.is_empty() || Instant::now() < self.until {
            return;
        }
        match self.cross_out(state.awaited.iter()) {
            Ok(()) => {
                tracing::warn!(
                    nodes = state.awaited.len(),
                    "nodes have not claimed their locks in time, and have none any more"
                );
                state.listed.retain(|name| !state.awaited.contains(name));
                state.awaited.clear();
            }
            Err(error) => tracing::error!(%error, dir = %self.dir.display(), "the grace period of locks cannot end"),
        }
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

    /// Whether nobody gets a new lock yet.
    pub(crate) fn is_grace(&self) -> bool {
        let mut state = self.state.lock();
        self.settle(&mut state);
        !state.awaited.is_empty()
    }

    /// A node is about to get a lock (L1); false: not yet. An error: it must not, for it cannot be written down.
    pub(crate) fn admit(&self, node: &Name) -> io::Result<bool> {
        let mut state = self.state.lock();
        self.settle(&mut state);
        if !state.awaited.is_empty() {
            return Ok(false);
        }
        if !state.listed.contains(node) {
            File::create(self.dir.join(hex(node)))?;
            sync(&self.dir)?;
            state.listed.insert(*node);
        }
        Ok(true)
    }

    /// Whether a node may claim what it held: nobody else can have had it meanwhile.
    pub(crate) fn may_claim(&self, node: &Name) -> bool {
        let mut state = self.state.lock();
        self.settle(&mut state);
        state.listed.contains(node)
    }

    /// A node has claimed all that it held; false: too late, it holds nothing.
    pub(crate) fn has_claimed(&self, node: &Name) -> bool {
        let mut state = self.state.lock();
        self.settle(&mut state);
        state.awaited.remove(node);
        state.listed.contains(node)
    }

    /// A node is gone, and what it held is about to be released (L2).
    pub(crate) fn gone(&self, node: &Name) {
        let mut state = self.state.lock();
        if state.ended || !state.listed.contains(node) {
            return;
        }
        if let Err(error) = self.cross_out([node].into_iter()) {
            tracing::error!(%error, dir = %self.dir.display(), "a node that is gone may claim its locks from the next server");
        }
        state.listed.remove(node);
        state.awaited.remove(node);
    }

    /// The server ends: what is written down is for the next one.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
    }
}

#[cfg(test)]
mod tests {
    use testkit::TempTree;

    use super::*;

    const A: Name = [0; 16];
    const B: Name = [0xab; 16];
    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn who_held_a_lock_may_claim_it_and_nobody_gets_another_before() {
        let tree = TempTree::new();
        let open = |grace| Lockers::open(tree.path("lockers"), grace).unwrap();
        let first = open(LONG);
        assert!(!first.is_grace() && !first.may_claim(&A), "nobody is awaited");
        assert!(first.admit(&A).unwrap() && first.admit(&A).unwrap());
        let second = open(LONG);
        assert!(second.is_grace() && second.may_claim(&A) && !second.may_claim(&B));
        assert!(!second.admit(&B).unwrap() && !second.admit(&A).unwrap());
        // A server that dies within the grace period changes nothing.
        let third = open(LONG);
        assert!(third.is_grace() && third.may_claim(&A));
        assert!(!third.has_claimed(&B) && third.is_grace(), "who held nothing is not awaited");
        assert!(third.has_claimed(&A) && third.has_claimed(&A) && !third.is_grace());
        assert!(third.admit(&B).unwrap());
        assert!(open(LONG).may_claim(&A) && open(LONG).may_claim(&B));
    }

    #[test]
    fn who_comes_after_the_grace_period_or_has_been_gone_holds_nothing_for_this_server_and_the_next() {
        let tree = TempTree::new();
        let open = |grace| Lockers::open(tree.path("lockers"), grace).unwrap();
        let first = open(LONG);
        assert!(first.admit(&A).unwrap() && first.admit(&B).unwrap());
        first.gone(&B);
        first.gone(&B);
        let late = open(Duration::ZERO);
        assert!(!late.may_claim(&A) && !late.is_grace() && !late.has_claimed(&A));
        let next = open(LONG);
        assert!(!next.is_grace() && !next.may_claim(&A) && !next.may_claim(&B));
        assert!(next.admit(&B).unwrap());
        next.end();
        next.gone(&B);
        assert!(open(LONG).may_claim(&B), "the server has ended, and not the node");
    }

    #[test]
    fn what_cannot_be_written_down_is_not_granted_and_the_grace_period_lasts_while_nobody_can_be_crossed_out() {
        let tree = TempTree::new();
        let first = Lockers::open(tree.path("lockers"), LONG).unwrap();
        assert!(first.admit(&A).unwrap());
        let late = Lockers::open(tree.path("lockers"), Duration::ZERO).unwrap();
        fs::rename(tree.path("lockers"), tree.path("away")).unwrap();
        assert!(late.is_grace() && !late.admit(&B).unwrap());
        fs::rename(tree.path("away"), tree.path("lockers")).unwrap();
        assert!(!late.is_grace());
        fs::rename(tree.path("lockers"), tree.path("away")).unwrap();
        assert!(late.admit(&B).is_err());
    }

    #[test]
    fn what_else_lies_there_is_nobody() {
        let tree = TempTree::new();
        tree.file("lockers/README", "");
        tree.file("lockers/+0000000000000000000000000000001", "");
        assert!(!Lockers::open(tree.path("lockers"), LONG).unwrap().is_grace());
    }
}
