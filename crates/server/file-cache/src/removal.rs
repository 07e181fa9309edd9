//! Removal of a file's last name, and recovery from a crash in it.
//!
//! A name that is removed is gone from the global store at once, but not durably. Until the store's medium has the
//! removal, a crash of the store's machine brings the name back. The file must then be as in a plain directory, with
//! all synced data. So if a dirty replica holds synced data, record and replica outlive the removal:
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
//! If room runs out, these files are dropped earlier, and so are those of a store that cannot be synced. A crash that
//! takes their removal back then loses them. If the catalogue itself is lost they are orphans, for their replicas say
//! that they are dirty.
//!
//! All files removed since the last time share one sync of the store. A thread of its own waits for that, so a store
//! that hangs blocks nobody. For a file without synced data nothing was promised: record and replica are dropped with
//! the name. This is also so if the store does not find files by identity. Nobody could tell then whether such a file
//! is gone or moved, and its identity may become another's.
//!
//! # Invariants
//!
//! 1. A removed file that is kept has no record in memory: nobody counts it, stages it out or reports it. The catalogue
//!    has its record.
//! 2. Such a file is in the table of files until its record is gone: an open by its identity meets the file, not the
//!    record.
//! 3. The record is dropped after a sync of the store that began when the name was gone. It is dropped earlier only if
//!    its room was needed, or if the store could not be synced.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::{Change, Durability, Record, State};
use concurrency::Instant;
use global_store::Anchor;

use crate::cache::{Inner, RemovedFile};
use crate::fault;
use crate::limits::{BATCH_FILES, REMOVALS_AFTER, REMOVALS_SHARE, REMOVALS_WAIT};
use crate::residency::{Descriptors, File, Removal};

impl Inner {
    /// Prepares the removal of the last name. A crash of the machine brings back records that the medium still calls
    /// dirty. The record must say before that the file is about to go; otherwise the file becomes an orphan.
    pub(crate) fn removing(&self, file: &File) -> io::Result<()> {
        let _gate = file.gate();
        let (record, clean_commit, loaded) =
            file.peek(|live| (live.record().cloned(), live.clean_commit, live.is_loaded()));
        match record {
            None if !loaded => self.sync_commits(self.commits.forgotten.load(Ordering::Acquire)),
            Some(record) if record.state == State::Clean => self.sync_commits(clean_commit),
            Some(record) if !record.removing => {
                let durability = if record.synced { Durability::Machine } else { Durability::Process };
                let noted = self.put(file, Record { removing: true, ..record }, durability);
                fault::point("unlink.intent");
                noted
            }
            _ => Ok(()),
        }
    }

    /// Handles the removal of the last name. Gate held.
    pub(crate) fn unlinked(&self, file: &Arc<File>) -> io::Result<()> {
        fault::point("unlink.below");
        let (record, version, open, clean_commit) = {
            let mut live = file.live.lock();
            if live.removal == Removal::Kept {
                return Ok(());
            }
            live.removal = Removal::Done;
            (live.record().cloned(), live.version(), live.is_open(), live.clean_commit)
        };
        self.queue.remove(file);
        self.expiry.forget(&file.identity);
        if let Some(record) = record {
            // A crash that takes the removal back must find a replica with synced data.
            let holds = record.state != State::Clean && record.synced && file.live.lock().is_whole();
            let outlives = holds && self.store.finds_by_identity();
            // An NFS client renames an open file instead, until we close it, and has the removal on the medium.
            let named = |anchor: Arc<dyn Anchor>| anchor.attributes().is_ok_and(|found| found.links > 0);
            let left_over = outlives && self.anchor_of(file, false).ok().flatten().is_some_and(named);
            if outlives && !left_over {
                self.keep_removed(file, record);
                return Ok(());
            }
            version.iter().for_each(|version| self.replicas.remove_identity_attribute_of(*version));
            // The file was staged out since `removing`: the medium must not call it dirty once the replica is gone.
            let known = record.state != State::Clean || self.has_synced(clean_commit);
            let durability = if known && !left_over { Durability::Process } else { Durability::Machine };
            self.disown(&file.identity, version.map(|version| (version, open)), durability)?;
            file.live.lock().disowned();
        }
        fault::point("unlink.record");
        if !open {
            self.drop_replica(file)?;
            self.retire(file);
            fault::point("unlink.replica");
        }
        Ok(())
    }

