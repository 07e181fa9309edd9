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

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use catalogue::{Record, State};
use concurrency::{Condvar, Mutex, RwLock};
use config::{KeepAfter, Policy, StageOut};
use global_store::{Access, Anchor, StoreFile};
use types::{ByteRange, Fingerprint, Identity, RangeSet, Timestamp, Version};

use crate::change_time::VisibleChangeTime;
use crate::last_access::Watched;
use crate::limits::BLOCK_BYTES;
use crate::medium::Medium;
use crate::side::Trouble;
use data_store::Residency;

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
    pub(crate) gate: Mutex<()>,
    pub(crate) live: Mutex<Live>,
    /// Number of bytes of the replica that the last stage-out has passed: the progress of a running one.
    pub(crate) passed: AtomicU64,
    /// Signals that a fetched block arrived, or that the body changed.
    pub(crate) moved: Condvar,
}

/// Whether a file still has its name, where another file may take it (policy `publish = atomic`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameHold {
    /// The file has its name, as far as we are concerned.
    Own,
    /// A successor is being made, and the record says `removing` for that reason alone.
    GivenUp,
    /// Another file has the name. Callers that ask for this file must look the name up again.
    Lost,
}

/// Where the data of this version is.
pub(crate) enum Body {
    /// Not in the burst buffer.
    Empty,
    /// A complete replica.
    Whole,
    /// A replica that is being filled.
    Partial(Box<Fetch>),
    /// Open files read and write the global copy directly.
    Through,
    /// The record says dirty, but the replica is missing.
    Lost,
}

/// A running stage-in.
pub(crate) struct Fetch {
    pub(crate) base: Fingerprint,
    /// Whether a later content may have the same fingerprint.
    pub(crate) racy: bool,
    pub(crate) present: RangeSet,
    /// Blocks that some thread is copying.
    pub(crate) claimed: BTreeSet<u64>,
    /// The block after the last read: the next to be fetched.
    pub(crate) wanted: u64,
    /// Blocks that readers are expected to want, the nearest first. Fetched before all others.
    pub(crate) ahead: VecDeque<u64>,
    /// Number of background fetchers that work on the file or are about to.
    pub(crate) fetchers: u32,
    /// Most fetchers allowed. It grows when readers catch up with blocks that were expected.
    pub(crate) fetchers_max: u32,
    pub(crate) sums: Vec<u64>,
    pub(crate) source: Arc<dyn StoreFile>,
    pub(crate) replica: Arc<OwnedFd>,
    /// Whether a background fetch was requested.
    pub(crate) started: bool,
    /// Whether the fetch continues without readers.
    pub(crate) commanded: bool,
}

impl Fetch {
    pub(crate) fn has_block(&self, block: u64) -> bool {
        self.present.contains(crate::sums::block_range(block, self.base.size))
    }

    /// Returns a block that nobody has or copies: the nearest expected one, otherwise the next from `wanted` onwards,
    /// wrapping around.
    pub(crate) fn next_block(&mut self) -> Option<u64> {
        while let Some(block) = self.ahead.pop_front() {
            if !self.claimed.contains(&block) && !self.has_block(block) {
                return Some(block);
            }
        }
        let size = self.base.size;
        let from = self.wanted.min(size) / BLOCK_BYTES * BLOCK_BYTES;
        let ranges = [ByteRange::new(from, size), ByteRange::new(0, from)];
        let gaps = ranges.into_iter().flat_map(|range| self.present.missing(range));
        gaps.flat_map(|gap| gap.start / BLOCK_BYTES..gap.end.div_ceil(BLOCK_BYTES))
            .find(|block| !self.claimed.contains(block))
    }

