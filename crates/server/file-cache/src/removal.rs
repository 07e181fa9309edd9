//! The end of a file's last name, and what a crash makes of it.
//!
//! A name that is taken away is gone below at once, but not for good: until the global store's medium has that, a crash of its
//! machine brings the name back, and the file must then be what it would be in a plain directory, with all that was synced. So
//! where a dirty replica holds something synced, record and replica outlive the removal:
//!
//! | after | the burst buffer has | a start that finds the file gone below | that finds it there |
//! | --- | --- | --- | --- |
//! | `unlink.intent` | a record that says `removing`, on the medium; the replica | keeps it as from `unlink.kept` on | dirty as it was |
//! | `unlink.below` | the same | the same | the same: the removal was taken back |
//! | `unlink.kept` | the same; no user hears of it | the same | the same |
//! | `unlink.synced` | the same; the store's medium has the removal | the same | - |
//! | `unlink.record` | the replica, or neither | sweeps it | - |
//! | `unlink.replica` | nothing | | - |
//!
//! Where room runs out they go before that, as do those of a store that cannot be synced: after a crash that takes their removal back
//! they are lost. Where the catalogue itself is lost they are orphans, for their replicas say that they are dirty.
//!
//! All that were removed since the last time share one sync of the store, which a thread of its own waits for: a store that hangs
//! holds up nobody. Of a file with nothing synced nothing was promised: record and replica go with the name. So they do where the
//! store finds no file by its identity: nobody could tell whether such a file is gone or moved, and its identity may become another's.
//!
//! # Invariants
//!
//! 1. A file that is kept has no record in memory: nobody counts it, stages it out or tells of it. The catalogue has its record.
//! 2. It is in the table of files until its record is gone: whoever comes with its identity meets the file, not the record.
//! 3. Its record goes only after a sync of the store that began when the name was gone, or because its room was needed, or because the
//!    store could not be synced.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use catalogue::{Change, Durability, Record, State};
use parking_lot::{Condvar, Mutex};
use types::Identity;

use crate::cache::Inner;
use crate::fault;
use crate::file::{Body, Descriptors, File, NameHold};
use crate::limits::{BATCH_FILES, REMOVALS_AFTER, REMOVALS_MAX, REMOVALS_SHARE, REMOVALS_TRIES, REMOVALS_WAIT};

/// A file with the bytes that its replica took in the burst buffer when it was removed.
type Removed = (Arc<File>, u64);

/// Removed files that are kept.
#[derive(Default)]
pub(crate) struct Removals {
    state: Mutex<RemovalNotes>,
    synced: Condvar,
    /// Held by who drops them: who wants their room waits for him.
    dropping: Mutex<()>,
}

#[derive(Default)]
struct RemovalNotes {
    /// Those that no sync was begun for, and when the first of them came.
    waiting: Vec<Removed>,
    since: Duration,
    /// Those that the sync under way is for.
    syncing: Option<Vec<Removed>>,
    /// Those whose removal the store's medium has.
    settled: Vec<Removed>,
    /// Syncs in a row that failed; none is begun before that moment.
    failures: u32,
    not_before: Duration,
    /// Nobody waits for a sync before that moment: who did waited in vain.
    no_wait_before: Duration,
}

impl RemovalNotes {
    fn bytes(&self) -> u64 {
        let all = self.waiting.iter().chain(self.syncing.iter().flatten()).chain(&self.settled);
        all.map(|(_, bytes)| bytes).sum()
    }
}

impl Removals {
    fn add(&self, file: &Arc<File>, bytes: u64, now: Duration) {
        let mut kept = self.state.lock();
        if kept.waiting.is_empty() {
            kept.since = now;
        }
        kept.waiting.push((Arc::clone(file), bytes));
    }

    /// Whether somebody is to begin a sync, with so many bytes of the burst buffer free.
    fn is_due(&self, now: Duration, free: impl Fn() -> u64) -> bool {
        let kept = self.state.lock();
        if kept.waiting.is_empty() || kept.syncing.is_some() {
            return false;
        }
        kept.waiting.len() >= REMOVALS_MAX
            || now.saturating_sub(kept.since) >= REMOVALS_AFTER
            || kept.bytes() >= free() / REMOVALS_SHARE
    }

    /// Whether there is something to sync, and nobody does: the caller must, and say how it ended.
    fn begin(&self, now: Duration) -> bool {
        let mut kept = self.state.lock();
        if kept.waiting.is_empty() || kept.syncing.is_some() || now < kept.not_before {
            return false;
        }
        kept.syncing = Some(std::mem::take(&mut kept.waiting));
        true
    }