    /// Keeps record and replica of a removed file. Gate held.
    pub(crate) fn keep_removed(&self, file: &Arc<File>, record: Record) {
        if !record.removing
            && let Err(error) = self.put(file, Record { removing: true, ..record }, Durability::Machine)
        {
            tracing::warn!(%error, file = %file.identity, "could not record the removal of a file: after a crash it may be reported as an orphan");
        }
        {
            let mut live = file.live.lock();
            live.removal = Removal::Kept;
            live.disowned();
            if !live.is_open() {
                // An open descriptor of the global copy takes room there.
                live.anchor = None;
                live.fds = Descriptors::default();
            }
        }
        let version = file.live.lock().version();
        let stat = version.and_then(|version| self.replicas.stat(version).ok());
        self.removals.add(file, stat.map_or(0, |stat| stat.st_blocks as u64 * 512), self.now());
        fault::point("unlink.kept");
    }

    /// Asks the store for a sync at once if that helps to free `excess` bytes.
    pub(crate) fn hurry_removals_of(&self, excess: u64) {
        let bytes = self.removals.state.lock().bytes();
        if bytes >= excess / REMOVALS_SHARE {
            self.hurry_removals();
        }
    }

    /// Drops all kept files, because programs have no room for their writes. Their data matters more than data that a
    /// crash may bring back.
    pub(crate) fn give_up_removals(&self) {
        self.removals.give_up();
        if self.drop_removed() {
            tracing::warn!(
                "the burst buffer is full: synced data of removed files was dropped before their removal was durable in the global store"
            );
        }
    }

    /// Starts a sync of the store for all removals so far, if none is running. Returns whether it started.
    pub(crate) fn hurry_removals(&self) -> bool {
        if !self.removals.begin(self.now()) {
            return false;
        }
        let (store, clock, removals) = (Arc::clone(&self.store), Arc::clone(&self.clock), Arc::clone(&self.removals));
        let sync = move || {
            let synced = store.sync_names();
            fault::point("unlink.synced");
            if let Err(error) = &synced {
                tracing::warn!(%error, "could not sync the global store: the data of removed files is kept, and the sync is tried again");
            }
            removals.end(synced.is_ok(), clock());
        };
        // Only threads that need the result wait for the end: the store may not answer.
        if let Err(error) = concurrency::spawn("removals", sync) {
            tracing::warn!(%error, "cannot start a thread: files that were removed are kept on");
            self.removals.end(false, self.now());
        }
        true
    }

    /// Frees room for `lacks` bytes, if the kept files hold that much. They are dropped when the store has their
    /// removal on the medium, or when that takes too long. Returns whether there may be room now.
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

    /// Waits until all removals so far are durable, for a bounded time. Returns whether they are.
    pub(crate) fn sync_removals(&self) -> bool {
        let until = Instant::now() + REMOVALS_WAIT;
        if self.hurry_removals() {
            return self.removals.wait(until);
        }
        // The running sync may have begun too early.
        self.removals.wait(until) && (!self.hurry_removals() || self.removals.wait(until))
    }

    /// Drops the files whose removal is durable. Returns whether there were some.
    pub(crate) fn drop_removed(&self) -> bool {
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

    /// Drops files. Returns those that must be tried again.
    fn drop_batch(&self, files: &[RemovedFile]) -> Vec<RemovedFile> {
        let (mut held, mut left) = (Vec::new(), Vec::new());
        for (file, bytes) in files {
            match file.try_gate() {
                Some(gate) => held.push((file, gate)),
                None => left.push((Arc::clone(file), *bytes)),
            }
        }
        let remove_identity_attribute_of = |file: &File| {
            file.live.lock().version().iter().for_each(|version| self.replicas.remove_identity_attribute_of(*version))
        };
        held.iter().for_each(|(file, _)| remove_identity_attribute_of(file));
        let changes = held.iter().map(|(file, _)| Change::Remove(file.identity.clone())).collect();
        if self.commit(changes, Durability::Process).is_err() {
            return files.to_vec();
        }
        fault::point("unlink.record");
        for (file, _gate) in held {
            let open = file.peek(|live| {
                live.removal = Removal::Done;
                live.is_open()
            });
            if !open {
                // The replica is garbage now. If this fails, the next start's sweep removes it.
                let _ = self.drop_replica(file);
                self.retire(file);
                fault::point("unlink.replica");
            }
        }
        left
    }
}
