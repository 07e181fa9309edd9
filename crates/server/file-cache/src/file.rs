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
//!    single metadata calls of the global store and the copy of a small file; never over a long copy. A batch holds many
//!    gates at once; nobody else who holds one waits for another.
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

use crate::api::Residency;
use crate::change_time::VisibleChangeTime;
use crate::last_access::Watched;
use crate::limits::BLOCK_BYTES;
use crate::medium::Medium;
use crate::side::Trouble;

/// One version of one file's data.
pub struct File {
    pub(crate) identity: Identity,
    pub(crate) drain: Mutex<()>,
    pub(crate) io: RwLock<()>,
    pub(crate) append: Mutex<()>,
    /// Changes of it that came as they were made, counted while `io` is held, or `dating`.
    pub(crate) changes_now: AtomicU64,
    /// Who changes it past `io`, and who sets its time back ([`FileHandle::backdate`](crate::FileHandle::backdate)), one at a time. Only
    /// `live` is taken with it.
    pub(crate) dating: Mutex<()>,
    /// One backdated write at a time.
    pub(crate) backdated: Mutex<()>,
    /// Shared by who syncs the replica, exclusive for a moment to wait for them. Nothing but `live` is taken with it.
    pub(crate) syncing: RwLock<()>,
    pub(crate) gate: Mutex<()>,
    pub(crate) live: Mutex<Live>,
    /// Bytes of the replica that its last stage-out has passed: how far one is that is under way.
    pub(crate) passed: AtomicU64,
    /// A fetched block arrived, or the body changed.
    pub(crate) moved: Condvar,
}

/// Whether a file keeps its name where another may take it (policy `publish = atomic`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameHold {
    /// As far as we are concerned.
    Own,
    /// Another is being made, and its record says `removing` for that alone.
    GivenUp,
    /// Another has it: who asks for this one shall look the name up again.
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
    /// Open files read and write the global copy.
    Through,
    /// The record says dirty and the replica is gone.
    Lost,
}

/// A stage-in under way.
pub(crate) struct Fetch {
    pub(crate) base: Fingerprint,
    /// A later content may have this fingerprint as well.
    pub(crate) racy: bool,
    pub(crate) present: RangeSet,
    /// Blocks that somebody is copying.
    pub(crate) claimed: BTreeSet<u64>,
    /// Where the last reader was: the next block to fetch.
    pub(crate) wanted: u64,
    /// Blocks that readers are expected to want, the nearest first: before all others.
    pub(crate) ahead: VecDeque<u64>,
    /// Background fetchers that have it, or will.
    pub(crate) fetchers: u32,
    /// How many there may be: more, the more often a reader came before what was expected of it.
    pub(crate) fetchers_max: u32,
    pub(crate) sums: Vec<u64>,
    pub(crate) source: Arc<dyn StoreFile>,
    pub(crate) replica: Arc<OwnedFd>,
    /// A background fetch was asked for.
    pub(crate) started: bool,
    /// It goes on without readers.
    pub(crate) commanded: bool,
}

impl Fetch {
    pub(crate) fn has_block(&self, block: u64) -> bool {
        self.present.contains(crate::sums::block_range(block, self.base.size))
    }

    /// A block that nobody has or copies: the nearest that is expected to be wanted, else from `wanted` onwards and around.
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

    /// Whole blocks of a hole need no fetch: the replica has it too.
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
    /// For reads that are noted.
    pub(crate) noted: Option<Arc<OwnedFd>>,
    /// Closed when the last writer goes: it would refuse our own lease probe.
    pub(crate) write: Option<Arc<OwnedFd>>,
    pub(crate) handle: Option<Arc<OwnedFd>>,
    pub(crate) global: Option<(Access, Arc<dyn StoreFile>)>,
}

impl Descriptors {
    /// Takes those of the replica out.
    pub(crate) fn take_replicas(&mut self) -> Descriptors {
        let global = self.global.take();
        let replicas = std::mem::take(self);
        self.global = global;
        replicas
    }

