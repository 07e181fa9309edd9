//! Access times of files whose policy has reads noted (`atime=relative`, `atime=strict`).
//!
//! The kernel reads and maps complete replicas without the agent. It notes reads in the replica's own access time, if
//! the replica was opened through a mount that does so (`noting.rs`). Our own reads of replicas leave that time
//! unchanged. Reads of the global copy, or of a replica that is being filled, come through the agent.
//!
//! 1. At its first open a replica gets the global copy's access time: any later time shows a program's read.
//! 2. That time is written to the global copy when the file is closed or staged out, in a drain of everything, and
//!    before a program sets the file's times. So an earlier read never replaces a time that was set, nor a later time
//!    of the global copy.
//! 3. Until then `stat` reports it. No record has it: a crash may lose it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};

use types::{Identity, Timestamp};

use crate::burst_buffer::noting::atime_of;
use crate::cache::{CacheCounters, Inner};
use crate::limits::{POLL, UNITS_NS};
use crate::residency::{File, Watched};

/// Guard of the one thread that writes the access times of all open files to the global store.
struct Settling(Arc<Inner>);

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.settling.store(false, Ordering::Release);
    }
}

impl Inner {
    /// Starts to watch reads of a file that is being opened. Gate held.
    pub(crate) fn watch_reads(&self, file: &File) {
        self.notes_reads.store(true, Ordering::Release);
        let (version, watched) = file.peek(|live| (live.version(), live.reads.watched));
        let Some(version) = version.filter(|version| watched.is_none_or(|(of, _)| of != *version)) else { return };
        let here = || self.replicas.stat(version).map(|stat| atime_of(&stat));
        let below = self.anchor_of(file, false).and_then(|anchor| anchor.map(|anchor| anchor.attributes()).transpose());
        if let (Ok(Some(below)), Ok(here)) = (&below, here())
            && !is_same(below.atime, here)
            && let Err(error) = self.replicas.set_atime(version, below.atime)
        {
            tracing::debug!(%error, file = %file.identity, "could not set the access time of a replica: it keeps its own");
        }
        file.live.lock().reads.watched = here().ok().map(|here| (version, here));
    }

    /// Starts to watch reads again after a program has set times. Gate held.
    pub(crate) fn watch_reads_again(&self, file: &File) {
        let watched = file.live.lock().reads.watched.take();
        if watched.is_some() {
            self.watch_reads(file);
        }
    }

    /// Returns when the file was last read, if the global copy does not have that time yet, and the new state of the
    /// watch for the time after it does.
    pub(crate) fn last_read(&self, file: &File) -> Option<(Timestamp, Option<Watched>)> {
        let (asked, watched) = file.peek(|live| {
            (live.reads.asked, live.reads.watched.filter(|(version, _)| live.version() == Some(*version)))
        });
        let here = |(version, _)| Some((version, atime_of(&self.replicas.stat(version).ok()?)));
        let now = watched.and_then(here);
        let moved = now.filter(|_| now != watched).map(|(_, read)| read);
        Some((asked.max(moved)?, now))
    }

