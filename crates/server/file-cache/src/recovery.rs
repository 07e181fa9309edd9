//! Opening of a burst buffer, in whatever state the last agent left it.

mod damage;
mod search;

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record, State};
use config::KeepAfter;
use types::{Identity, Shown, Version};

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::Replicas;
use crate::burst_buffer::space::{self, Spaces};
use crate::burst_buffer::superblock::{Superblock, check_owner};
use crate::cache::{CacheCounters, DescriptorBudget, FetchQueue, FileQueue, Inner, is_void};
use crate::clock;
use crate::limits::{STOP_WAIT, SWEEP_AFTER};
use crate::residency::{Compared, File};
use crate::settings::{OpenError, Settings};
use crate::stage_out::StageOutResult;

pub use search::may_go_with_crash;

fn failed(root: &Path, step: &'static str) -> impl FnOnce(std::io::Error) -> OpenError + use<> {
    let path = root.to_path_buf();
    move |source| OpenError::Io { path, step, source }
}

/// Opens everything, and queues the files that a crash left dirty.
pub(crate) fn open(mut settings: Settings) -> Result<Arc<Inner>, OpenError> {
    lease::ignore_signals();
    DescriptorBudget::raise();
    let root = settings.burst_buffer.clone();
    let superblock = Superblock::open(&root, &settings.store_id, &settings.agent_id)?;
    let replicas = Replicas::open(&root).map_err(failed(&root, "make the directories"))?;
    ["replicas", "sums", "saved"].iter().try_for_each(|name| check_owner(&root.join(name), false))?;
    let leases = check_leases(&root);
    leases.map_err(failed(&root, "take a lease on a file, which its file system must grant"))?;
    // The catalogue, if it is the burst buffer's own.
    let mut ours = None;
    let catalogue: Arc<dyn Catalogue> = match &settings.catalogue {
        Some(catalogue) => Arc::clone(catalogue),
        None => ours.insert(Arc::new(FjallCatalogue::open(root.join("catalogue"))?)).clone(),
    };
    // There may be unsaved data that the catalogue does not know.
    let lost = superblock.existed && ours.as_ref().is_some_and(|ours| ours.may_lack_records().unwrap_or(true));
    settings.agent_id = superblock.agent_id();
    let clock = settings.clock.clone().unwrap_or_else(clock::system);
    let probe = settings.space.clone().unwrap_or_else(|| space::statvfs(root.clone()));
    let spaces = Spaces::new(probe, Arc::clone(&clock), root.join("ballast"), settings.ballast_bytes);
    let inner = Arc::new(Inner {
        store: Arc::clone(&settings.store),
        settings,
        catalogue,
        replicas,
        on_change: Default::default(),
        superblock,
        spaces,
        clock,
        queue: FileQueue::default(),
        fetches: FetchQueue::default(),
        expiry: Default::default(),
        removals: Default::default(),
        doubts: Default::default(),
        refusal: Default::default(),
        throttle: Default::default(),
        counters: CacheCounters::default(),
        gathering: Default::default(),
        evictions: Default::default(),
        quiesced: AtomicBool::new(false),
        commits: Default::default(),
        dead: AtomicBool::new(false),
        notes_reads: AtomicBool::new(false),
        settling: AtomicBool::new(false),
        xattrs: AtomicBool::new(true),
        unmarked: Default::default(),
        ready: Default::default(),
        threads: Default::default(),
        table: Default::default(),
    });
    // From here on the catalogue keeps room in reserve.
    let _keeps = inner.catalogue.has_room();
    // From here on everything that the former process was told is on the medium.
    inner.catalogue.commit(Vec::new(), Durability::Machine)?;
    let crashed = inner.superblock.is_unsearched();
    if lost || crashed || inner.settings.thorough {
        let searched = inner.search(lost, crashed);
        searched.map_err(failed(&root, "look for unsaved data that the catalogue does not know"))?;
        ours.iter().for_each(|ours| ours.searched());
    }
    inner.adopt_unclean()?;
    inner.superblock.keep_room(inner.spaces.now().free);
    inner.spaces.forget();
    if inner.settings.background {
        inner.start();
    }
    Ok(inner)
}

/// Checks that leases work: without them no file would ever become clean.
fn check_leases(root: &Path) -> std::io::Result<()> {
    // An existing file, for there may be no room for another.
    let superblock = std::fs::File::open(root.join("superblock"))?;
    lease::probe(superblock.as_fd(), Nobody::Writes).map(|_| ())
}