    fn end(&self, synced: bool, now: Duration) {
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

    /// Waits while somebody syncs. False: he still does, or it failed.
    fn wait(&self, until: Instant) -> bool {
        let mut kept = self.state.lock();
        while kept.syncing.is_some() && !self.synced.wait_until(&mut kept, until).timed_out() {}
        kept.syncing.is_none() && kept.failures == 0
    }

    /// Lets all files that are left be dropped, even if the store's medium may lack their removal.
    fn give_up(&self) {
        let kept = &mut *self.state.lock();
        kept.settled.append(&mut kept.waiting);
        if let Some(syncing) = &mut kept.syncing {
            kept.settled.append(syncing);
        }
    }
}

impl Inner {
    /// The last name is about to be taken away. A crash of the machine brings back what the medium still calls dirty: that must be
    /// known to be on its way out, or it is an orphan.
    pub(crate) fn removing(&self, file: &File) -> io::Result<()> {
        let _gate = file.gate.lock();
        let (record, clean_commit, loaded) = {
            let live = file.live.lock();
            (live.record.clone(), live.clean_commit, live.loaded)
        };
        match record {
            None if !loaded => self.sync_commits(self.forgotten.load(Ordering::Acquire)),
            Some(record) if record.state == State::Clean => self.sync_commits(clean_commit),
            Some(record) if !record.removing => {
                let durability = if record.synced { Durability::Machine } else { Durability::Process };
                let noted = self.put(file, Record { removing: true, ..record }, durability);
                fault::point("unlink.intent");
                noted
            }
            _ => {
                // What is to take its place does so no more, and the record goes on saying it.
                file.live.lock().place = NameHold::Own;
                Ok(())
            }
        }
    }

    /// The last name is gone. `lasts`: the store's medium has that. Gate held.
    pub(crate) fn unlinked(&self, file: &Arc<File>, lasts: bool) -> io::Result<()> {
        fault::point("unlink.below");
        let (record, version, open, clean_commit) = {
            let mut live = file.live.lock();
            if live.removal_unsynced {
                return Ok(());
            }
            live.unlinked = true;
            (live.record.clone(), live.version, live.handles > 0, live.clean_commit)
        };
        self.queue.remove(file);
        self.expiry.forget(&file.identity);
        if let Some(record) = record {
            let outlives = !lasts && self.outlives_its_name(file, &record);
            // A client of NFS calls it otherwise until we let go, and has the removal on the medium.
            let left_over = outlives && self.is_named(file);
            if outlives && !left_over {
                self.keep_removed(file, record);
                return Ok(());
            }
            version.iter().for_each(|version| self.replicas.remove_identity_attribute_of(*version));
            // It was staged out since `removing`: the medium must not call it dirty once the replica is gone.
            let known = record.state != State::Clean || self.has_synced(clean_commit);
            let durability = if known && !left_over { Durability::Process } else { Durability::Machine };
            self.disown(&file.identity, version.map(|version| (version, open)), durability)?;
            file.live.lock().record = None;
        }
        fault::point("unlink.record");
        if !open {
            self.drop_replica(file)?;
            self.retire(file);
            fault::point("unlink.replica");
        }
        Ok(())
    }

    /// Whether a crash that takes the removal back must find the replica.
    fn outlives_its_name(&self, file: &File, record: &Record) -> bool {
        let holds = record.state != State::Clean && record.synced;
        holds && self.store.finds_by_identity() && matches!(file.live.lock().body, Body::Whole)
    }

    /// Whether it has a name below. Gate held.
    fn is_named(&self, file: &File) -> bool {
        let anchor = self.anchor_of(file, false).ok().flatten();
        anchor.is_some_and(|anchor| anchor.attributes().is_ok_and(|found| found.links > 0))
    }

    /// Gate held.
    fn keep_removed(&self, file: &Arc<File>, record: Record) {
        if !record.removing
            && let Err(error) = self.put(file, Record { removing: true, ..record }, Durability::Machine)
        {
            tracing::warn!(%error, file = %file.identity, "a file that was removed may be told of as an orphan after a crash");
        }
        {
            let mut live = file.live.lock();
            (live.unlinked, live.removal_unsynced) = (true, true);
            (live.record, live.ended) = (None, false);
            if live.handles == 0 {
                // What is held of it below takes room there.
                live.anchor = None;
                live.fds = Descriptors::default();
            }
        }
        let version = file.live.lock().version;
        let stat = version.and_then(|version| self.replicas.stat(version).ok());
        self.removals.add(file, stat.map_or(0, |stat| stat.st_blocks as u64 * 512), self.now());
        fault::point("unlink.kept");
    }

    /// A start found that a file is gone whose last name was being taken away: the store's medium may not have that yet.
    pub(crate) fn keep_from_before(&self, identity: Identity, record: Record) {
        let file = self.adopt(identity, record.clone(), Body::Whole);
        self.keep_removed(&file, record);
    }