    /// One of the replica, of whatever kind.
    pub(crate) fn of_replica(&self) -> Option<Arc<OwnedFd>> {
        self.handle.as_ref().or(self.read.as_ref()).or(self.write.as_ref()).cloned()
    }
}

/// The first bytes of a replica that are those of its checksums for certain. Whoever writes it past us says by opening it whether he
/// appends alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untouched {
    bytes: u64,
    /// The same for the checksums of the stage-out that began last.
    since: u64,
    /// Somebody may write anywhere.
    wild: bool,
}

impl Untouched {
    /// Nothing is known.
    pub(crate) const NOTHING: Untouched = Untouched { bytes: 0, since: 0, wild: true };

    /// The replica's `size` bytes are those of its checksums, and nobody writes it.
    pub(crate) fn all(size: u64) -> Untouched {
        Untouched { bytes: size, since: size, wild: false }
    }

    /// The checksums are gone.
    pub(crate) fn unsummed(&mut self) {
        (self.bytes, self.since) = (0, 0);
    }

    /// Somebody may write anywhere, for as long as anybody writes.
    pub(crate) fn wild(&mut self) {
        *self = Untouched::NOTHING;
    }

    /// What lies at `offset` and behind it was changed.
    pub(crate) fn touch(&mut self, offset: u64) {
        (self.bytes, self.since) = (self.bytes.min(offset), self.since.min(offset));
    }

    /// A stage-out of `size` bytes begins. `quiet`: nobody writes. Returns how many bytes it need not look at.
    pub(crate) fn begin(&mut self, size: u64, quiet: bool) -> u64 {
        self.wild &= !quiet;
        self.since = if self.wild { 0 } else { size };
        self.bytes.min(size)
    }

    /// It has ended, and its checksums are those of the replica from now on.
    pub(crate) fn end(&mut self) {
        self.bytes = self.since;
    }
}

/// The fields of a file.
pub(crate) struct Live {
    /// The catalogue was asked for the record.
    pub(crate) loaded: bool,
    pub(crate) anchor: Option<Arc<dyn Anchor>>,
    /// The anchor was given up although only its path, or a walk over the store, leads to the file again.
    pub(crate) spared: bool,
    pub(crate) policy: Arc<Policy>,
    pub(crate) body: Body,
    /// The record as last committed; `None` if there is none.
    pub(crate) record: Option<Record>,
    pub(crate) version: Option<Version>,
    /// Another `File` has taken this one's place, or will.
    pub(crate) retired: bool,
    /// The last name went through us: no record, no stage-out.
    pub(crate) unlinked: bool,
    /// The store's medium may not have that yet: the record is kept in the catalogue, and the replica.
    pub(crate) removal_unsynced: bool,
    /// Its removal was under way when the agent died, and the start could not look whether the name is gone: the record says it still.
    pub(crate) removal_doubted: bool,
    pub(crate) place: NameHold,
    pub(crate) handles: u32,
    pub(crate) writers: u32,
    /// Handles whose I/O we do not see.
    pub(crate) passthrough: u32,
    /// What of the replica nobody can have changed since it was summed.
    pub(crate) untouched: Untouched,
    /// Bytes of the replica that the last stage-out found, or that were clean before.
    pub(crate) copied_bytes: u64,
    /// Rises with every open for writing and every change of length or time: what a running stage-out may have missed.
    pub(crate) changes: u64,
    /// The replica's content as of the last time it was clean is on the medium.
    pub(crate) synced: bool,
    /// The intent is on the medium.
    pub(crate) intent_synced: bool,
    /// The last agent ended in order, and the replica was not yet compared with what that left of its checksums.
    pub(crate) ended: bool,
    /// Whether the medium took the replica's bytes.
    pub(crate) medium: Medium,
    /// Who syncs the replica's data has the brand on the medium too.
    pub(crate) identity_attribute_synced: bool,
    /// New, and the name not known to be durable.
    pub(crate) name_unsynced: bool,
    /// What our last unfinished stage-out left below, if it could be read.
    pub(crate) left: Option<Fingerprint>,
    /// What the global copy was when the store last failed to set a time that a program gave it, and that time.
    pub(crate) tried_time: Option<(Fingerprint, Timestamp)>,
    /// From when to when attributes or names of the global copy were changed last through us, and nobody has looked since.
    pub(crate) own: Option<(Timestamp, Timestamp)>,
    /// The time of change that programs see, where it is not the global copy's.
    pub(crate) shown: Option<VisibleChangeTime>,
    /// Its ctime moved, and not by us, as somebody saw: only the bytes tell.
    pub(crate) doubted: bool,
    /// When somebody saw last that the global copy is what we left.
    pub(crate) looked: Option<Duration>,
    /// The last time that a program gave it.
    pub(crate) given_time: Option<Timestamp>,
    /// As the file counted its changes when all of it was found below, which could not be recorded.
    pub(crate) copied: Option<u64>,
    /// A sync of the global copy failed since it was last equal: what reads back there may never reach its medium.
    pub(crate) unsynced_below: bool,
    /// The commit that made the record clean.
    pub(crate) clean_commit: u64,
    pub(crate) failures: u32,
    /// Stage-outs in a row that found it mapped after its last close.
    pub(crate) mapped: u32,
    /// Number and errno of the last failed stage-out.
    pub(crate) error: (u64, i32),
    /// The error was told under this number already, and nothing succeeded since.
    pub(crate) failing: bool,
    /// What it was, for who asks.
    pub(crate) trouble: Option<Trouble>,
    /// When the fingerprint was last compared with the global copy.
    pub(crate) checked: Option<Duration>,
    /// When the last handle went.
    pub(crate) used: Duration,
    pub(crate) dirty_since: Duration,
    /// The replica was compared with its checksums, if it had to be.
    pub(crate) verified: bool,
    /// While reads are noted: what moves from here is one.
    pub(crate) watched: Option<Watched>,
    /// The last noted read that came through us and left no trace in a replica.
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

