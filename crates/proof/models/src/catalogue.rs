//! Catalogue in memory, for tests and models.

use std::collections::BTreeMap;
use std::sync::Arc;

use concurrency::Mutex;
use types::Identity;

use catalogue::{Catalogue, Change, Durability, Error, Record, State};

/// Catalogue that keeps exactly what [`Catalogue`] promises and loses everything else in a crash. Clones share one
/// catalogue.
#[derive(Clone, Default)]
pub struct MemoryCatalogue {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    records: BTreeMap<Identity, Record>,
    /// Records that a machine crash would leave.
    durable: BTreeMap<Identity, Record>,
    commits: u64,
    /// Number of commits that still succeed, and number of commits after them that fail.
    fault: Option<(u64, u64)>,
    /// Whether the next failing commit takes effect all the same.
    late: bool,
    /// Whether the last commit failed.
    failed: bool,
}

impl MemoryCatalogue {
    /// Creates an empty catalogue.
    pub fn new() -> MemoryCatalogue {
        MemoryCatalogue::default()
    }

    /// Simulates the death of the machine: drops every commit since the last one with [`Durability::Machine`]. The
    /// death of the process loses nothing; to simulate it, just use the catalogue again.
    pub fn crash(&self) {
        let mut inner = self.inner.lock();
        inner.records = inner.durable.clone();
    }

    /// Lets `after` commits succeed and then `times` fail without an effect.
    pub fn fail_commits(&self, after: u64, times: u64) {
        let mut inner = self.inner.lock();
        (inner.fault, inner.late) = (Some((after, times)), false);
    }

    /// Lets `after` commits succeed and then `times` fail, but the first failing one takes effect. This is a commit
    /// whose sync failed after the write, for example.
    pub fn fail_commits_late(&self, after: u64, times: u64) {
        let mut inner = self.inner.lock();
        (inner.fault, inner.late) = (Some((after, times)), true);
    }

    /// Returns the number of commits so far, failed ones included.
    pub fn commits(&self) -> u64 {
        self.inner.lock().commits
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.inner.lock().records.len()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// Counts a commit and returns whether it must fail.
    fn fails(&mut self) -> bool {
        self.commits += 1;
        match &mut self.fault {
            Some((after, _)) if *after > 0 => *after -= 1,
            Some((_, times)) if *times > 0 => {
                *times -= 1;
                return true;
            }
            _ => {}
        }
        false
    }
}

impl Catalogue for MemoryCatalogue {
    fn may_have(&self, start: &[u8]) -> Result<bool, Error> {
        Ok(self.inner.lock().records.keys().any(|identity| identity.as_bytes().starts_with(start)))
    }

    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error> {
        Ok(self.inner.lock().records.get(identity).cloned())
    }

    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.failed = inner.fails();
        let outcome = if inner.failed { Err(Error::Io { step: "commit", reason: "injected".into() }) } else { Ok(()) };
        if inner.failed && !std::mem::take(&mut inner.late) {
            return outcome;
        }
        for change in changes {
            match change {
                Change::Put(identity, record) => inner.records.insert(identity, record),
                Change::Remove(identity) => inner.records.remove(&identity),
            };
        }
        if durability == Durability::Machine {
            inner.durable = inner.records.clone();
        }
        outcome
    }

    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error> {
        let records = self.inner.lock().records.clone();
        records.into_iter().filter(|(_, record)| record.state != State::Clean).for_each(|(i, r)| each(i, r));
        Ok(())
    }

    fn scan(
        &self,
        each: &mut dyn FnMut(Identity, Record) -> bool,
        _damaged: &mut dyn FnMut(Error),
    ) -> Result<(), Error> {
        let records = self.inner.lock().records.clone();
        for (identity, record) in records {
            if !each(identity, record) {
                break;
            }
        }
        Ok(())
    }

    fn trouble(&self) -> Option<String> {
        self.inner.lock().failed.then(|| "injected".into())
    }
}
