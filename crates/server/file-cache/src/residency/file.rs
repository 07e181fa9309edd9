//! One version of one file's data, while it is in memory.
//!
//! Locks, in the order in which they are taken; only `live` is ever taken while the cache's table is locked:
//!
//! 0. `backdated`: one late write of a client's window at a time, with all that is done to find room for it.
//! 1. `append`: one append at a time, with all that is done to find room for it.
//! 2. `io`: shared by writes through the agent, exclusive while the file moves out of the burst buffer.
//! 3. `drain`: one stage-out of the file at a time. Held over I/O on the global store.
//! 4. `names` (`publish.rs`): shared by changes of names and attributes, exclusive while a file takes another's place.
//! 5. `gate`: one transition of the file's residency at a time: opens, intents, the ends of copies. Held over commits,
//!    single metadata calls of the global store and the copy of a small file; never over a long copy. A batch holds
//!    many gates at once; nobody else who holds one waits for another.
//! 6. the table of files (`cache.rs`).
//! 7. `dating`: a change past `io`, and the setting back of a time. Held over one call on the replica.
//! 8. `live`: the fields. Held for moments, over no I/O but the lease probe.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use concurrency::{Condvar, Mutex, MutexGuard, RwLock};
use config::{KeepAfter, Policy, StageOut};
use global_store::{Access, Anchor, StoreFile};
use types::{Fingerprint, Identity, Timestamp};

use super::{Body, NameHold, Removal, Users};
use crate::change_time::VisibleChangeTime;
use crate::last_access::Watched;
use crate::medium::Medium;
use crate::side::Trouble;

/// One version of one file's data.
pub struct File {
    pub(crate) identity: Identity,
    pub(crate) drain: Mutex<()>,
    pub(crate) io: RwLock<()>,
    pub(crate) append: Mutex<()>,
    /// Number of changes with the present time, counted while `io` or `dating` is held.
    pub(crate) changes_now: AtomicU64,
    /// Serializes changes past `io` and the setting back of times
    /// ([`FileHandle::backdate`](crate::FileHandle::backdate)). Only `live` is locked while it is held.
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

    /// Returns a descriptor of the replica, of whatever kind.
    pub(crate) fn of_replica(&self) -> Option<Arc<OwnedFd>> {
        self.handle.as_ref().or(self.read.as_ref()).or(self.write.as_ref()).cloned()
    }
}

/// The first bytes of a replica that certainly equal those of its checksums. A program that writes without the agent
/// tells by its open flags whether it only appends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untouched {
    bytes: u64,
    /// Number of such bytes for the checksums of the stage-out that began last.
    since: u64,
    /// Whether somebody may write anywhere.
    wild: bool,
}

impl Default for Untouched {
    /// No byte is known to be unchanged.
    fn default() -> Untouched {
        Untouched { bytes: 0, since: 0, wild: true }
    }
}

impl Untouched {
    /// All `size` bytes of the replica equal those of the checksums, and nobody writes it.
    pub(crate) fn all(size: u64) -> Untouched {
        Untouched { bytes: size, since: size, wild: false }
    }

    /// Notes that the checksums are gone.
    pub(crate) fn unsummed(&mut self) {
        (self.bytes, self.since) = (0, 0);
    }

    /// Notes that somebody may write anywhere, for as long as anybody writes.
    pub(crate) fn wild(&mut self) {
        *self = Untouched::default();
    }

    /// Notes a change at `offset`, and possibly behind it.
    pub(crate) fn touch(&mut self, offset: u64) {
        (self.bytes, self.since) = (self.bytes.min(offset), self.since.min(offset));
    }

    /// Begins a stage-out of `size` bytes. `quiet`: nobody writes. Returns how many first bytes need not be compared.
    pub(crate) fn begin(&mut self, size: u64, quiet: bool) -> u64 {
        self.wild &= !quiet;
        self.since = if self.wild { 0 } else { size };
        self.bytes.min(size)
    }

