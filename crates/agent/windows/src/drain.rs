//! The rings of one file: taking their records and applying them to the burst buffer.
//!
//! All of this runs under the file's lock, on the thread that holds it. This is the file's own thread, or a request of
//! the kernel that must see all writes acknowledged before it.
//!
//! 1. The burst buffer, together with the records of the rings from the applied mark on, is the file after the whole
//!    sequence. Alone, it is a prefix of the sequence whenever no sweep is under way (`window::plan`).
//! 2. A ring's room is released only when its bytes are in the burst buffer and the applied mark says so. Where rings
//!    are durable, both are on their media by then.
//! 3. A ring that ended stays, with its files, until nothing of it is pending.
//! 4. While records cannot be applied, all rings of the file have ended, and readers find the pending records laid over
//!    the replica. A truncation is then recorded before it is made, and applies to the pending records.

mod apply;
mod bring;
mod pending;
mod write_back;

pub use pending::Pending;
use types::HasErrno;
use write_back::KernelWriteBack;

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Instant, Mutex, MutexGuard};
use data_store::{WindowFile, WindowTarget};
use types::{ByteRange, Epoch};
use window::drained::Drained;
use window::limits::{BATCH_BYTES_MAX, LONE_BYTES_MAX};
use window::plan::{ApplyQueue, Batch, RingSlot};
use window::ring::{RingGrant, RingItem, RingReader, Stop};
use window::sequence::Sequence;
use window::{Mapping, Memory, WindowMedium, clock, layout, sequence};

use crate::budget::Share;
use crate::counters::WindowCounters;
use crate::damage::Damages;
use crate::fault;
use crate::limits;
use crate::place::{CutRecord, FilePlace, RingRecord};
use crate::replay;
use crate::session::random;

/// Environment variable of a process that a test kills: its batches are small, so that it dies during sweeps.
#[cfg(feature = "testing")]
pub const SMALL_BATCHES: &str = "FOREBAY_WINDOW_TEST";

/// Returns a queue with small batches in a process that a test kills.
#[cfg(feature = "testing")]
fn small_batches() -> Option<ApplyQueue> {
    std::env::var(SMALL_BATCHES).ok().map(|_| ApplyQueue::with_batches_of(40_000, 15_000))
}

struct Ring {
    reader: RingReader<Arc<Mapping>>,
    open: u64,
    ended: bool,
    /// Wait time of writers, us, already added to the counters.
    waited_us: u64,
    /// Time at which a record was last taken.
    came: Instant,
    /// Time at which a record was last taken or room released, or at which nothing was unfinished.
    moved: Instant,
    /// Start of the last check that found no record left to take.
    empty: Instant,
    _share: Share,
}

impl Ring {
    /// Adds the time that writers waited since the last call to the counters.
    fn count_waits(&mut self, counters: &WindowCounters) {
        let now = self.reader.waited_us();
        WindowCounters::add(&counters.waited_us, now.saturating_sub(self.waited_us));
        self.waited_us = self.waited_us.max(now);
    }

    /// Returns the span in which a record found now can have been written, whatever its program claims: ns since 1970.
    fn written_within(&self) -> RangeInclusive<u64> {
        let now = clock::now_ns();
        now.saturating_sub(self.empty.elapsed().as_nanos() as u64)..=now
    }

    /// Whether a writer may soon have to wait.
    fn is_short_of_room(&self) -> bool {
        self.reader.used() > self.reader.grant().capacity / 2
    }
}

pub(crate) struct Granted {
    pub ring: Arc<Mapping>,
    pub sequence: Arc<Mapping>,
    pub id: layout::RingId,
    pub capacity: u64,
    pub medium: WindowMedium,
}

pub(crate) struct Drain {
    place: FilePlace,
    hint: String,
    medium: WindowMedium,
    /// Write-back of applied bytes. Ends before `target` is dropped.
    write_back: KernelWriteBack,
    /// Target of the records. Keeps the file open for writing as long as there are windows.
    target: Box<dyn WindowTarget>,
    part_bytes: u64,
    /// Whether each write costs a round trip.
    is_remote: bool,
    sequence: Sequence<Arc<Mapping>>,
    counter: Arc<Mapping>,
    drained: Drained<Mapping>,
    rings: BTreeMap<RingSlot, Ring>,
    next: usize,
    queue: ApplyQueue,
    buffer: Vec<u8>,
    /// Damages of acknowledged writes, reported to the programs that have the file open.
    damages: Damages,
    /// Whether the last batch could not be applied.
    failing: bool,
    /// Whether the last sync of writes past the rings failed.
    unsynced: bool,
    /// Truncation while records could not be applied.
    cut: Option<CutRecord>,
    /// Whether all acknowledged writes survive a crash of the machine without a sync.
    kept: Arc<AtomicBool>,
    counters: Arc<WindowCounters>,
}

