//! Truths that hold whatever the network and the server do. Each violation is noted, and fails the story at its end.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use concurrency::Mutex;
use types::LockKind;

/// A lock as a program asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claimed {
    pub file: u8,
    pub node: u64,
    pub owner: u64,
    pub flock: bool,
    pub exclusive: bool,
    /// First and last byte.
    pub range: (u64, u64),
}

impl Claimed {
    pub fn new((file, node, owner): (u8, u64, u64), flock: bool, kind: LockKind, range: (u64, u64)) -> Claimed {
        Claimed { file, node, owner, flock, exclusive: kind == LockKind::Exclusive, range }
    }

    fn conflicts(&self, other: &Claimed) -> bool {
        self.file == other.file
            && self.flock == other.flock
            && (self.node, self.owner) != (other.node, other.owner)
            && (self.exclusive || other.exclusive)
            && (self.flock || (self.range.0 <= other.range.1 && other.range.0 <= self.range.1))
    }
}

#[derive(Default)]
struct Log {
    /// Counts everything that is noted.
    moment: u64,
    grants: Vec<(u64, Claimed)>,
    /// Moments at which writes were executed, by their content.
    written: BTreeMap<u64, u64>,
    /// Number of session instances of each client.
    instances: BTreeMap<u64, usize>,
    violations: Vec<String>,
    trace: DefaultHasher,
    counts: BTreeMap<&'static str, u64>,
}

/// Notes what happens, and what must not.
#[derive(Default)]
pub struct Oracle(Mutex<Log>);

impl Oracle {
    fn happens(&self, what: impl Hash) -> u64 {
        let mut log = self.0.lock();
        log.moment += 1;
        what.hash(&mut log.trace);
        log.moment
    }

    /// Counts an event, to see that stories are not empty.
    pub fn counts(&self, what: &'static str) {
        self.happens(what);
        *self.0.lock().counts.entry(what).or_default() += 1;
    }

    /// Notes that a server begins to remember a client.
    pub fn remembers(&self, client: u64) {
        self.happens(client);
        *self.0.lock().instances.entry(client).or_default() += 1;
    }

    /// Whether a client knows each session instance that can have answered it: it remembers the last two.
    pub fn knows_all_servers(&self, client: u64) -> bool {
        self.0.lock().instances.get(&client).is_none_or(|count| *count <= 2)
    }

    /// Notes that something must not be.
    pub fn violated(&self, what: String) {
        self.0.lock().violations.push(what);
    }

    /// Notes that the living server has granted a lock.
    pub fn granted(&self, lock: Claimed) {
        let moment = self.happens(lock);
        self.0.lock().grants.push((moment, lock));
    }

    /// Notes that a write was executed.
    pub fn executed(&self, id: u64) {
        let moment = self.happens(id);
        self.0.lock().written.insert(id, moment);
    }

    /// Returns the moment at which a program's lock was granted last.
    pub fn grant_of(&self, lock: &Claimed) -> u64 {
        let log = self.0.lock();
        let grant = log.grants.iter().rev().find(|(_, grant)| grant == lock).map(|(moment, _)| *moment);
        drop(log);
        grant.unwrap_or_else(|| {
            self.violated(format!("a program was told that it has {lock:?}, which nobody has granted"));
            0
        })
    }

    /// Checks a write that a program made while it believed that it had a lock since `since`.
    pub fn wrote_under(&self, lock: &Claimed, since: u64, id: u64) {
        let log = self.0.lock();
        let Some(at) = log.written.get(&id).copied() else { return };
        let between = |(moment, other): &&(u64, Claimed)| (since..at).contains(moment) && lock.conflicts(other);
        let other = log.grants.iter().find(between).copied();
        drop(log);
        if let Some(other) = other {
            self.violated(format!("{id:x} was written under {lock:?} of {since}, at {at}, beside {other:?}"));
        }
    }

    /// Returns the violations, a number for everything that has happened, and the counts.
    pub fn ends(&self) -> (Vec<String>, u64, BTreeMap<&'static str, u64>) {
        let log = self.0.lock();
        (log.violations.clone(), log.trace.finish(), log.counts.clone())
    }
}
