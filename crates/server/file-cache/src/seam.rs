//! The file cache as others see it: a [`DataStore`] whose data is in a burst buffer of this machine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::State;
use config::{Atime, Policy};
use data_store::{
    CommandOutcome, DataStore, DrainProgress, Extensions, FileChange, FileState, LeftFile, LocalIndex, NewTime,
    OpenData, OpenHow, Overlay, Residency, StatusScope, StoreCommand, StoreObserver, StoreStatus, Stuck, WindowFile,
    WindowStore, WindowUsage,
};
use global_store::Anchor;
use types::{ByteRange, Fingerprint, Identity, Timestamp};

use crate::burst_buffer::replica::mtime_of;
use crate::cache::Inner;
use crate::errors::os;
use crate::limits::PIECE_BYTES;
use crate::recovery;
use crate::settings::{OpenError, Settings};

/// The file cache, cheap to clone. [`StoreCommand::Shutdown`] ends it. Dropping the last clone leaves the threads
/// running.
#[derive(Clone)]
pub struct FileCache {
    pub(crate) inner: Arc<Inner>,
}

impl FileCache {
    /// Opens (or makes) the burst buffer, recovers from a crash, and starts the background threads. The process
    /// ignores SIGIO from then on (the kernel sends it when a lease is broken), and its soft limit of open files is
    /// raised.
    pub fn open(settings: Settings) -> Result<FileCache, OpenError> {
        Ok(FileCache { inner: recovery::open(settings)? })
    }

    /// Runs one round of the work that the background thread does each second: expiry, eviction, ballast. For tests.
    pub fn housekeep(&self) {
        self.inner.housekeep();
    }

    /// Removes replicas that earlier agents left without a record. Returns how many. Runs by itself in the background.
    /// For tests.
    pub fn sweep(&self) -> io::Result<u64> {
        self.inner.sweep()
    }

    /// Stops as a crash of the process would: nothing is written, and handles dropped later do nothing. For tests.
    pub fn abandon(&self) {
        self.inner.stop(false);
    }
}

impl DataStore for FileCache {
    fn open(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(self.inner.open_file(&anchor, how, interrupted)?))
    }

    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let how = OpenHow { write: true, truncate: len == 0, policy: Arc::clone(policy), ..OpenHow::default() };
        let handle = self.inner.open_file(anchor, how, interrupted)?;
        if len > 0 { handle.set_len(len) } else { Ok(()) }
    }

    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        [_, mtime]: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        self.inner.set_times(anchor, mtime, apply)
    }

    /// Never blocks on I/O of the global store.
    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        let overlay = || {
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
        };
        Ok(overlay())
    }

    fn staged_count(&self) -> u64 {
        self.inner.counters.staged_count.load(Ordering::Relaxed)
    }

    fn note(&self, identity: &Identity, change: FileChange<'_>) {
        self.inner.note(identity, change);
    }

    fn state(&self, identity: &Identity) -> FileState {
        let mut state = FileState { dirty: false, open: false, ..FileState::default() };
        if let Some(file) = self.inner.known(identity) {
            let live = file.live.lock();
            state.lost = live.is_lost() || live.record().is_some_and(|record| record.damaged);
            state.wants_look = self.inner.wants_look(&file, &live);
            state.dirty = live.is_unclean();
            state.open = live.is_open();
            if live.is_loaded() {
                state.residency = live.residency();
                state.pinned = live.record().is_some_and(|record| record.pinned);
                return state;
            }
        }
        if let Ok(Some(record)) = self.inner.catalogue.get(identity) {
            state.pinned = record.pinned;
            if record.state == State::Clean {
                state.residency = Residency::Clean;
            }
        }
        state
    }

    fn command(&self, command: StoreCommand<'_>) -> io::Result<CommandOutcome> {
        let inner = &self.inner;
        match command {
            StoreCommand::StageIn(anchor, policy) => inner.stage_in(anchor, policy)?,
            StoreCommand::Evict(identity) => _ = inner.evict(identity)?,
            StoreCommand::Pin(identity, pinned) => inner.pin(identity, pinned)?,
            StoreCommand::SyncAll => inner.sync_all()?,
            StoreCommand::Quiesce(on) => inner.quiesced.store(on, Ordering::Relaxed),
            StoreCommand::Clean(which) => return inner.clean(which).map(CommandOutcome::Cleaned),
            StoreCommand::Resolve(identity, keep) => {
                return Ok(inner.resolve(identity, keep)?.map_or(CommandOutcome::Done, CommandOutcome::Saved));
            }
            StoreCommand::Shutdown if !inner.stop(true) => return os(libc::EBUSY),
            StoreCommand::Shutdown | StoreCommand::ForgetClient(_) | StoreCommand::GiveBack(_) => {}
        }
        Ok(CommandOutcome::Done)
    }

    fn drain(
        &self,
        identity: Option<&Identity>,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck> {
        let Some(identity) = identity else { return self.inner.drain_everything(progress, interrupted) };
        let stuck = |file| self.inner.drain_for(&file, interrupted).err();
        self.inner.known(identity).and_then(stuck).into_iter().collect()
    }

    fn status(&self, scope: StatusScope) -> StoreStatus {
        let counters = if scope == StatusScope::All { self.inner.status() } else { self.inner.activity() };
        StoreStatus { counters: Ok(counters), server: None }
    }

    fn notes_reads(&self, atime: Atime) -> Result<(), String> {
        if self.inner.replicas.noting(atime).is_some() {
            return Ok(());
        }
        let option = if atime == Atime::Strict { "strictatime" } else { "relatime" };
        Err(format!(
            "the policy `atime` cannot be kept here: the burst buffer notes no reads; run the agent as root, or mount \
             the burst buffer's file system with `{option}`"
        ))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { index: Some(self), windows: Some(self), ..Extensions::default() }
    }
}

impl LocalIndex for FileCache {
    /// Open files without a record are not considered.
    fn may_know(&self, start: &[u8]) -> bool {
        self.inner.catalogue.may_have(start).unwrap_or(true)
    }

    fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        self.inner.accessed(identity, below)
    }

    fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>> {
        let file = self.inner.known(identity)?;
        let live = file.live.lock();
        live.anchor.clone().filter(|_| live.is_open())
    }

    fn observe(&self, observer: StoreObserver) {
        match observer {
            StoreObserver::Removals(tell) => _ = self.inner.replicas.before_removal.set(tell),
            StoreObserver::Changes(tell) => _ = self.inner.on_change.set(tell),
            StoreObserver::Ready(tell) => _ = self.inner.ready.observer.set(tell),
        }
    }
}

impl WindowStore for FileCache {
    fn find_left(&self, _: &Identity) -> io::Result<LeftFile> {
        Ok(LeftFile::Below)
    }

    fn open_for_windows(
        &self,
        anchor: Arc<dyn Anchor>,
        policy: &Arc<Policy>,
        _: WindowUsage,
    ) -> io::Result<WindowFile> {
        let how = OpenHow { write: true, policy: Arc::clone(policy), ..OpenHow::default() };
        let handle = self.inner.open_file(&anchor, how, &|| false)?;
        let write_back = handle.write_behind();
        Ok(WindowFile { target: Box::new(handle), part_bytes: PIECE_BYTES as u64, is_remote: false, write_back })
    }

    fn changed_since(&self, _: &Identity, _: &[u8; 16]) -> io::Result<Vec<ByteRange>> {
        Ok(Vec::new())
    }
}