    /// One round of housekeeping. Waits for nothing.
    pub(crate) fn look_after_removals(&self) {
        self.drop_removed();
        if self.removals.is_due(self.now(), || self.spaces.now().free) {
            self.hurry_removals();
        }
    }

    /// Room of `excess` bytes is wanted: the store is asked at once if it is worth it.
    pub(crate) fn hurry_removals_of(&self, excess: u64) {
        let bytes = self.removals.state.lock().bytes();
        if bytes >= excess / REMOVALS_SHARE {
            self.hurry_removals();
        }
    }

    /// There is no room for what programs write now, which is worth more than what a crash may bring back.
    pub(crate) fn give_up_removals(&self) {
        self.removals.give_up();
        if self.drop_removed() {
            tracing::warn!(
                "no room: what was synced of removed files went before the global store had their removal on its medium"
            );
        }
    }

    /// Has the store make all removals so far last, if nobody does already. Whether it began.
    fn hurry_removals(&self) -> bool {
        if !self.removals.begin(self.now()) {
            return false;
        }
        let (store, clock, removals) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.removals));
        let sync = move || {
            let synced = store.sync_names();
            fault::point("unlink.synced");
            if let Err(error) = &synced {
                tracing::warn!(%error, "the global store could not be synced: files that were removed are kept on");
            }
            removals.end(synced.is_ok(), clock());
        };
        // Nobody waits for its end but who needs it: the store may not answer.
        if let Err(error) = std::thread::Builder::new().name("removals".to_owned()).spawn(sync) {
            tracing::warn!(%error, "cannot start a thread: files that were removed are kept on");
            self.removals.end(false, self.now());
        }
        true
    }

    /// Somebody lacks so many bytes: if what is kept would give them it goes, when the store has its removal on the medium, or
    /// when that takes too long. Whether there may be room now.
    pub(crate) fn settle_removals(&self, lacks: u64) -> bool {
        let (bytes, waits) = {
            let kept = self.removals.state.lock();
            (kept.bytes(), self.now() >= kept.no_wait_before)
        };
        if bytes == 0 || bytes < lacks {
            return false;
        }
        if waits && self.sync_removals() {
            self.drop_removed();
            return true;
        }
        if waits {
            self.removals.state.lock().no_wait_before = self.now() + REMOVALS_AFTER;
        }
        self.give_up_removals();
        true
    }

    /// The end of the agent. What is left is dropped by the next start.
    pub(crate) fn end_removals(&self) {
        self.sync_removals();
        self.drop_removed();
    }

    /// Waits until all removals so far last, but not for long. Whether they do.
    fn sync_removals(&self) -> bool {
        let until = Instant::now() + REMOVALS_WAIT;
        if self.hurry_removals() {
            return self.removals.wait(until);
        }
        // The one that is under way may have begun too early.
        self.removals.wait(until) && (!self.hurry_removals() || self.removals.wait(until))
    }

    /// Drops the files whose removal lasts. Whether there were some.
    fn drop_removed(&self) -> bool {
        let _alone = self.removals.dropping.lock();
        let settled = std::mem::take(&mut self.removals.state.lock().settled);
        let mut left = Vec::new();
        for files in settled.chunks(BATCH_FILES) {
            left.append(&mut self.drop_batch(files));
        }
        let dropped = left.len() < settled.len();
        self.removals.state.lock().settled.append(&mut left);
        dropped
    }

    /// Returns those that are to be tried again.
    fn drop_batch(&self, files: &[Removed]) -> Vec<Removed> {
        let (mut held, mut left) = (Vec::new(), Vec::new());
        for (file, bytes) in files {
            match file.gate.try_lock() {
                Some(gate) => held.push((file, gate)),
                None => left.push((Arc::clone(file), *bytes)),
            }
        }
        let remove_identity_attribute_of = |file: &File| {
            file.live.lock().version.iter().for_each(|version| self.replicas.remove_identity_attribute_of(*version))
        };
        held.iter().for_each(|(file, _)| remove_identity_attribute_of(file));
        let changes = held.iter().map(|(file, _)| Change::Remove(file.identity.clone())).collect();
        if self.commit(changes, Durability::Process).is_err() {
            return files.to_vec();
        }
        fault::point("unlink.record");
        for (file, _gate) in held {
            let open = {
                let mut live = file.live.lock();
                live.removal_unsynced = false;
                live.handles > 0
            };
            if !open {
                // It is garbage now; a failure leaves it to the next start's sweep.
                let _ = self.drop_replica(file);
                self.retire(file);
                fault::point("unlink.replica");
            }
        }
        left
    }
}