    /// A change of its replica past `io`, which counts for more than the time of what was written before.
    pub(crate) fn dated<E>(&self, change: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _dating = self.dating.lock();
        self.changes_now.fetch_add(1, Ordering::AcqRel);
        change()
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The name that a new file was made with is on the store's medium.
    pub(crate) fn sync_name(&self) -> io::Result<()> {
        let anchor = {
            let live = self.live.lock();
            if live.name_unsynced && !live.unlinked { live.anchor.clone() } else { None }
        };
        // One of O_TMPFILE may be given a name yet.
        if let Some(anchor) = anchor
            && anchor.attributes()?.links > 0
        {
            anchor.sync_name()?;
            self.live.lock().name_unsynced = false;
        }
        Ok(())
    }

    /// Whether this version is still the file's newest: false after the global copy changed behind us.
    pub fn is_current(&self) -> bool {
        !self.live.lock().retired
    }
}

impl Live {
    /// Whether the replica holds, or may hold, what the global copy lacks.
    pub(crate) fn is_unclean(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state != State::Clean)
    }

    /// Whether the record that says so is not durable yet.
    pub(crate) fn is_intent_unsynced(&self) -> bool {
        self.is_unclean() && !self.intent_synced
    }

    /// Whether the replica, not the global copy, says what the file is.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(self.body, Body::Whole) && (self.is_unclean() || (self.unlinked && self.place != NameHold::Lost))
    }

    /// Takes note of a failed stage-out; the same error in a row is one error.
    pub(crate) fn fail(&mut self, errno: i32) {
        if !self.failing || self.error.1 != errno {
            self.error = (self.error.0 + 1, errno);
        }
        self.failing = true;
        self.failures = self.failures.saturating_add(1);
    }

    /// The last close will queue it again: copying it now would be for nothing.
    pub(crate) fn waits_for_close(&self) -> bool {
        self.writers > 0 && !matches!(self.policy.stage_out, StageOut::Age(_) | StageOut::Size(_))
    }

    /// Whether the replica of a clean file that nobody has open is to stay.
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
