//! Stores of files' data.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use config::{Atime, Policy};
use global_store::Anchor;
use types::{ByteRange, Fingerprint, Identity, Timestamp, Version};

use crate::command::{CommandOutcome, DrainProgress, StoreCommand, Stuck};
use crate::file::{FileChange, FileState, Overlay};
use crate::open::{OpenData, OpenHow, WindowFile};
use crate::status::{StatusScope, StoreStatus};
use types::NewTime;

/// Holder of the data of files, by their identities. With a server in between, every method may also fail because the
/// server is unreachable.
pub trait DataStore: Send + Sync {
    /// Opens a file. For a writer, the data that recovery needs survives the death of the process before this returns.
    ///
    /// Errors: `ETIMEDOUT` if another agent's mark did not go within the policy's `remote_wait`; `EIO` if the data of a
    /// dirty file is lost; `EINTR` if `interrupted` returns true while the open waits.
    fn open(
        &self,
        anchor: Arc<dyn Anchor>,
        how: OpenHow,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Box<dyn OpenData>>;
    /// Sets the length (`truncate(2)`). Errors: `EINTR` if `interrupted` returns true while the call waits.
    fn set_len(
        &self,
        anchor: &Arc<dyn Anchor>,
        len: u64,
        policy: &Arc<Policy>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()>;
    /// Sets times (`utimens`) for a caller with permission: access and modification time. `apply` sets the times of the
    /// global copy as the caller, on this node.
    fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        times: [Option<NewTime>; 2],
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()>;
    /// Returns the attributes that `stat` must report instead of the global copy's; `None` if those are true. `below`:
    /// the global copy's attributes, unless a stage-out counted in [`staged_count`](DataStore::staged_count) has ended
    /// in between.
    fn attributes(&self, identity: &Identity, below: Option<&Fingerprint>) -> io::Result<Option<Overlay>>;
    /// Returns how often a global copy may have become the newest data of its file again. If that has changed since
    /// before a `stat` of the global copy, the `stat` may be from before the stage-out.
    fn staged_count(&self) -> u64;
    /// Notes what happened to a file, or is about to.
    fn note(&self, identity: &Identity, change: FileChange<'_>);
    /// Returns the state of a file's replica.
    fn state(&self, identity: &Identity) -> FileState;
    /// Executes a command. Errors: `EOPNOTSUPP` if only the server can do that; those of the command.
    fn command(&self, command: StoreCommand<'_>) -> io::Result<CommandOutcome>;
    /// Stages out one file, or every dirty one, and waits. With a server, every one means those that this agent opened
    /// for writing. Returns the files that are still dirty: failures, conflicts, orphans and, of all files, those that
    /// are open for writing or mapped (`EBUSY`), whose present content was copied nevertheless.
    fn drain(
        &self,
        identity: Option<&Identity>,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck>;
    /// Returns counters and files that need attention.
    fn status(&self, scope: StatusScope) -> StoreStatus;
    /// Checks that access times can be kept as a policy says. Errors: the reason, and what to do.
    fn notes_reads(&self, atime: Atime) -> Result<(), String>;
    /// Returns what this store can do beyond the methods of this trait.
    fn extensions(&self) -> Extensions<'_>;
}

/// Abilities of a store beyond [`DataStore`].
#[derive(Default, Clone, Copy)]
pub struct Extensions<'a> {
    /// Knowledge of the files whose data is on this machine.
    pub index: Option<&'a dyn LocalIndex>,
    /// Write windows.
    pub windows: Option<&'a dyn WindowStore>,
    /// Whether other nodes open the same files through this store. If so, the kernel must revalidate before it uses its
    /// caches.
    pub shared: bool,
    /// This agent's name at a server; `None` without a server.
    pub client: Option<[u8; 16]>,
}

impl dyn DataStore + '_ {
    /// Returns whether other nodes open the same files through this store.
    pub fn is_shared(&self) -> bool {
        self.extensions().shared
    }

    /// Closes the store, as [`StoreCommand::Shutdown`] says. Returns false if calls to the global store have not
    /// returned.
    pub fn shutdown(&self) -> bool {
        self.command(StoreCommand::Shutdown).is_ok()
    }

    /// Stages a file out now and waits. A file that is open for writing or mapped is copied and stays dirty, which is no
    /// error.
    pub fn drain_file(&self, identity: &Identity, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        self.drain(Some(identity), &mut |_| {}, interrupted).pop().map_or(Ok(()), Err)
    }
}

/// Callback for a replica that is about to be removed. Called from any thread while nobody has it open. It must drop
/// everything derived from the replica, and must not call back.
pub type RemovalObserver = Box<dyn Fn(Version) + Send + Sync>;

/// Callback for an empty replica that some new file is going to get. Called from any thread with a descriptor for passthrough, and the
/// value of the policy `atime` under which that is the right one; `None`: under each. It must not call back.
pub type ReadyObserver = Box<dyn Fn(Version, Option<Atime>, BorrowedFd<'_>) + Send + Sync>;

/// Callback for changed bytes of a file. Gets the file, the range and the mark of the handle that changed it. Called
/// from any thread after a change, or a possible one, and before its caller is answered. It must not call back.
pub type ChangeObserver = Box<dyn Fn(&Identity, ByteRange, u64) + Send + Sync>;

/// An observer of a store. Of each kind, only the first counts.
pub enum StoreObserver {
    /// Called before each removal of a replica that the kernel may have open.
    Removals(RemovalObserver),
    /// Called for replicas that are made before the files are that get them, so that the kernel can be told of them then. A call of
    /// the observer of removals follows, unless a file gets the replica.
    Ready(ReadyObserver),
    /// Called after changes of files' bytes through handles. Writes of the kernel without the agent are not reported.
    Changes(ChangeObserver),
}

/// Knowledge of the files whose data is on this machine.
pub trait LocalIndex {
    /// Returns whether there is, or may be, data of a file whose identity begins with `start`.
    fn may_know(&self, start: &[u8]) -> bool;
    /// Returns the time of last access: `below`, the global copy's, or a later one that is noted here.
    fn accessed(&self, identity: &Identity, below: Timestamp) -> Timestamp;
    /// Returns the anchor of an open file, or `None` if nobody has it open.
    fn anchor_of_open(&self, identity: &Identity) -> Option<Arc<dyn Anchor>>;
    /// Adds an observer.
    fn observe(&self, observer: StoreObserver);
}

/// Whose records are applied to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowUsage {
    /// Those of running programs. With true, each stays in its window until it is synced, so that a crash of the
    /// server's machine loses nothing.
    Serve(bool),
    /// Those that a killed agent left.
    Replay,
}

/// Place of a file of which a killed agent left windows.
pub enum LeftFile {
    /// The global store, if it has the file still.
    Below,
    /// This store.
    Here(Arc<dyn Anchor>),
    /// Nobody: the file is gone.
    Gone,
    /// Nobody: what said where its data is was lost.
    Lost,
}

/// Files to which records of windows are applied.
pub trait WindowStore {
    /// Finds a file of which a killed agent left windows. Errors: those that may be gone at another try.
    fn find_left(&self, identity: &Identity) -> io::Result<LeftFile>;
    /// Opens a file for records of windows.
    fn open_for_windows(
        &self,
        anchor: Arc<dyn Anchor>,
        policy: &Arc<Policy>,
        usage: WindowUsage,
    ) -> io::Result<WindowFile>;
    /// Returns the byte ranges of a file that others have changed since the agent `client`, which had windows on it,
    /// fell silent. Empty if unknown.
    fn changed_since(&self, identity: &Identity, client: &[u8; 16]) -> io::Result<Vec<ByteRange>>;
}
