//! The file cache as a [`DataStore`]: data in a burst buffer of this machine.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use catalogue::State;
use concurrency::RwLockReadGuard;
use config::{Atime, Policy};
use data_store::{
    AcknowledgedBytes, CommandOutcome, DataStore, DataVersion, DrainProgress, Extensions, FileChange, FileState,
    Foresee, InPlace, InPlaceAs, LocalIndex, NewTime, OpenData, OpenHow, Overlay, Passthrough, Publication, Removed,
    Residency, SeekFor, StatusScope, StoreCommand, StoreObserver, StoreStatus, Stuck, SyncScope, WindowFile,
    WindowStore, WindowTarget, WindowUsage, WriteResult, WriteWhere,
};
use global_store::Anchor;
use types::{ByteRange, Fingerprint, Identity, Timestamp};

use crate::clock::wall;
use crate::handle::FileHandle;
use crate::limits::{BACKDATE_AFTER, PIECE_BYTES};
use crate::surface::FileCache;

impl DataStore for FileCache {
    fn open(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>> {
        Ok(Box::new(self.open_unless(anchor, how, interrupted)?))
    }

    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn OpenData>>> {
        Ok(Some(Box::new(FileCache::set_len(self, anchor, len, policy, interrupted)?)))
    }

    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        [_, mtime]: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        FileCache::set_times(self, anchor, mtime, apply)
    }

    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>> {
        Ok(self.overlay(identity, below))
    }

    fn staged_count(&self) -> u64 {
        FileCache::staged_count(self)
    }

    fn note(&self, identity: &Identity, change: FileChange<'_>) {
        match change {
            FileChange::Seen(found) => self.saw(identity, found),
            FileChange::Attributes(began) => self.changed_attributes(identity, began),
            FileChange::Names(anchor) => self.own_change(anchor),
            FileChange::Removing => self.removing(identity),
            FileChange::Unlinked => self.unlinked(identity),
            FileChange::Elsewhere => {}
        }
    }

    fn state(&self, identity: &Identity) -> FileState {
        let mut state = FileState { dirty: false, ..FileState::default() };
        if let Some(file) = self.inner.known(identity) {
            state.lost = self.is_lost(identity);
            state.wants_look = self.wants_look(identity);
            let live = file.live.lock();
            state.dirty = live.is_unclean();
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
        match command {
            StoreCommand::StageIn(anchor, policy) => self.stage_in(anchor, policy)?,
            StoreCommand::Evict(identity) => self.evict(identity)?,
            StoreCommand::Pin(identity, pinned) => self.pin(identity, pinned)?,
            StoreCommand::SyncAll => self.sync_all()?,
            StoreCommand::Quiesce(on) => self.quiesce(on),
            StoreCommand::Clean(which) => return self.clean(which).map(CommandOutcome::Cleaned),
            StoreCommand::Resolve(identity, keep) => {
                return Ok(self.resolve(identity, keep)?.map_or(CommandOutcome::Done, CommandOutcome::Saved));
            }
            StoreCommand::BeginPublishing => self.begin_publishing(),
            StoreCommand::Shutdown if !self.shutdown() => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            StoreCommand::Shutdown | StoreCommand::ForgetClient(_) => {}
        }
        Ok(CommandOutcome::Done)
    }

    fn drain(
        &self,
        identity: Option<&Identity>,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck> {
        match identity {
            Some(identity) => self.drain_file(identity, interrupted).err().into_iter().collect(),
            None => self.drain_all(progress, interrupted),
        }
    }

    fn status(&self, scope: StatusScope) -> StoreStatus {
        let counters = if scope == StatusScope::All { FileCache::status(self) } else { self.activity() };
        StoreStatus { counters: Ok(counters), server: None }
    }

    fn notes_reads(&self, atime: Atime) -> Result<(), String> {
        if FileCache::notes_reads(self, atime) {
            return Ok(());
        }
        let option = if atime == Atime::Strict { "strictatime" } else { "relatime" };
        Err(format!(
            "the policy `atime` cannot be kept here: the burst buffer notes no reads; run the agent as root, or mount \
             the burst buffer's file system with `{option}`"
        ))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { index: Some(self), publication: Some(self), windows: Some(self), ..Extensions::default() }
    }
}

impl LocalIndex for FileCache {
    fn may_know(&self, start: &[u8]) -> bool {
        FileCache::may_know(self, start)
    }

    fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp {
        FileCache::accessed(self, identity, below)
    }

    fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>> {
        FileCache::anchor_of_open(self, identity)
    }

    fn observe(&self, observer: StoreObserver) {
        match observer {
            StoreObserver::Removals(tell) => self.before_removals(tell),
            StoreObserver::Changes(tell) => self.on_changes(tell),
        }
    }
}

impl Publication for FileCache {
    fn has_published(&self) -> bool {
        FileCache::has_published(self)
    }

    fn may_have_lost_name(&self, identity: &Identity) -> bool {
        self.replica_may_be_gone(identity)
    }

    fn steady_names<'a>(&'a self, wait: &mut dyn FnMut(&mut dyn FnMut())) -> RwLockReadGuard<'a, ()> {
        let mut names = self.try_steady_names();
        if names.is_none() {
            wait(&mut || names = Some(FileCache::steady_names(self)));
        }
        names.unwrap_or_else(|| FileCache::steady_names(self))
    }
}

