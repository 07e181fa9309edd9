//! One version of one file's data, while it is in memory.
//!
//! Locks, in the order in which they are taken; only `live` is ever taken while the cache's table is locked:
//!
//! 0. `backdated`: one late write of a client's window at a time, with all that is done to find room for it.
//! 1. `append`: one append at a time, with all that is done to find room for it.
//! 2. `io`: shared by writes through the agent, exclusive while the file moves out of the burst buffer.
//! 3. `drain`: one stage-out of the file at a time. Held over I/O on the global store.
//! 4. `gate`: one transition of the file's residency at a time: opens, intents, the ends of copies. Held over commits,
//!    single metadata calls of the global store and the copy of a small file; never over a long copy. A batch holds
//!    many gates at once; nobody else who holds one waits for another.
//! 5. the table of files (`cache.rs`).
//! 6. `dating`: a change past `io`, and the setting back of a time. Held over one call on the replica.
//! 7. `live`: the fields. Held for moments, over no I/O but the lease probe.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use concurrency::{Condvar, Mutex, MutexGuard, RwLock};
use config::{KeepAfter, Policy, StageOut};
use global_store::{Access, Anchor, StoreFile};
use types::{Identity, Timestamp, Version};

use super::{Below, Body, Compared, Copies, Medium, Removal, Synced, Told, Users, VisibleChangeTime};

/// One version of one file's data.
pub(crate) struct File {
    pub(crate) identity: Identity,
    pub(crate) drain: Mutex<()>,
    pub(crate) io: RwLock<()>,
    pub(crate) append: Mutex<()>,
    /// Number of changes with the present time, counted while `io` or `dating` is held.
    pub(crate) changes_now: AtomicU64,
    /// Serializes changes past `io` and the setting back of times
    /// (`backdate.rs`). Only `live` is locked while it is held.
    pub(crate) dating: Mutex<()>,
    /// Serializes backdated writes.
    pub(crate) backdated: Mutex<()>,
    /// Shared by threads that sync the replica; exclusive for a moment to wait for them. Only `live` is locked while
    /// it is held.
    pub(crate) syncing: RwLock<()>,
    gate: Mutex<()>,
    pub(crate) live: Mutex<Live>,
    /// Number of bytes of the replica that the last stage-out has passed: the progress of a running one.
    pub(crate) passed: AtomicU64,
    /// Signals that a fetched block arrived, or that the body changed.
    pub(crate) moved: Condvar,
}

/// The descriptors that the open descriptions of a file share.
#[derive(Default)]
pub(crate) struct Descriptors {
    pub(crate) read: Option<Arc<OwnedFd>>,
    /// Descriptor for reads that move the access time.
    pub(crate) noted: Option<Arc<OwnedFd>>,
    /// Descriptor for writing. It is closed when the last writer closes, for it would refuse our own lease probe.
    pub(crate) write: Option<Arc<OwnedFd>>,
    pub(crate) handle: Option<Arc<OwnedFd>>,
    pub(crate) global: Option<(Access, Arc<dyn StoreFile>)>,
}

impl Descriptors {
    /// Takes the descriptors of the replica out, and leaves that of the global copy.
    pub(crate) fn take_replicas(&mut self) -> Descriptors {
        let global = self.global.take();
        let replicas = std::mem::take(self);
        self.global = global;
        replicas
    }

    pub(crate) fn of_replica(&self) -> Option<Arc<OwnedFd>> {
        self.handle.as_ref().or(self.read.as_ref()).or(self.write.as_ref()).cloned()
    }
}

/// Version of a replica, and the access time that it has without any read that we do not know of.
pub(crate) type Watched = (Version, Timestamp);

/// Reads of a file whose policy has them noted.
#[derive(Debug, Default)]
pub(crate) struct NotedReads {
    /// Access time from which a later one shows a program's read. Set while reads are noted.
    pub(crate) watched: Option<Watched>,
    /// The last noted read that came through the agent and left no trace in a replica.
    pub(crate) asked: Option<Timestamp>,
}