    /// Marks whole blocks of a hole as present: the replica has the hole too.
    pub(crate) fn skip(&mut self, hole: ByteRange) {
        let first = hole.start.div_ceil(BLOCK_BYTES);
        let mut skipped = ByteRange::at(first * BLOCK_BYTES, 0);
        for block in first..self.sums.len() as u64 {
            let range = crate::sums::block_range(block, self.base.size);
            if range.end > hole.end {
                break;
            }
            self.sums[block as usize] = crate::sums::of_zeros(range.len());
            skipped.end = range.end;
        }
        self.present.insert(skipped);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.present.contains(ByteRange::new(0, self.base.size))
    }
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

impl Untouched {
    /// No byte is known to be unchanged.
    pub(crate) const NOTHING: Untouched = Untouched { bytes: 0, since: 0, wild: true };

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
        *self = Untouched::NOTHING;
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

/// The mutable fields of a file.
pub(crate) struct Live {
    /// Whether the catalogue was asked for the record.
    pub(crate) loaded: bool,
    pub(crate) anchor: Option<Arc<dyn Anchor>>,
    /// Whether the anchor was given up although only its path, or a walk over the store, leads to the file again.
    pub(crate) spared: bool,
    pub(crate) policy: Arc<Policy>,
    pub(crate) body: Body,
    /// The record as last committed; `None` if there is none.
    pub(crate) record: Option<Record>,
    pub(crate) version: Option<Version>,
    /// Whether another `File` has replaced this one, or will.
    pub(crate) retired: bool,
    /// Whether the last name was removed through the agent: no record, no stage-out.
    pub(crate) unlinked: bool,
    /// Whether the store's medium may lack that removal: record (in the catalogue) and replica are kept.
    pub(crate) removal_unsynced: bool,
    /// Whether a removal was under way when the agent died and the start could not check that the name is gone. The
    /// record still says `removing`.
    pub(crate) removal_doubted: bool,
    pub(crate) place: NameHold,
    pub(crate) handles: u32,
    pub(crate) writers: u32,
    /// Number of handles whose I/O bypasses the agent.
    pub(crate) passthrough: u32,
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
    /// When the last handle went.
    pub(crate) used: Duration,
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
            live: Mutex::new(Live {
                loaded: false,
                anchor: None,
                spared: false,
                policy,
                body: Body::Empty,
                record: None,
                version: None,
                retired: false,
                unlinked: false,
                removal_unsynced: false,
                removal_doubted: false,
                place: NameHold::Own,
                handles: 0,
                writers: 0,
                passthrough: 0,
                untouched: Untouched::NOTHING,
                copied_bytes: 0,
                changes: 0,
                synced: false,
                intent_synced: false,
                ended: false,
                medium: Medium::default(),
                identity_attribute_synced: false,
                name_unsynced: false,
                left: None,
                tried_time: None,
                own: None,
                shown: None,
                doubted: false,
                looked: None,
                given_time: None,
                copied: None,
                unsynced_below: false,
                clean_commit: 0,
                failures: 0,
                mapped: 0,
                error: (0, 0),
                failing: false,
                trouble: None,
                checked: None,
                used: now,
                dirty_since: now,
                verified: false,
                watched: None,
                read_at: None,
                fds: Descriptors::default(),
            }),
        }
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
            if live.name_unsynced && !live.unlinked { live.anchor.clone() } else { None }
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
        !self.live.lock().retired
    }
}

impl Live {
    /// Returns whether the replica holds, or may hold, bytes that the global copy lacks.
    pub(crate) fn is_unclean(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state != State::Clean)
    }

    /// Returns whether the record that says so is not durable yet.
    pub(crate) fn is_intent_unsynced(&self) -> bool {
        self.is_unclean() && !self.intent_synced
    }

    /// Returns whether the replica, not the global copy, is authoritative for the file.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(self.body, Body::Whole) && (self.is_unclean() || (self.unlinked && self.place != NameHold::Lost))
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
        self.writers > 0 && !matches!(self.policy.stage_out, StageOut::Age(_) | StageOut::Size(_))
    }

    /// Returns whether the replica of a clean file that nobody has open is to stay.
    pub(crate) fn stays_clean(&self) -> bool {
        let pinned = self.record.as_ref().is_some_and(|record| record.pinned);
        (self.policy.keep_after != KeepAfter::Delete || pinned) && !self.medium.lacks_some()
    }

    pub(crate) fn succeed(&mut self) {
        self.failing = false;
        self.trouble = None;
        self.failures = 0;
    }

    pub(crate) fn residency(&self) -> Residency {
        match (&self.record, &self.body) {
            (_, Body::Partial(_)) => Residency::Fetching,
            (None, _) => Residency::Absent,
            (Some(record), _) => match record.state {
                State::Clean => Residency::Clean,
                State::Dirty if self.writers > 0 => Residency::Dirty,
                State::Dirty => Residency::Queued,
                State::Draining => Residency::Draining,
                State::Conflict if record.damaged => Residency::Failed,
                State::Conflict => Residency::Conflict,
                State::Failed => Residency::Failed,
            },
        }
    }
}
