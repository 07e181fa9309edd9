//! The public interface of the file cache.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::{Durability, State};
use config::Policy;
use global_store::Anchor;
use types::{ByteRange, Fingerprint, Identity, Timestamp, Version};

use crate::burst_buffer::replica::mtime_of;
pub use crate::cache::FileCache;
use crate::cache::{Inner, broken};
use crate::clock::wall;
use crate::handle::FileHandle;
use crate::limits::{FETCH_TRIES, RESOLVE_WAIT};
use crate::recovery;
use crate::residency::NameHold;
use crate::settings::{OpenError, Settings};
use data_store::{ChangeObserver, DrainProgress, Keep, NewTime, OpenHow, Overlay, Residency, Stuck};

impl FileCache {
    /// Opens (or makes) the burst buffer, recovers from a crash, and starts the background threads. The process
    /// ignores SIGIO from then on (the kernel sends it when a lease is broken), and its soft limit of open files is
    /// raised.
    pub fn open(settings: Settings) -> Result<FileCache, OpenError> {
        Ok(FileCache { inner: recovery::open(settings)? })
    }

    /// Opens a file. For a writer, the data that recovery needs survives the death of the process before this returns.
    ///
    /// Errors: `ETIMEDOUT` if another agent's mark did not go within the policy's `remote_wait`; `EIO` if the data of
    /// a dirty file is lost from the burst buffer (see `status`).
    pub fn open_file(&self, anchor: Arc<dyn Anchor>, how: OpenHow) -> io::Result<FileHandle> {
        self.open_unless(anchor, how, &|| false)
    }

    /// Opens a file like `open_file`. Errors: also `EINTR` if `interrupted` says so while this waits for another
    /// agent.
    pub fn open_unless(
        &self,
        anchor: Arc<dyn Anchor>,
        mut how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<FileHandle> {
        how.write |= how.truncate;
        let identity = anchor.identity().clone();
        let opened = self.inner.open_file(anchor, &how, interrupted);
        // An open that failed may have truncated the file.
        if let (true, Some(tell)) = (how.truncate, self.inner.on_change.get()) {
            tell(&identity, ByteRange::new(0, u64::MAX), 0);
        }
        opened
    }

    /// Sets the callback for removals of replicas. `tell` is called before each one, from any thread, while nobody has
    /// the replica open. It must drop everything derived from the replica, and must not call back. Only the first
    /// callback counts.
    pub fn before_removals(&self, tell: Box<dyn Fn(Version) + Send + Sync>) {
        let _ = self.inner.replicas.before_removal.set(tell);
    }

    /// Sets the callback for changes of files' bytes through handles. `tell` is called from any thread after a change,
    /// or a possible one, and before its caller is answered. It gets the handle's mark ([`FileHandle::mark`]; 0 for
    /// none), and must not call back. Writes of the kernel without the agent are not reported. Only the first callback
    /// counts.
    pub fn on_changes(&self, tell: ChangeObserver) {
        let _ = self.inner.on_change.set(tell);
    }

    /// Returns whether there is, or may be, a record of a file whose identity begins with `start`. Open files without
    /// a record are not considered.
    pub fn may_know(&self, start: &[u8]) -> bool {
        self.inner.catalogue.may_have(start).unwrap_or(true)
    }

    /// Returns the attributes that `stat` must report instead of the global copy's; `None` if the global copy's are
    /// true. `below`: those attributes, used unless a stage-out counted in [`FileCache::staged_count`] has ended in
    /// between. Never blocks on I/O of the global store.
    pub fn overlay(&self, identity: &Identity, below: Option<&Fingerprint>) -> Option<Overlay> {
        let file = self.inner.known(identity)?;
        below.iter().for_each(|below| self.inner.saw(&file, below));
        let (version, held) = {
            let live = file.live.lock();
            if !live.is_ahead() {
                let shown = live.shown?;
                return Some(Overlay { ctime: shown.ctime, below: Some(shown.below), ..Overlay::default() });
            }
            (live.version()?, live.fds.of_replica())
        };
        let stat = match held {
            Some(fd) => rustix::fs::fstat(fd).ok()?,
            None => self.inner.replicas.stat(version).ok()?,
        };
        let mut live = file.live.lock();
        let ctime = live.change_time(&stat);
        let below = live.shown.filter(|_| !file.drain.is_locked()).map(|shown| shown.below);
        let (size, blocks) = (stat.st_size as u64, stat.st_blocks as u64);
        Some(Overlay { ahead: true, size, blocks, mtime: mtime_of(&stat), ctime, below })
    }

    /// Returns the overlay of a file whose replica is ahead, and `None` for every other.
    pub fn attributes(&self, identity: &Identity) -> Option<Overlay> {
        self.overlay(identity, None).filter(|overlay| overlay.ahead)
    }

    /// Returns when a file was last read, if that is noted (policy `atime`) and later than the global copy's access
    /// time `below`; otherwise `below`.
    pub fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        self.inner.accessed(identity, below)
    }

