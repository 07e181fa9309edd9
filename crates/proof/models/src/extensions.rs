//! Short words for tests that call a data store.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use config::Policy;
use data_store::{
    CommandOutcome, DataStore, FileChange, Keep, NewTime, OpenData, OpenHow, Overlay, Residency, SeekFor, Status,
    StatusScope, StoreCommand, Stuck, SyncScope, WriteResult, WriteWhere,
};
use global_store::Anchor;
use types::{Fingerprint, Identity, Timestamp};

/// An open file of any store.
pub type Handle = Box<dyn OpenData>;

/// Calls of a [`DataStore`] with fewer words. A command or a note has a method of its own, and no wait is interrupted.
pub trait DataStoreExt: DataStore {
    /// Opens a file.
    fn open_file(&self, anchor: Arc<dyn Anchor>, how: OpenHow) -> io::Result<Handle> {
        self.open(anchor, how, &|| false)
    }

    /// Sets the modification time through `apply`.
    fn date(
        &self,
        anchor: &Arc<dyn Anchor>,
        mtime: Option<NewTime>,
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        self.set_times(anchor, [None, mtime], apply)
    }

    /// Returns the attributes of a file that is ahead of its global copy, and `None` for every other.
    fn ahead(&self, identity: &Identity) -> Option<Overlay> {
        self.attributes(identity, None).ok()?.filter(|overlay| overlay.ahead)
    }

    /// Returns where a file's data is.
    fn residency(&self, identity: &Identity) -> Residency {
        self.state(identity).residency
    }

    /// Returns whether a file holds, or may hold, bytes that its global copy lacks.
    fn is_dirty(&self, identity: &Identity) -> bool {
        self.state(identity).dirty
    }

    /// Stages one file out and waits.
    fn drain_file(&self, identity: &Identity) -> Result<(), Stuck> {
        self.drain(Some(identity), &mut |_| {}, &|| false).pop().map_or(Ok(()), Err)
    }

    /// Stages everything out and waits. Returns the files that are still dirty.
    fn drain_all(&self) -> Vec<Stuck> {
        self.drain(None, &mut |_| {}, &|| false)
    }

    /// Stages a whole file in and waits.
    fn stage_in(&self, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()> {
        self.command(StoreCommand::StageIn(anchor, policy)).map(drop)
    }

    /// Drops a clean replica.
    fn evict(&self, identity: &Identity) -> io::Result<()> {
        self.command(StoreCommand::Evict(identity)).map(drop)
    }

    /// Pins or unpins a replica.
    fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()> {
        self.command(StoreCommand::Pin(identity, pinned)).map(drop)
    }

    /// Ends a conflict, a failure or an orphan. Returns where the replica was saved.
    fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>> {
        match self.command(StoreCommand::Resolve(identity, keep))? {
            CommandOutcome::Saved(path) => Ok(Some(path)),
            _ => Ok(None),
        }
    }

    /// Syncs everything.
    fn sync_all(&self) -> io::Result<()> {
        self.command(StoreCommand::SyncAll).map(drop)
    }

    /// Turns quiescing on or off.
    fn quiesce(&self, on: bool) {
        self.command(StoreCommand::Quiesce(on)).expect("every store can quiesce");
    }

    /// Closes the store. Returns false if calls to the global store have not returned.
    fn shutdown(&self) -> bool {
        self.command(StoreCommand::Shutdown).is_ok()
    }

    /// Returns all counters.
    fn counters(&self) -> Status {
        self.status(StatusScope::All).counters.expect("the store answers")
    }

    /// Returns the counters that cost no look at every record.
    fn activity(&self) -> Status {
        self.status(StatusScope::Activity).counters.expect("the store answers")
    }

    /// Notes a look at a global copy.
    fn saw(&self, identity: &Identity, found: &Fingerprint) {
        self.note(identity, FileChange::Seen(found));
    }

    /// Notes that attributes were changed since `began`.
    fn changed_attributes(&self, identity: &Identity, began: Timestamp) {
        self.note(identity, FileChange::Attributes(began));
    }

    /// Notes that names were changed.
    fn renamed(&self, anchor: &dyn Anchor) {
        self.note(anchor.identity(), FileChange::Names(anchor));
    }

    /// Notes that the last name is about to go.
    fn removing(&self, identity: &Identity) {
        self.note(identity, FileChange::Removing);
    }

    /// Notes that the last name is gone.
    fn unlinked(&self, identity: &Identity) {
        self.note(identity, FileChange::Unlinked);
    }
}

impl<T: DataStore + ?Sized> DataStoreExt for T {}

/// Calls of an [`OpenData`] with fewer words.
pub trait OpenDataExt: OpenData {
    /// Writes at an offset.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<WriteResult> {
        self.write_at(data, WriteWhere::At(offset))
    }

    /// Writes at the end.
    fn append(&self, data: &[u8]) -> io::Result<WriteResult> {
        self.write_at(data, WriteWhere::End)
    }

    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64> {
        self.seek(0, SeekFor::End)
    }

    /// Syncs data and attributes.
    fn fsync(&self) -> io::Result<()> {
        self.sync(SyncScope::All).map(drop)
    }

    /// Syncs data.
    fn fdatasync(&self) -> io::Result<()> {
        self.sync(SyncScope::Data).map(drop)
    }

    /// Returns the descriptor of the complete replica.
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        self.passthrough()?.backing()
    }

    /// Begins passthrough. Returns whether it may.
    fn begin_passthrough(&self) -> bool {
        self.passthrough().is_some_and(|replica| replica.begin())
    }
}

impl<T: OpenData + ?Sized> OpenDataExt for T {}