    /// Ends a stage-out: its checksums are those of the replica from now on.
    pub(crate) fn end(&mut self) {
        self.bytes = self.since;
    }
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

/// The mutable fields of a file.
#[derive(Default)]
pub(crate) struct Live {
    pub(super) tenure: Tenure,
    pub(crate) anchor: Option<Arc<dyn Anchor>>,
    /// Whether the anchor was given up although only its path, or a walk over the store, leads to the file again.
    pub(crate) spared: bool,
    pub(crate) policy: Arc<Policy>,
    pub(super) body: Body,
    pub(crate) removal: Removal,
    pub(crate) place: NameHold,
    pub(crate) users: Users,
    /// First bytes of the replica that nobody can have changed since they were summed.
    pub(crate) untouched: Untouched,
    /// Size of the replica at the last stage-out, or when it was clean.
    pub(crate) copied_bytes: u64,
    /// Number of opens for writing and of changes of length or time. A running stage-out compares it to see what it
    /// missed.
    pub(crate) changes: u64,
    /// Whether the content that the replica had when it was last clean is on the medium.
    pub(crate) synced: bool,
    /// Whether the intent is on the medium.
    pub(crate) intent_synced: bool,
    /// Whether the last agent ended in order and the replica has not yet been compared with the checksums of that end.
    pub(crate) ended: bool,
    /// Whether the medium took the replica's bytes.
    pub(crate) medium: Medium,
    /// Whether a sync of the replica's data makes the identity attribute durable as well.
    pub(crate) identity_attribute_synced: bool,
    /// Whether the file is new and its name is not known to be durable.
    pub(crate) name_unsynced: bool,
    /// Fingerprint that our last unfinished stage-out left on the global copy, if it could be read.
    pub(crate) left: Option<Fingerprint>,
    /// Fingerprint of the global copy when the store last failed to set a program's time, and that time.
    pub(crate) tried_time: Option<(Fingerprint, Timestamp)>,
    /// Period in which attributes or names of the global copy were last changed through the agent. `None` after
    /// somebody has looked.
    pub(crate) own: Option<(Timestamp, Timestamp)>,
    /// Change time that programs see, if it is not the global copy's.
    pub(crate) shown: Option<VisibleChangeTime>,
    /// Whether a look found a ctime that moved, and not by us: only the bytes can tell whether the content changed.
    pub(crate) doubted: bool,
    /// When a look last found the global copy as we left it.
    pub(crate) looked: Option<Duration>,
    /// The last modification time that a program set.
    pub(crate) given_time: Option<Timestamp>,
    /// Value of `changes` when all bytes were found on the global copy, which could not be recorded.
    pub(crate) copied: Option<u64>,
    /// Whether a sync of the global copy failed since both copies were last equal. Its bytes may then never reach the
    /// store's medium.
    pub(crate) unsynced_below: bool,
    /// Number of the commit that made the record clean.
    pub(crate) clean_commit: u64,
    pub(crate) failures: u32,
    /// Number of stage-outs in a row that found the file mapped after its last close.
    pub(crate) mapped: u32,
    /// Number and errno of the last failed stage-out.
    pub(crate) error: (u64, i32),
    /// Whether the error was reported under this number already, and nothing succeeded since.
    pub(crate) failing: bool,
    /// Reason of the last failure, for status and commands.
    pub(crate) trouble: Option<Trouble>,
    /// When the fingerprint was last compared with the global copy.
    pub(crate) checked: Option<Duration>,
    pub(crate) dirty_since: Duration,
    /// Whether the replica was compared with its checksums, if that was necessary.
    pub(crate) verified: bool,
    /// Access time from which a later one shows a program's read. Set while reads are noted.
    pub(crate) watched: Option<Watched>,
    /// The last noted read that came through the agent and left no trace in a replica.
    pub(crate) read_at: Option<Timestamp>,
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

    /// Locks the gate.
    pub(crate) fn gate(&self) -> Gate<'_> {
        Gate { file: self, _lock: self.gate.lock() }
    }

    /// Locks the gate if nobody holds it.
    pub(crate) fn try_gate(&self) -> Option<Gate<'_>> {
        self.gate.try_lock().map(|lock| Gate { file: self, _lock: lock })
    }

    /// Locks the gate, and waits at most `wait` for that.
    pub(crate) fn try_gate_for(&self, wait: Duration) -> Option<Gate<'_>> {
        self.gate.try_lock_for(wait).map(|lock| Gate { file: self, _lock: lock })
    }

    /// Changes the replica past `io`. Such a change takes precedence over the time of bytes written earlier.
    pub(crate) fn dated<E>(&self, change: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _dating = self.dating.lock();
        self.changes_now.fetch_add(1, Ordering::AcqRel);
        change()
    }

    /// Returns the file's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Makes the name of a new file durable on the store's medium.
    pub(crate) fn sync_name(&self) -> io::Result<()> {
        let anchor = {
            let live = self.live.lock();
            if live.name_unsynced && !live.is_unlinked() { live.anchor.clone() } else { None }
        };
        // A file of `O_TMPFILE` may still get a name.
        if let Some(anchor) = anchor
            && anchor.attributes()?.links > 0
        {
            anchor.sync_name()?;
            self.live.lock().name_unsynced = false;
        }
        Ok(())
    }

    /// Returns whether this version is still the file's newest. False after others have changed the global copy.
    pub fn is_current(&self) -> bool {
        !self.live.lock().is_retired()
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
    /// Returns whether the record that calls the file unclean is not durable yet.
    pub(crate) fn is_intent_unsynced(&self) -> bool {
        self.is_unclean() && !self.intent_synced
    }

    /// Notes a failed stage-out. The same error several times in a row counts as one.
    pub(crate) fn fail(&mut self, errno: i32) {
        if !self.failing || self.error.1 != errno {
            self.error = (self.error.0 + 1, errno);
        }
        self.failing = true;
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns whether the last close will queue the file again, so that copying it now would be useless.
    pub(crate) fn waits_for_close(&self) -> bool {
        self.is_written() && !matches!(self.policy.stage_out, StageOut::Age(_) | StageOut::Size(_))
    }

    /// Returns whether the replica of a clean file that nobody has open is to stay.
    pub(crate) fn stays_clean(&self) -> bool {
        let pinned = self.record().is_some_and(|record| record.pinned);
        (self.policy.keep_after != KeepAfter::Delete || pinned) && !self.medium.lacks_some()
    }

    pub(crate) fn succeed(&mut self) {
        self.failing = false;
        self.trouble = None;
        self.failures = 0;
    }
}