impl Inner {
    fn adopt_unclean(&self) -> Result<(), OpenError> {
        let mut found = Vec::new();
        match self.catalogue.unclean(&mut |identity, record| found.push((identity, record))) {
            // The other records are worth more than a refusal to start. A dirty replica of the damaged record is kept,
            // and `check` shows it.
            Err(error @ catalogue::Error::Damaged { .. }) => {
                tracing::error!(%error, "a record of unsaved data is damaged: the replica is kept, see `forebay check`")
            }
            result => result?,
        }
        for (identity, mut record) in found {
            let replica = self.replicas.stat(record.version);
            if replica.as_ref().is_ok_and(is_void) {
                self.forget(identity, record.version)?;
                continue;
            }
            let there = replica.is_ok();
            let mut ended = false;
            if let Ok(replica) = &replica
                && !record.damaged
            {
                let former = record.synced_len;
                (record, ended) = self.with_damage(record, replica);
                if record.damaged || record.synced_len != former {
                    if record.damaged {
                        tracing::error!(file = %record.hint.shown(), reason = record.reason, "the replica of a dirty file is damaged: the file is not opened and not staged out until `forebay resolve` decides");
                    }
                    let kept = Change::Put(identity.clone(), record.clone());
                    self.catalogue.commit(vec![kept], Durability::Machine)?;
                }
            }
            if !there && matches!(self.store.locate(&identity, &record.hint, false), Ok(None)) {
                tracing::warn!(file = %record.hint.shown(), "removed the record of a dirty file that has neither a replica nor a global copy");
                self.catalogue.commit(vec![Change::Remove(identity)], Durability::Process)?;
                continue;
            }
            let mut doubted = false;
            if record.removing {
                match self.is_gone(&identity, &record) {
                    Some(true) => {
                        self.forget_removed(&identity, &record)?;
                        continue;
                    }
                    // A later removal of the file is not one of ours.
                    Some(false) => {
                        record.removing = false;
                        let kept = Change::Put(identity.clone(), record.clone());
                        self.catalogue.commit(vec![kept], Durability::Process)?;
                    }
                    None => doubted = true,
                }
            }
            if !there {
                tracing::error!(file = %record.hint.shown(), "the replica of a dirty file is missing in the burst buffer: its unsaved data is lost");
            }
            // An identity attribute that could not follow the record does not count.
            let identity_attribute = self.replicas.read_identity_attribute(record.version).filter(|_| there);
            if there
                && identity_attribute.is_none_or(|identity_attribute| {
                    (identity_attribute.epoch, identity_attribute.base) != (record.epoch, record.base)
                })
            {
                self.unmarked.lock().files.insert(identity.clone());
            }
            let conflict = record.state == State::Conflict;
            let file = self.adopt(identity, record, there);
            {
                let mut live = file.live.lock();
                if ended {
                    live.compared = Compared::AwaitsEnd;
                }
                if doubted {
                    live.removal.doubt();
                }
            }
            if there && !conflict {
                self.queue.push(&file, Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Returns whether a file is gone whose last name was being removed when the agent died. Returns `None` if the
    /// store did not answer, and may later.
    fn is_gone(&self, identity: &Identity, record: &Record) -> Option<bool> {
        if !self.store.finds_by_identity() {
            return Some(false);
        }
        let found = self.store.locate(identity, &record.hint, false).inspect_err(|error| {
            tracing::warn!(%error, file = %record.hint.shown(), "could not check whether a file was removed: it is checked later");
        });
        found.ok().map(|found| found.is_none())
    }

    /// Resolves the doubt about a removal that the start could not check, after a look at the file now. Returns the
    /// result that ends its stage-out, if any. Gate held.
    pub(crate) fn end_doubt(&self, file: &Arc<File>, is_gone: bool) -> Option<StageOutResult> {
        if !file.live.lock().removal.end_doubt() {
            return None;
        }
        let record = file.live.lock().record().cloned()?;
        let ended = if is_gone {
            self.unlinked(file)
        } else {
            self.put(file, Record { removing: false, ..record }, Durability::Process)
        };
        match ended {
            Ok(()) => is_gone.then_some(StageOutResult::Nothing),
            Err(error) => {
                file.live.lock().removal.doubt();
                Some(self.note_failure(file, error, None))
            }
        }
    }

    /// Completes the removal that was requested before the agent died.
    fn forget_removed(&self, identity: &Identity, record: &Record) -> Result<(), OpenError> {
        tracing::info!(file = %record.hint.shown(), "a file is gone whose removal was under way when the agent died: its data is removed too");
        if record.synced {
            // The store's medium may not have the removal yet.
            let file = self.adopt(identity.clone(), record.clone(), true);
            self.keep_removed(&file, record.clone());
            return Ok(());
        }
        self.replicas.remove_identity_attribute_of(record.version);
        self.forget(identity.clone(), record.version)
    }

    fn forget(&self, identity: Identity, version: Version) -> Result<(), OpenError> {
        self.catalogue.commit(vec![Change::Remove(identity)], Durability::Process)?;
        // The replica is garbage now. If this fails, the sweep removes it.
        let _ = self.replicas.remove(version);
        Ok(())
    }

    /// Removes replicas without a record that earlier agents left, and sets the deadlines of clean ones. Returns how
    /// many were removed.
    pub(crate) fn sweep(&self) -> std::io::Result<u64> {
        let mut recorded: HashSet<Version> = HashSet::new();
        let keep = match self.settings.policy.keep_after {
            KeepAfter::For(keep) => keep,
            KeepAfter::Delete => Duration::ZERO,
        };
        let scanned = self.catalogue.scan(
            &mut |identity, record| {
                recorded.insert(record.version);
                if record.state == State::Clean && !record.pinned && !self.expiry.has(&identity) {
                    self.expiry.set(&identity, self.now().saturating_add(keep));
                }
                !self.is_dead()
            },
            &mut |error| tracing::error!(%error, "found a damaged record in the catalogue, see `forebay check`"),
        );
        scanned.map_err(crate::cache::broken)?;
        if self.is_dead() {
            // Not all records were seen.
            return Ok(0);
        }
        let mut garbage = Vec::new();
        self.replicas.each(&mut |version| {
            if version < self.superblock.first && !recorded.contains(&version) {
                garbage.push(version);
            }
            !self.is_dead()
        })?;
        let mut removed = 0;
        for version in garbage {
            if self.is_dead() {
                break;
            }
            // Dropping a replica removes its identity attribute first. So its record may be damaged or lost.
            if self.replicas.has_identity_attribute(version) {
                tracing::error!(%version, "a replica holds unsaved data and has no record: it is left; see `forebay check`");
                continue;
            }
            self.replicas.remove(version)?;
            removed += 1;
        }
        Ok(removed)
    }

    fn start(self: &Arc<Inner>) {
        let spawn = |name: &str, work: Box<dyn FnOnce(Arc<Inner>) + Send>| {
            let inner = Arc::clone(self);
            if let Err(error) = self.threads.start(name, move || work(inner)) {
                tracing::error!(%error, name, "cannot start a thread");
            }
        };
        for _ in 0..self.settings.streams.clamp(1, 64) {
            spawn("stage-out", Box::new(|inner| inner.drain_in_background()));
        }
        for _ in 0..self.settings.fetches.clamp(1, 64) {
            spawn("stage-in", Box::new(|inner| inner.fetch_in_background()));
        }
        spawn("replicas", Box::new(|inner| inner.make_ready()));
        spawn(
            "housekeeping",
            Box::new(|inner| {
                // The sweep reads all records, and a process that starts only for a moment needs the processors.
                if !inner.queue.rest(SWEEP_AFTER) {
                    return;
                }
                if let Err(error) = inner.sweep() {
                    tracing::error!(%error, "the sweep of old replicas failed");
                }
                while inner.queue.rest(inner.round()) {
                    inner.housekeep();
                }
            }),
        );
    }

    /// Stops the threads and returns true. `orderly`: everything is written to the medium, and the next start trusts
    /// it. Returns false if a call into the store holds a thread. The end then counts as a kill of the process, which
    /// must exit soon. It keeps the burst buffer until then, for such a call may still write to the global store.
    pub(crate) fn stop(&self, orderly: bool) -> bool {
        self.dead.store(true, Ordering::Release);
        self.queue.close();
        self.fetches.close();
        self.ready.close();
        let living = self.threads.join(STOP_WAIT);
        if living > 0 {
            tracing::warn!("the global store does not answer: {living} threads are left in calls to it");
            return false;
        }
        if orderly {
            // The next start drops the rest.
            self.sync_removals();
            self.drop_removed();
            self.drop_ready();
            self.sum_at_end();
            let settled = self
                .commit(Vec::new(), Durability::Machine)
                .and_then(|()| self.replicas.sync_at_end())
                .and_then(|()| self.superblock.finish());
            if let Err(error) = settled {
                tracing::error!(%error, "the burst buffer could not be written to its medium");
            }
            // A catalogue given by the caller may still be used by the caller.
            let ours = self.settings.catalogue.is_none();
            if let Some(error) = ours.then(|| self.catalogue.close().err()).flatten() {
                tracing::warn!(%error, "could not close the catalogue in order: the next start takes longer");
            }
        }
        self.superblock.unlock();
        true
    }
}