impl WindowStore for FileCache {
    fn open_for_windows(
        &self,
        anchor: Arc<dyn Anchor>,
        policy: &Arc<Policy>,
        _: WindowUsage,
    ) -> io::Result<WindowFile> {
        let how = OpenHow { write: true, policy: Arc::clone(policy), ..OpenHow::default() };
        let handle = self.open_file(anchor, how)?;
        let write_back = handle.write_behind().map(|way| Box::new(move |range| way.begin(range)) as _);
        Ok(WindowFile { target: Box::new(handle), part_bytes: PIECE_BYTES as u64, is_remote: false, write_back })
    }

    fn changed_since(&self, _: &Identity, _: &[u8; 16]) -> io::Result<Vec<ByteRange>> {
        Ok(Vec::new())
    }
}

impl OpenData for FileHandle {
    fn data(&self) -> DataVersion {
        let file = self.file();
        DataVersion { content: Arc::clone(file) as _, is_current: file.is_current(), replica: self.version() }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileHandle::read_at(self, buffer, offset)
    }

    fn read_in_place(&self, range: ByteRange, wanted: InPlaceAs) -> Option<InPlace> {
        if wanted != InPlaceAs::File {
            return None;
        }
        // Errors are reported by an ordinary read.
        let (file, bytes) = self.lies_in(range.start, range.len() as usize).ok()??;
        Some(InPlace::File(file, bytes))
    }

    fn read_ahead(&self, range: ByteRange, wanted: Option<u64>, foresee: Foresee<'_>) -> bool {
        if wanted.is_none() {
            FileHandle::read_ahead(self, range, foresee);
        }
        wanted.is_none()
    }

    fn write_at(&self, data: &[u8], place: WriteWhere) -> io::Result<WriteResult> {
        match place {
            WriteWhere::At(offset) => FileHandle::write_at(self, data, offset, false),
            WriteWhere::Backdated(offset, at) if is_late(at) => self.write_backdated(data, offset, at),
            WriteWhere::Backdated(offset, _) => FileHandle::write_at(self, data, offset, false),
            WriteWhere::End => FileHandle::write_at(self, data, 0, true),
            WriteWhere::EndAgain(end) => self.append_again(data, end),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        FileHandle::set_len(self, len)
    }

    fn fallocate(&self, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        FileHandle::fallocate(self, mode, offset, len)
    }

    fn seek(&self, offset: u64, what: SeekFor) -> io::Result<u64> {
        FileHandle::seek(self, offset, what)
    }

    fn sync(&self, scope: SyncScope) -> io::Result<bool> {
        match scope {
            SyncScope::All => FileHandle::sync(self, false)?,
            SyncScope::Data | SyncScope::OfWrite => FileHandle::sync(self, true)?,
            SyncScope::Acknowledged(data_only) => self.sync_acknowledged(data_only)?,
            SyncScope::IfKept => return self.sync_kept().map_or(Ok(false), |told| told.map(|()| true)),
            SyncScope::LossOnly => {}
        }
        Ok(true)
    }

    fn flush(&self) -> io::Result<()> {
        FileHandle::flush(self)
    }

    fn passthrough(&self) -> Option<&dyn Passthrough> {
        self.version().map(|_| self as &dyn Passthrough)
    }
}

impl Passthrough for FileHandle {
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        FileHandle::backing(self)
    }

    fn begin(&self) -> bool {
        self.use_passthrough()
    }

    fn is_unshared(&self) -> bool {
        FileHandle::is_unshared(self)
    }
}

/// Returns whether bytes written at this time arrive so late that their file gets the time at which they were written.
fn is_late(at: Timestamp) -> bool {
    at.age(wall()) > BACKDATE_AFTER
}

impl WindowTarget for FileHandle {
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], at: Timestamp) -> io::Result<Option<u64>> {
        let since = self.backdating();
        let mut straight = true;
        let written = parts.iter().try_for_each(|(offset, bytes)| {
            match bytes {
                AcknowledgedBytes::Copied(data) => self.write_acknowledged(data, *offset)?,
                AcknowledgedBytes::Gathered(bytes) => {
                    straight = straight && self.write_straight(&mut |replica| bytes.write(replica, *offset));
                }
            }
            Ok(())
        });
        // After an error a part may be written, so the time is set as well.
        if let Some(Err(error)) = since.filter(|_| is_late(at)).map(|since| self.backdate(&since, at)) {
            tracing::debug!(%error, "could not set a file's time to that of its last write");
        }
        written.map(|()| straight.then_some(0))
    }

    fn sync(&self) -> io::Result<u64> {
        self.sync_acknowledged(false).map(|()| 0)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        FileHandle::set_len(self, len)
    }

    fn removed(&self) -> Removed {
        if self.is_last_of_removed() { Removed::Here } else { Removed::No }
    }

    fn report_loss(&self) -> io::Result<()> {
        Ok(())
    }
}