    /// Returns whether reads can be noted as a policy says, with the burst buffer's file system and this process's
    /// right to mount it.
    pub fn notes_reads(&self, atime: config::Atime) -> bool {
        self.inner.replicas.noting(atime).is_some()
    }

    /// Returns how often a global copy became authoritative for its file again. If that has changed since before a
    /// `stat` of the global copy, and `attributes` then returns nothing, the `stat` may be from before the stage-out:
    /// ask again.
    pub fn staged_count(&self) -> u64 {
        self.inner.counters.staged_count.load(Ordering::Relaxed)
    }

    /// Sets the length (`truncate(2)`): opens for writing and calls `FileHandle::set_len`. Returns the handle, which
    /// the caller closes and which keeps the file in use. Errors: `EINTR` if `interrupted` says so.
    pub fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<FileHandle> {
        let how = OpenHow { write: true, truncate: len == 0, policy: Arc::clone(policy), ..OpenHow::default() };
        let handle = self.open_unless(Arc::clone(anchor), how, interrupted)?;
        if len > 0 {
            handle.set_len(len)?;
        }
        Ok(handle)
    }

    /// Sets times (`utimens`): runs `apply`, which changes the global copy's times, in such a way that a running
    /// stage-out does not take the change for an outsider's. A dirty replica then gets the same mtime if `sets` says
    /// so. Call this for every utimens of a regular file; for a file without a replica it only runs `apply`.
    pub fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        sets: Option<NewTime>,
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        self.inner.gated(anchor.identity(), false, |file, _| {
            // An earlier read must not be noted after the times that are set now.
            self.inner.settle_reads(file);
            let mut applied = false;
            let mut noted = || apply().inspect(|()| applied = true);
            let done = self.inner.set_times(file, anchor, sets, &mut noted);
            let done = done.or_else(|error| if applied { self.inner.times_refused(file, error) } else { Err(error) });
            self.inner.watch_reads_again(file);
            done
        })?
    }

    /// Notes our own rename, link or unlink: the hint of a dirty file follows. Without a notice of the time of that
    /// change ([`FileCache::changed_attributes`]), the file's ctime counts as meaningless where the bytes decide
    /// nothing.
    pub fn own_change(&self, anchor: &dyn Anchor) {
        let Some(file) = self.inner.known(anchor.identity()) else { return };
        let _gate = file.gate();
        let record = file.peek(|live| {
            let told = live.below.own.is_some() || live.below.doubted;
            let record = live.record_mut().filter(|record| record.state != State::Clean);
            let record = record.map(|record| {
                record.base.attributes = if told { record.base.attributes } else { 0 };
                record.clone()
            });
            if !told {
                live.change_attributes(wall(), None);
            }
            record
        });
        let Some(mut record) = record else { return };
        let hint = anchor.path_hint();
        let named = record.removing && anchor.attributes().is_ok_and(|found| found.links > 0);
        if hint != record.hint || named {
            record.hint = hint;
            record.removing &= !named;
            if named {
                // The record does not say any more that another file is to take the place.
                file.live.lock().place = NameHold::Own;
            }
            // The path is a hint: the durable handle finds the file nevertheless.
            if self.inner.put(&file, record.clone(), Durability::Process).is_ok() {
                self.inner.update_identity_attribute(&file, &record);
            }
        }
    }

    /// Prepares the removal of a last name through the agent, or of a file that never had one. If the agent dies
    /// before [`unlinked`](FileCache::unlinked), recovery checks whether the file is gone, and keeps its dirty data
    /// only if it is not. An `own_change` of a file that has a name ends this. If the intent cannot be recorded, the
    /// file becomes an orphan in that case.
    pub fn removing(&self, identity: &Identity) {
        let tried = match self.inner.known(identity) {
            Some(file) => self.inner.removing(&file),
            // The file's record was forgotten, and it was clean.
            None => self.inner.sync_commits(self.inner.commits.forgotten.load(Ordering::Acquire)),
        };
        if let Err(error) = tried {
            tracing::warn!(%error, %identity, "could not record that a file is being removed: if the agent dies now, the file becomes an orphan");
        }
    }

    /// Handles the removal of the last name through the agent: the data is dropped once nobody has the file open, and
    /// never staged out. Synced data stays until the store's medium has the removal.
    pub fn unlinked(&self, identity: &Identity) {
        let done = self.inner.gated(identity, false, |file, _| self.inner.unlinked(file, false));
        if let Err(error) | Ok(Err(error)) = done {
            tracing::error!(%error, %identity, "could not remove the replica of an unlinked file: the next start removes it");
        }
    }

    /// Returns the anchor of an open file, or `None` if nobody has it open.
    pub fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>> {
        let file = self.inner.known(identity)?;
        let live = file.live.lock();
        live.anchor.clone().filter(|_| live.is_open())
    }

    /// Returns whether the replica holds, or may hold, bytes that the global copy lacks.
    pub fn is_dirty(&self, identity: &Identity) -> bool {
        self.inner.known(identity).is_some_and(|file| file.live.lock().is_unclean())
    }

    /// Returns whether unsaved data is lost: the record says that the global copy lacks it, and the replica is missing
    /// or damaged.
    pub fn is_lost(&self, identity: &Identity) -> bool {
        self.inner.known(identity).is_some_and(|file| {
            let live = file.live.lock();
            live.is_lost() || live.record().is_some_and(|record| record.damaged)
        })
    }

    /// Stages a file out now and waits. A file that is open for writing or mapped is copied and stays dirty, which is
    /// no error.
    pub fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        match self.inner.known(identity) {
            Some(file) => self.inner.drain_for(&file, interrupted),
            None => Ok(()),
        }
    }

    /// Stages out every dirty file and waits. Returns the files that are still dirty: failures, conflicts, orphans,
    /// and - with `EBUSY` - files that are open for writing or mapped, whose present content was copied nevertheless.
    pub fn drain_all(&self, progress: &mut dyn FnMut(DrainProgress), interrupted: &dyn Fn() -> bool) -> Vec<Stuck> {
        self.inner.drain_everything(progress, interrupted)
    }

    /// Stages in a whole file and waits. Errors: `EBUSY` if the file changed during each try, or is open for writing
    /// in the global store; `ENOSPC` if the burst buffer has no room for it; `EIO` if the catalogue takes no changes.
    pub fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()> {
        let policy = Arc::new(Policy { cache: config::Cache::Both, ..Policy::clone(policy) });
        for _ in 0..FETCH_TRIES {
            let how = OpenHow { read: true, policy: Arc::clone(&policy), ..OpenHow::default() };
            let handle = self.open_file(Arc::clone(anchor), how)?;
            let file = Arc::clone(handle.file());
            let through = file.peek(|live| {
                if let Some(fetch) = live.fetch_mut() {
                    fetch.commanded = true;
                }
                live.is_through()
            });
            if through && !self.inner.spaces.admit(anchor.attributes()?.fingerprint.size, &policy) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            if through && self.inner.catalogue.trouble().is_some() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            self.inner.fetch_rest(&file, &|| self.inner.is_dead())?;
            if file.live.lock().is_whole() {
                return Ok(());
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Drops a clean replica that nobody uses. A file without a replica is no error. Errors: `EBUSY` if it is open,
    /// mapped or being copied; `EINVAL` if it is dirty; `EPERM` if it is pinned.
    pub fn evict(&self, identity: &Identity) -> io::Result<()> {
        self.inner.gated(identity, false, |file, _| self.inner.evict_gated(file))?.map(|_| ())
    }

    /// Pins a replica (never evicted, never expired) or unpins it. Errors: `ENOENT` if there is no replica; stage it
    /// in first.
    pub fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()> {
        self.inner.gated(identity, false, |file, _| {
            let record = file.live.lock().record().cloned();
            let Some(mut record) = record else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
            record.pinned = pinned;
            self.inner.put(file, record, Durability::Process)?;
            self.inner.expiry.forget(identity);
            let rests = file.peek(|live| !live.is_open() && !live.is_unclean());
            if !pinned && rests {
                self.inner.drop_or_keep(file);
            }
            Ok(())
        })?
    }

    /// Returns whether a replica is pinned.
    pub fn is_pinned(&self, identity: &Identity) -> bool {
        let known = self.inner.known(identity).map(|file| {
            let live = file.live.lock();
            (live.is_loaded(), live.record().is_some_and(|record| record.pinned))
        });
        match known {
            Some((true, pinned)) => pinned,
            _ => self.inner.catalogue.get(identity).is_ok_and(|record| record.is_some_and(|record| record.pinned)),
        }
    }

    /// Returns where a file's data is.
    pub fn state(&self, identity: &Identity) -> Residency {
        if let Some(file) = self.inner.known(identity) {
            let live = file.live.lock();
            if live.is_loaded() {
                return live.residency();
            }
        }
        match self.inner.catalogue.get(identity).map_err(broken) {
            Ok(Some(record)) if record.state == State::Clean => Residency::Clean,
            _ => Residency::Absent,
        }
    }

    /// Ends a conflict, a failure or an orphan. Returns where `Keep::Both` saved the replica's data.
    ///
    /// Errors: `EBUSY` if the file is open for writing; `ENOENT` if there is nothing to resolve; `ETIMEDOUT` if a
    /// stage-out of the file takes long. `Keep::BurstBuffer` also returns `ENOENT` if the file is not in the global
    /// store or its replica is lost. If the medium did not take all data that is to be saved, the error says so once,
    /// and nothing has ended.
    pub fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>> {
        let missing = || io::Error::from_raw_os_error(libc::ENOENT);
        let file = self.inner.known(identity).ok_or_else(missing)?;
        // A running stage-out ends first: it must not find the replica gone.
        let drain = file.drain.try_lock_for(RESOLVE_WAIT);
        let _drain = drain.ok_or_else(|| io::Error::from_raw_os_error(libc::ETIMEDOUT))?;
        self.inner.gated(identity, false, |now, _| {
            if Arc::ptr_eq(now, &file) { self.inner.resolve_gated(now, keep) } else { Err(missing()) }
        })?
    }

    /// Sets whether new opens for writing go to the global store, except for files that are dirty or open already.
    /// Drain afterwards.
    pub fn quiesce(&self, on: bool) {
        self.inner.quiesced.store(on, Ordering::Relaxed);
    }

    /// Runs one round of the work that the background thread does each second: expiry, eviction, ballast.
    pub fn housekeep(&self) {
        self.inner.housekeep();
    }

    /// Removes replicas that earlier agents left without a record. Returns how many. Runs by itself in the background.
    pub fn sweep(&self) -> io::Result<u64> {
        self.inner.sweep()
    }

    /// Stops the background threads, writes the burst buffer to its medium and releases it. Dirty data stays for the
    /// next start, so drain first. Nothing may be used afterwards. Returns false if calls to the global store have not
    /// come back. The end is then that of a killed process: this process must exit, and keeps the burst buffer until
    /// then.
    pub fn shutdown(&self) -> bool {
        self.inner.stop(true)
    }

    /// Stops as a crash of the process would: nothing is written, and handles dropped later do nothing. For tests.
    pub fn abandon(&self) {
        self.inner.stop(false);
    }
}

impl Inner {
    pub(crate) fn open_counts(&self) -> (u64, u64) {
        let table = self.table.lock();
        table.files.values().fold((0, 0), |(files, handles), file| {
            let held = u64::from(file.live.lock().users.handles());
            (files + u64::from(held > 0), handles + held)
        })
    }
}