    /// Returns when a file was last read; `below` is the global copy's access time.
    pub(crate) fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        if !self.notes_reads.load(Ordering::Acquire) {
            return below;
        }
        let Some(file) = self.known(identity) else { return below };
        match self.last_read(&file) {
            Some((read, _)) if file.counts(read, below) => read,
            _ => below,
        }
    }

    /// Writes the time of the last read to the global copy. If it cannot be set there, it is lost. Gate held.
    pub(crate) fn settle_reads(&self, file: &File) {
        let asked = file.live.lock().reads.asked;
        let Some((read, now)) = self.last_read(file) else { return };
        let gone = file.peek(|live| live.is_unlinked() || live.is_retired());
        let finish = || -> io::Result<()> {
            let Some(anchor) = self.anchor_of(file, false)? else { return Ok(()) };
            let before = anchor.attributes()?;
            if !file.counts(read, before.atime) {
                return Ok(());
            }
            anchor.set_atime(read)?;
            self.follow_own(file, &before.fingerprint, anchor.attributes()?.fingerprint);
            Ok(())
        };
        if !gone && let Err(error) = finish() {
            tracing::debug!(%error, file = %file.identity, "could not write an access time to the global copy: it is lost");
        }
        CacheCounters::add(&self.counters.staged_count, 1);
        let mut live = file.live.lock();
        // Reads made meanwhile are not written yet.
        live.reads.asked = live.reads.asked.filter(|read_at| Some(*read_at) != asked);
        live.reads.watched = now.or(live.reads.watched);
    }

    /// Ends the watch after the last close. A dirty file's access time is written by its stage-out.
    pub(crate) fn end_watch(&self, file: &File) {
        let waits = |file: &File| {
            let live = file.live.lock();
            live.is_open() || live.is_unclean() || (live.reads.watched.is_none() && live.reads.asked.is_none())
        };
        if waits(file) {
            return;
        }
        let _gate = file.gate();
        if !waits(file) {
            self.settle_reads(file);
            file.live.lock().reads.watched = None;
        }
    }

    /// Writes the access times of all open files to the global store, if the store answers before `interrupted`.
    pub(crate) fn settle_open_reads_unless(self: &Arc<Inner>, interrupted: &dyn Fn() -> bool) {
        if !self.notes_reads.load(Ordering::Acquire) || interrupted() {
            return;
        }
        // One thread at a time: a store that does not answer blocks only one.
        while self.settling.swap(true, Ordering::AcqRel) {
            if interrupted() || self.is_dead() {
                return;
            }
            concurrency::sleep(POLL);
        }
        let (end, ended) = mpsc::channel::<()>();
        let settling = Settling(Arc::clone(self));
        let given_up = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&given_up);
        let finish = move || {
            let _end = end;
            settling.0.settle_open_reads(&stop);
            drop(settling);
        };
        if let Err(error) = self.threads.start("reads", finish) {
            tracing::debug!(%error, "could not write the access times of open files now: each is written when its file is closed");
        }
        while ended.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) && !interrupted() {}
        given_up.store(true, Ordering::Relaxed);
    }

    fn settle_open_reads(&self, given_up: &AtomicBool) {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        for file in files.iter().filter(|file| self.last_read(file).is_some()) {
            let _gate = file.gate();
            if given_up.load(Ordering::Relaxed) || self.is_dead() {
                return;
            }
            let waits = file.live.lock().is_unclean();
            if !waits {
                self.settle_reads(file);
            }
        }
    }
}

impl File {
    /// Returns whether a known read is the last access, although the global copy has another access time: it is later,
    /// or nobody has changed the global copy's since both were equal.
    fn counts(&self, read: Timestamp, below: Timestamp) -> bool {
        read > below || self.live.lock().reads.watched.is_some_and(|(_, then)| is_same(below, then))
    }
}

/// Returns whether a store may have kept `here` as `below`: stores truncate times to their own unit.
fn is_same(below: Timestamp, here: Timestamp) -> bool {
    let ns = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    UNITS_NS.iter().any(|unit| ns(below) == ns(here) - ns(here).rem_euclid(*unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S36
    fn a_time_that_a_store_cuts_to_its_unit_is_the_same_and_no_other_is() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        let here = at(1_000_001, 123_456_789);
        for kept in [123_456_789, 123_456_700, 123_456_000, 123_000_000, 120_000_000, 0] {
            assert!(is_same(at(1_000_001, kept), here), "{kept}");
        }
        assert!(is_same(at(1_000_000, 0), here), "to two seconds");
        for other in [at(1_000_001, 123_456_788), at(1_000_001, 123_456_790), at(999_999, 0), at(1_000_002, 0)] {
            assert!(!is_same(other, here), "{other:?}");
        }
    }
}
