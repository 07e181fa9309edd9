//! When programs last read a file, where its policy has reads noted (`atime=relative`, `atime=strict`).
//!
//! The kernel reads and maps complete replicas without telling anybody, but it notes that in the replica's own time of last
//! access, if the replica was opened through a mount that does (`noting.rs`). Our own reads of replicas leave that time alone.
//! What reaches the global copy, or a replica that is being filled, comes through us.
//!
//! 1. At its first open a replica gets the global copy's time of last access: what moves it from then on is a program's read.
//! 2. That time goes below when the file is closed, or staged out, or all is drained, and before a program sets the file's
//!    times: so a time that was set is never replaced by an earlier read. Nor is a later one below.
//! 3. Until then `stat` tells it. No record has it: a crash may lose it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};

use types::{Identity, Timestamp, Version};

use crate::cache::{CacheCounters, Inner};
use crate::file::File;
use crate::limits::{POLL, UNITS_NS};
use crate::noting::atime_of;

/// The version of a replica and the time of last access that it has without a read that we do not know of.
pub(crate) type Watched = (Version, Timestamp);

/// Guard of the one thread that writes the access times of all open files to the global store.
struct Settling(Arc<Inner>);

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.settling.store(false, Ordering::Release);
    }
}

impl Inner {
    /// A file is opened whose reads are to be noted. Gate held.
    pub(crate) fn watch_reads(&self, file: &File) {
        self.notes_reads.store(true, Ordering::Release);
        let (version, watched) = {
            let live = file.live.lock();
            (live.version, live.watched)
        };
        let Some(version) = version.filter(|version| watched.is_none_or(|(of, _)| of != *version)) else { return };
        let here = || self.replicas.stat(version).map(|stat| atime_of(&stat));
        let below = self.anchor_of(file, false).and_then(|anchor| anchor.map(|anchor| anchor.attributes()).transpose());
        if let (Ok(Some(below)), Ok(here)) = (&below, here())
            && !is_same(below.atime, here)
            && let Err(error) = self.replicas.set_atime(version, below.atime)
        {
            tracing::debug!(%error, file = %file.identity, "a replica keeps a time of last access of its own");
        }
        file.live.lock().watched = here().ok().map(|here| (version, here));
    }

    /// Starts to watch reads again after a program has set times. Gate held.
    pub(crate) fn watch_reads_again(&self, file: &File) {
        let watched = file.live.lock().watched.take();
        if watched.is_some() {
            self.watch_reads(file);
        }
    }

    /// When the file was last read, if that is not below, and what is watched once it is.
    pub(crate) fn last_read(&self, file: &File) -> Option<(Timestamp, Option<Watched>)> {
        let (asked, watched) = {
            let live = file.live.lock();
            (live.read_at, live.watched.filter(|(version, _)| live.version == Some(*version)))
        };
        let here = |(version, _)| Some((version, atime_of(&self.replicas.stat(version).ok()?)));
        let now = watched.and_then(here);
        let moved = now.filter(|_| now != watched).map(|(_, read)| read);
        Some((asked.max(moved)?, now))
    }

    /// When a file was last read, of which the global copy says `below`.
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

    /// The time of the last read goes below. What cannot be set there is lost. Gate held.
    pub(crate) fn settle_reads(&self, file: &File) {
        let asked = file.live.lock().read_at;
        let Some((read, now)) = self.last_read(file) else { return };
        let gone = {
            let live = file.live.lock();
            live.unlinked || live.retired
        };
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
            tracing::debug!(%error, file = %file.identity, "a time of last access is lost");
        }
        CacheCounters::add(&self.counters.staged_count, 1);
        let mut live = file.live.lock();
        // What was read meanwhile is not settled.
        live.read_at = live.read_at.filter(|read_at| Some(*read_at) != asked);
        live.watched = now.or(live.watched);
    }

    /// Nobody has the file open any more. A dirty one is settled when it is staged out.
    pub(crate) fn end_watch(&self, file: &File) {
        let waits = |file: &File| {
            let live = file.live.lock();
            live.handles > 0 || live.is_unclean() || (live.watched.is_none() && live.read_at.is_none())
        };
        if waits(file) {
            return;
        }
        let _gate = file.gate.lock();
        if !waits(file) {
            self.settle_reads(file);
            file.live.lock().watched = None;
        }
    }

    /// Those of all files that are open go below, if the store answers before somebody interrupts.
    pub(crate) fn settle_open_reads_unless(self: &Arc<Inner>, interrupted: &dyn Fn() -> bool) {
        if !self.notes_reads.load(Ordering::Acquire) || interrupted() {
            return;
        }
        // One at a time: a store that does not answer holds up one.
        while self.settling.swap(true, Ordering::AcqRel) {
            if interrupted() || self.is_dead() {
                return;
            }
            std::thread::sleep(POLL);
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
            tracing::debug!(%error, "times of last access wait for the close of their files");
        }
        while ended.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) && !interrupted() {}
        given_up.store(true, Ordering::Relaxed);
    }

    fn settle_open_reads(&self, given_up: &AtomicBool) {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        for file in files.iter().filter(|file| self.last_read(file).is_some()) {
            let _gate = file.gate.lock();
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
    /// Whether a read that we know of is the last access of a file that has another one below: it is later, or nobody has
    /// touched the one below since it was the replica's too.
    fn counts(&self, read: Timestamp, below: Timestamp) -> bool {
        read > below || self.live.lock().watched.is_some_and(|(_, then)| is_same(below, then))
    }
}

/// Whether a store may have kept `here` as `below`: it cuts times to its own unit.
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
