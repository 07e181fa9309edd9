//! The removed files that are kept until the global store's medium has their removal.

use std::sync::Arc;
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};

use crate::limits::{REMOVALS_AFTER, REMOVALS_MAX, REMOVALS_SHARE, REMOVALS_TRIES};
use crate::residency::File;

/// A file with the bytes that its replica took in the burst buffer when it was removed.
pub(crate) type RemovedFile = (Arc<File>, u64);

#[derive(Default)]
pub(crate) struct Removals {
    pub(crate) state: Mutex<RemovalNotes>,
    synced: Condvar,
    /// Held by the thread that drops files. A thread that needs their room waits for it.
    pub(crate) dropping: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct RemovalNotes {
    /// Files for which no sync has begun. `since`: when the first of them came.
    waiting: Vec<RemovedFile>,
    since: Duration,
    /// Files that the running sync covers.
    syncing: Option<Vec<RemovedFile>>,
    /// Files whose removal is on the store's medium.
    pub(crate) settled: Vec<RemovedFile>,
    /// Number of syncs in a row that failed. `not_before`: the time before which none begins.
    failures: u32,
    not_before: Duration,
    /// Time before which nobody waits for a sync, because the last wait was in vain.
    pub(crate) no_wait_before: Duration,
}

impl RemovalNotes {
    pub(crate) fn bytes(&self) -> u64 {
        let all = self.waiting.iter().chain(self.syncing.iter().flatten()).chain(&self.settled);
        all.map(|(_, bytes)| bytes).sum()
    }
}

impl Removals {
    pub(crate) fn add(&self, file: &Arc<File>, bytes: u64, now: Duration) {
        let mut kept = self.state.lock();
        if kept.waiting.is_empty() {
            kept.since = now;
        }
        kept.waiting.push((Arc::clone(file), bytes));
    }

    /// Returns whether a sync should begin, given the free bytes of the burst buffer.
    pub(crate) fn is_due(&self, now: Duration, free: impl Fn() -> u64) -> bool {
        let kept = self.state.lock();
        if kept.waiting.is_empty() || kept.syncing.is_some() {
            return false;
        }
        kept.waiting.len() >= REMOVALS_MAX
            || now.saturating_sub(kept.since) >= REMOVALS_AFTER
            || kept.bytes() >= free() / REMOVALS_SHARE
    }

    /// Returns whether there is something to sync and no sync is running. If so, the caller must sync, and report it.
    pub(crate) fn begin(&self, now: Duration) -> bool {
        let mut kept = self.state.lock();
        if kept.waiting.is_empty() || kept.syncing.is_some() || now < kept.not_before {
            return false;
        }
        kept.syncing = Some(std::mem::take(&mut kept.waiting));
        true
    }

    pub(crate) fn end(&self, synced: bool, now: Duration) {
        let mut kept = self.state.lock();
        let mut files = kept.syncing.take().unwrap_or_default();
        kept.failures = if synced { 0 } else { kept.failures + 1 };
        if synced || kept.failures >= REMOVALS_TRIES {
            kept.settled.append(&mut files);
        } else {
            (kept.since, kept.not_before) = (now, now + REMOVALS_AFTER);
            kept.waiting.append(&mut files);
        }
        self.synced.notify_all();
    }

    /// Waits while a sync is running. Returns false if it still runs, or failed.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        let mut kept = self.state.lock();
        while kept.syncing.is_some() && !self.synced.wait_until(&mut kept, until).timed_out() {}
        kept.syncing.is_none() && kept.failures == 0
    }

    /// Lets all files that are left be dropped, even if the store's medium may lack their removal.
    pub(crate) fn give_up(&self) {
        let kept = &mut *self.state.lock();
        kept.settled.append(&mut kept.waiting);
        if let Some(syncing) = &mut kept.syncing {
            kept.settled.append(syncing);
        }
    }
}