/// Whether a file stands for its identity in the table of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tenure {
    /// The catalogue was not asked for the record.
    #[default]
    Unread,
    Current,
    /// Another `File` has replaced this one, or will.
    Retired,
}

#[derive(Default)]
pub(crate) struct Live {
    pub(super) tenure: Tenure,
    pub(crate) anchor: Option<Arc<dyn Anchor>>,
    /// Whether the anchor was given up although only its path, or a walk over the store, leads to the file again.
    pub(crate) spared: bool,
    pub(crate) policy: Arc<Policy>,
    pub(super) body: Body,
    pub(crate) removal: Removal,
    pub(crate) users: Users,
    /// Number of opens for writing and of changes of length or time. A running stage-out compares it.
    pub(crate) changes: u64,
    pub(crate) copies: Copies,
    pub(crate) compared: Compared,
    pub(crate) medium: Medium,
    pub(crate) synced: Synced,
    pub(crate) below: Below,
    /// Change time that programs see, if it is not the global copy's.
    pub(crate) shown: Option<VisibleChangeTime>,
    /// Number of the commit that made the record clean.
    pub(crate) clean_commit: u64,
    pub(crate) told: Told,
    pub(crate) dirty_since: Duration,
    pub(crate) reads: NotedReads,
    pub(crate) fds: Descriptors,
}

impl File {
    pub(crate) fn new(identity: Identity, policy: Arc<Policy>, now: Duration) -> File {
        File {
            identity,
            drain: Mutex::new(()),
            io: RwLock::new(()),
            append: Mutex::new(()),
            changes_now: AtomicU64::new(0),
            dating: Mutex::new(()),
            backdated: Mutex::new(()),
            syncing: RwLock::new(()),
            gate: Mutex::new(()),
            moved: Condvar::new(),
            passed: AtomicU64::new(0),
            live: Mutex::new(Live { policy, dirty_since: now, ..Live::default() }),
        }
    }

    /// Looks at the fields, for a moment under their lock.
    pub(crate) fn peek<R>(&self, look: impl FnOnce(&mut Live) -> R) -> R {
        look(&mut self.live.lock())
    }

    pub(crate) fn gate(&self) -> Gate<'_> {
        Gate { file: self, _lock: self.gate.lock() }
    }

    pub(crate) fn try_gate(&self) -> Option<Gate<'_>> {
        self.gate.try_lock().map(|lock| Gate { file: self, _lock: lock })
    }

    /// Changes the replica past `io`. Such a change takes precedence over the time of bytes written earlier.
    pub(crate) fn dated<E>(&self, change: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _dating = self.dating.lock();
        self.changes_now.fetch_add(1, Ordering::AcqRel);
        change()
    }

    /// Makes the name of a new file durable on the store's medium.
    pub(crate) fn sync_name(&self) -> io::Result<()> {
        let anchor = {
            let live = self.live.lock();
            if live.is_name_unsynced() { live.anchor.clone() } else { None }
        };
        // A file of `O_TMPFILE` may still get a name.
        if let Some(anchor) = anchor
            && anchor.attributes()?.links > 0
        {
            anchor.sync_name()?;
            self.live.lock().synced.lacks_name = false;
        }
        Ok(())
    }
}

/// The locked gate of a file. In debug builds its release checks the file's state.
pub(crate) struct Gate<'a> {
    file: &'a File,
    _lock: MutexGuard<'a, ()>,
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            self.file.live.lock().assert_invariants();
        }
    }
}

impl Live {
    /// Returns whether the last close will queue the file again, so that copying it now would be useless.
    pub(crate) fn waits_for_close(&self) -> bool {
        self.is_written() && !matches!(self.policy.stage_out, StageOut::Age(_) | StageOut::Size(_))
    }

    pub(crate) fn stays_clean(&self) -> bool {
        let pinned = self.record().is_some_and(|record| record.pinned);
        (self.policy.keep_after != KeepAfter::Delete || pinned) && !self.medium.lacks_some()
    }
}