impl Drain {
    pub fn new(
        place: FilePlace,
        medium: WindowMedium,
        hint: String,
        file: WindowFile,
        damages: Damages,
        counters: &Arc<WindowCounters>,
    ) -> io::Result<Drain> {
        let create = |path: std::path::PathBuf| Mapping::create(&path, sequence::WORD_BYTES, medium)?.guarded();
        let counter = Arc::new(create(place.sequence())?);
        let drained = Drained::begin(create(place.drained())?);
        let sequence = Sequence::new(Arc::clone(&counter));
        // A batch that waits for a medium or a server must be large enough to be worth it.
        let lone_bytes_max = if medium.is_durable() || file.is_remote { BATCH_BYTES_MAX } else { LONE_BYTES_MAX };
        let queue = ApplyQueue::with_batches_of(BATCH_BYTES_MAX, lone_bytes_max);
        #[cfg(feature = "testing")]
        let queue = small_batches().unwrap_or(queue);
        let rings = BTreeMap::new();
        // Elsewhere each batch is synced, or sent to a server.
        let write_back = KernelWriteBack::new(if medium.is_durable() { None } else { file.write_back });
        let (next, buffer, failing, unsynced, cut) = (0, Vec::new(), false, false, None);
        let (kept, counters) = (Arc::default(), Arc::clone(counters));
        Ok(Drain {
            place,
            medium,
            hint,
            write_back,
            target: file.target,
            part_bytes: file.part_bytes,
            is_remote: file.is_remote,
            sequence,
            counter,
            drained,
            rings,
            next,
            queue,
            buffer,
            damages,
            failing,
            unsynced,
            cut,
            kept,
            counters,
        })
    }

    pub fn place(&self) -> &FilePlace {
        &self.place
    }

    /// Returns the flag that tells whether acknowledged writes survive a crash of the machine without a sync. The flag
    /// is kept current.
    pub fn kept(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.kept)
    }

    /// Updates the flag `kept`. While there are rings, writes past them are synced, and earlier data was synced before
    /// the first ring.
    fn tell_kept(&self) {
        let troubled = self.failing || self.unsynced;
        self.kept.store(self.medium.is_durable() && !self.rings.is_empty() && !troubled, Ordering::Release);
    }

    pub fn add(&mut self, open: u64, share: Share) -> io::Result<Granted> {
        // Writes past windows, and the creation of the file, become as durable as the writes to this window will be.
        self.sync()?;
        self.make(open, share).map_err(|error| self.counters.without_place(error))
    }

    fn make(&mut self, open: u64, share: Share) -> io::Result<Granted> {
        let (number, capacity, id) = (self.next, share.bytes(), layout::RingId(random()?));
        self.next += 1;
        let bytes = layout::HEADER_BYTES + capacity as usize;
        let memory = Arc::new(Mapping::create(&self.place.ring(number), bytes, self.medium)?.guarded()?);
        fault::point("window.ring");
        let writable = ByteRange::new(0, i64::MAX as u64);
        let grant = RingGrant { ring: id, capacity, epochs: Epoch(0)..=Epoch(0), writable };
        let reader = RingReader::create(Arc::clone(&memory), grant).map_err(io::Error::other)?;
        self.place.grant(number, &RingRecord::new(id, capacity))?;
        fault::point("window.granted");
        let slot = RingSlot(number);
        self.queue.join(slot);
        self.write_back.goes_on();
        let now = Instant::now();
        self.rings.insert(
            slot,
            Ring { reader, open, ended: false, waited_us: 0, came: now, moved: now, empty: now, _share: share },
        );
        WindowCounters::add(&self.counters.attached, 1);
        self.tell_kept();
        Ok(Granted { ring: memory, sequence: Arc::clone(&self.counter), id, capacity, medium: self.medium })
    }

    /// Makes the data in the burst buffer, and its times, survive a crash of the machine. Returns its boot verifier.
    /// `None`, without a sync, if the rings do not survive a crash.
    pub fn sync(&mut self) -> io::Result<Option<u64>> {
        if !self.medium.is_durable() {
            return Ok(None);
        }
        let synced = self.target.sync();
        self.unsynced = synced.is_err();
        self.tell_kept();
        synced.map(Some)
    }

    /// Reports once, as `EIO`, that writes past the windows may have been lost with the server's machine before they
    /// were synced.
    pub fn report_error_to_writer(&self) -> io::Result<()> {
        self.target.report_loss()
    }

    /// Ends the early write-back. The wait for a piece under way is bounded, and the rest is left to the kernel.
    pub fn end_behind(&mut self) {
        self.write_back.end();
    }

    /// Returns the size of an open file's present ring.
    pub fn capacity_of(&self, open: u64) -> Option<u64> {
        let mut rings = self.rings.values();
        rings.find(|ring| ring.open == open && !ring.ended).map(|ring| ring.reader.grant().capacity)
    }

    pub fn windows(&self) -> usize {
        self.rings.values().filter(|ring| !ring.ended).count()
    }

    #[cfg(test)]
    pub fn damages(&self) -> u64 {
        self.damages.count()
    }

    pub fn is_over(&self) -> bool {
        self.rings.is_empty()
    }

    /// Ends the rings of one open file, or all. Their records count as acknowledged, and no more are accepted.
    pub fn end(&mut self, open: Option<u64>) {
        let ending: Vec<_> = self.rings.iter().filter(|(_, ring)| open.is_none_or(|open| ring.open == open)).collect();
        let ending: Vec<_> = ending.into_iter().map(|(slot, _)| *slot).collect();
        ending.into_iter().for_each(|slot| self.end_ring(slot, open.is_some()));
    }

    /// Ends a ring. `asked`: its program requested this.
    fn end_ring(&mut self, slot: RingSlot, asked: bool) {
        let Drain { place, rings, queue, hint, damages, counters, .. } = self;
        let Some(ring) = rings.get_mut(&slot).filter(|ring| !ring.ended) else { return };
        if ring.reader.memory().is_broken() {
            // Our memory may by now differ from that of the program.
            replay::end(&place.ring(slot.0));
        }
        let within = ring.written_within();
        ring.reader.take_rest(&mut |found| offer(queue, (slot, &within), found, hint, damages, counters));
        ring.ended = true;
        ring.count_waits(counters);
        WindowCounters::add(&counters.revoked, (!asked).into());
        if ring.reader.memory().is_cut() {
            // The other content of the ring cannot be known.
            damages.note(counters);
            tracing::error!(
                file = hint,
                "a window's memory was truncated by its program or damaged: acknowledged writes may be lost"
            );
        }
        queue.leave(slot);
        self.tell_kept();
        if self.windows() == 0 {
            self.write_back.ends();
        }
        fault::point("window.revoked");
    }

    /// Takes published records. Returns whether there were any.
    pub fn take(&mut self) -> bool {
        let before = self.queue.bytes();
        let slots: Vec<_> = self.rings.keys().copied().collect();
        for slot in slots {
            let Drain { rings, queue, hint, damages, sequence, counters, .. } = self;
            let Some(ring) = rings.get_mut(&slot).filter(|ring| !ring.ended) else { continue };
            let before = ring.reader.cursor();
            let within = ring.written_within();
            let looked = Instant::now();
            let stop = ring.reader.take(&mut |found| offer(queue, (slot, &within), found, hint, damages, counters));
            let all = !ring.reader.is_behind(ring.reader.head());
            if ring.reader.cursor() > before {
                ring.came = Instant::now();
                ring.moved = ring.came;
            } else if all {
                ring.moved = looked;
            }
            if all {
                ring.empty = looked;
            }
            ring.count_waits(counters);
            queue.advance_known(slot, ring.reader.known_below(sequence));
            if stop == Stop::Revoke || ring.reader.memory().is_broken() {
                self.end_ring(slot, false);
            }
        }
        self.tell_kept();
        self.queue.bytes() != before
    }

    /// Whether a ring is so full that its writer may soon have to wait.
    pub fn is_short_of_room(&self) -> bool {
        self.rings.values().any(Ring::is_short_of_room)
    }

    pub fn is_without_room(&self) -> bool {
        self.rings.values().any(|ring| !ring.ended && ring.reader.used() == ring.reader.grant().capacity)
    }

    /// Whether other writers may still write between the bytes of those that are short of room.
    pub fn neighbours_come(&self) -> bool {
        let mut rings = self.rings.values().filter(|ring| !ring.ended);
        rings.any(|ring| !ring.is_short_of_room() && ring.came.elapsed() < limits::WINDOW_DRAIN_AFTER)
    }

    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the last attempt to apply pending records failed.
    pub fn is_failing(&self) -> bool {
        self.failing
    }

    /// Applies one batch, when this file has its `turn` if turns are used. Returns false if no batch is worthwhile.
    /// After an error the same batch is tried again, and the rings have ended. So their programs write through the
    /// kernel, which reports errors, and do not wait for room in vain.
    pub fn batch(&mut self, urgent: bool, turn: Option<&Mutex<()>>) -> io::Result<bool> {
        let Some(batch) = self.queue.batch(urgent) else { return Ok(false) };
        let turn = turn.map(Mutex::lock);
        let brought = self.bring(Some(batch));
        // A fair unlock passes the turn to the file that has waited longest.
        turn.into_iter().for_each(MutexGuard::unlock_fair);
        brought
    }

    fn bring(&mut self, batch: Option<Batch>) -> io::Result<bool> {
        let Some(batch) = batch else { return Ok(false) };
        let written = self.write(&batch);
        if written.as_ref().is_err_and(|error| error.errno() == Some(libc::EINTR)) {
            // The caller that waited for the server has given up. Another caller will apply the batch.
            return written.map(|()| false);
        }
        let failed_before = std::mem::replace(&mut self.failing, written.is_err());
        self.tell_kept();
        if let Err(error) = written {
            if !failed_before {
                let (file, bytes) = (&self.hint, self.queue.bytes());
                tracing::error!(
                    %error,
                    file,
                    bytes,
                    "could not apply a window's records: the window ends, and they are tried again"
                );
            }
            self.end(None);
            return Err(error);
        }
        WindowCounters::add(&self.counters.drained, batch.writes.iter().map(|write| write.range.len()).sum());
        WindowCounters::add(&self.counters.superseded, batch.superseded);
        batch.writes.iter().for_each(|write| self.write_back.wrote(write.range));
        fault::point("window.written");
        self.drained.advance(batch.progress);
        fault::point("window.marked");
        for (slot, position) in self.queue.done(&batch) {
            if let Some(ring) = self.rings.get_mut(&slot) {
                ring.reader.release(position);
                ring.moved = Instant::now();
            }
        }
        fault::point("window.released");
        Ok(true)
    }

    /// Removes ended rings of which nothing is pending (3).
    pub fn sweep(&mut self) {
        let Drain { rings, place, queue, .. } = self;
        rings.retain(|slot, ring| {
            let over = ring.ended && !queue.holds(*slot);
            if over {
                place.remove_ring(slot.0);
                fault::point("window.removed");
            }
            !over
        });
        // Must come before others learn that the ring is gone: from then on, later writes are not synced.
        self.tell_kept();
    }

    /// Returns the doorbell of the only ring, with the memory to sleep on. `None` if there are several rings, or
    /// records to take.
    pub fn lie_down(&self) -> Option<(Arc<Mapping>, u32)> {
        let mut rings = self.rings.values();
        let (Some(ring), None) = (rings.next(), rings.next()) else { return None };
        Some((Arc::clone(ring.reader.memory()), ring.reader.lie_down()?))
    }

    pub fn get_up(&self) {
        self.rings.values().for_each(|ring| ring.reader.get_up());
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if self.rings.is_empty() {
            self.place.remove();
        }
    }
}

fn offer(
    queue: &mut ApplyQueue,
    (slot, within): (RingSlot, &RangeInclusive<u64>),
    found: RingItem,
    hint: &str,
    damages: &Damages,
    counters: &WindowCounters,
) {
    match found {
        RingItem::Record(mut record) => {
            WindowCounters::add(&counters.writes, 1);
            WindowCounters::add(&counters.acknowledged, record.range.len());
            record.written_ns = record.written_ns.clamp(*within.start(), *within.end());
            queue.offer(slot, record);
        }
        RingItem::Damage(damage) => {
            damages.note(counters);
            tracing::error!(
                file = hint,
                ?damage,
                "an acknowledged write was damaged in its ring and is lost; write it again"
            );
        }
    }
}
