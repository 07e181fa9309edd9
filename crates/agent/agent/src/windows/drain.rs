//! The rings of one file: taking their records and bringing them to the burst buffer.
//!
//! All of it happens under the file's lock, on whichever thread has it: the file's own drain thread, or a request of the
//! kernel that must see what was acknowledged before it.
//!
//! 1. what is in the burst buffer is, with what the rings hold by the mark of the drained, the file after all of its sequence; by itself it
//!    is a prefix of the sequence whenever no sweep is under way (`window::plan`);
//! 2. a ring's room is given back only when its bytes are in the burst buffer and the mark of the drained says so; where rings
//!    are durable, both are so on the media of either;
//! 3. a ring that ended stays, with its files, until nothing of it is pending;
//! 4. while nothing can be brought to the burst buffer, all rings of the file have ended, and whoever looks at it finds what
//!    they hold laid over the replica. A truncation then is written down before it is made, and applies to what they hold.

mod behind;
mod bring;
mod pending;
mod settle;

use behind::KernelWriteBack;
pub(crate) use pending::Pending;

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Instant, Mutex, MutexGuard};
use types::{ByteRange, Epoch};
use window::drained::Drained;
use window::limits::{BATCH_BYTES_MAX, LONE_BYTES_MAX};
use window::plan::{ApplyQueue, Batch, RingSlot};
use window::ring::{RingGrant, RingItem, RingReader, Stop};
use window::sequence::Sequence;
use window::{Mapping, Memory, WindowMedium, clock, layout, sequence};

use super::budget::Share;
use super::counters::WindowCounters;
use super::damage::Damages;
use super::fault;
use super::place::{CutRecord, FilePlace, RingRecord};
use super::replay;
use super::session::random;
use crate::burst_buffer::OpenData;
use crate::limits;

/// One ring.
struct Ring {
    reader: RingReader<Arc<Mapping>>,
    /// The open file that it belongs to.
    open: u64,
    ended: bool,
    /// What its writers said that they had waited, as far as it was counted.
    waited_us: u64,
    /// When something was taken from it last.
    came: Instant,
    /// Or given back, or nothing was unfinished in it.
    moved: Instant,
    /// Before it was last found with nothing in it that was not taken.
    empty: Instant,
    _share: Share,
}

impl Ring {
    /// Counts what its writers waited since the last time.
    fn count_waits(&mut self, counters: &WindowCounters) {
        let now = self.reader.waited_us();
        WindowCounters::add(&counters.waited_us, now.saturating_sub(self.waited_us));
        self.waited_us = self.waited_us.max(now);
    }

    /// When a record can have been written that is found now, whatever its program says: ns since 1970.
    fn written_within(&self) -> RangeInclusive<u64> {
        let now = clock::now_ns();
        now.saturating_sub(self.empty.elapsed().as_nanos() as u64)..=now
    }

    /// Whether its writer may soon wait.
    fn is_short_of_room(&self) -> bool {
        self.reader.used() > self.reader.grant().capacity / 2
    }
}

/// What a program gets.
pub(super) struct Granted {
    pub ring: Arc<Mapping>,
    pub sequence: Arc<Mapping>,
    pub id: layout::RingId,
    pub capacity: u64,
    pub medium: WindowMedium,
}

/// The rings of one file.
pub(super) struct Drain {
    place: FilePlace,
    hint: String,
    /// Where rings and marks lie.
    medium: WindowMedium,
    /// What was drained is written back. It ends before the handle does.
    behind: KernelWriteBack,
    /// Writes what is drained. It keeps the file open for writing as long as there are windows.
    handle: Box<dyn OpenData>,
    sequence: Sequence<Arc<Mapping>>,
    counter: Arc<Mapping>,
    drained: Drained<Mapping>,
    rings: BTreeMap<RingSlot, Ring>,
    next: usize,
    queue: ApplyQueue,
    buffer: Vec<u8>,
    /// Something acknowledged was found damaged: those are told who have the file open.
    damages: Damages,
    /// The last batch could not be brought to the burst buffer.
    failing: bool,
    /// Something past the rings could not be synced when that was tried last.
    unsynced: bool,
    /// A truncation since then.
    cut: Option<CutRecord>,
    /// Nothing acknowledged needs a sync to survive a crash of the machine.
    kept: Arc<AtomicBool>,
    counters: Arc<WindowCounters>,
}

impl Drain {
    pub fn new(
        place: FilePlace,
        medium: WindowMedium,
        hint: String,
        handle: Box<dyn OpenData>,
        damages: Damages,
        counters: &Arc<WindowCounters>,
    ) -> io::Result<Drain> {
        if medium.is_durable() {
            handle.retains();
        }
        let create = |path: std::path::PathBuf| Mapping::create(&path, sequence::WORD_BYTES, medium)?.guarded();
        let counter = Arc::new(create(place.sequence())?);
        let drained = Drained::begin(create(place.drained())?);
        let sequence = Sequence::new(Arc::clone(&counter));
        // Where each batch has to wait for a medium or a server, it has to be worth it.
        let lone_bytes_max = if medium.is_durable() || handle.is_remote() { BATCH_BYTES_MAX } else { LONE_BYTES_MAX };
        let queue = ApplyQueue::with_batches_of(BATCH_BYTES_MAX, lone_bytes_max);
        #[cfg(test)]
        let queue = super::tests::small_batches().unwrap_or(queue);
        let rings = BTreeMap::new();
        // Elsewhere each batch is synced, or on its way to a server.
        let behind = KernelWriteBack::new(if medium.is_durable() { None } else { handle.write_behind() });
        let (next, buffer, failing, unsynced, cut) = (0, Vec::new(), false, false, None);
        let (kept, counters) = (Arc::default(), Arc::clone(counters));
        Ok(Drain {
            place,
            medium,
            hint,
            behind,
            handle,
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

    /// Where its rings are written down.
    pub fn place(&self) -> &FilePlace {
        &self.place
    }

    /// Whether nothing acknowledged needs a sync to survive a crash of the machine; told as it changes.
    pub fn kept(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.kept)
    }

    /// As long as there are rings all that comes past them is synced, and so was what was there before them.
    fn tell_kept(&self) {
        let troubled = self.failing || self.unsynced;
        self.kept.store(self.medium.is_durable() && !self.rings.is_empty() && !troubled, Ordering::Release);
    }

    /// A ring for an open file.
    pub fn add(&mut self, open: u64, share: Share) -> io::Result<Granted> {
        // What was written past windows, and that there is such a file at all, is as durable as what will be written to this one.
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
        self.behind.goes_on();
        let now = Instant::now();
        self.rings.insert(
            slot,
            Ring { reader, open, ended: false, waited_us: 0, came: now, moved: now, empty: now, _share: share },
        );
        WindowCounters::add(&self.counters.attached, 1);
        self.tell_kept();
        Ok(Granted { ring: memory, sequence: Arc::clone(&self.counter), id, capacity, medium: self.medium })
    }

    /// What is in the burst buffer survives a crash of the machine, its times too, where what is in the rings does.
    pub fn sync(&mut self) -> io::Result<()> {
        if !self.medium.is_durable() {
            return Ok(());
        }
        let synced = self.handle.sync_acknowledged(false);
        self.unsynced = synced.is_err();
        self.tell_kept();
        synced
    }

    /// `EIO`, once: what came past the windows may have been lost with the server's machine before it was synced.
    pub fn tell_writer(&self) -> io::Result<()> {
        self.handle.tell_writer()
    }

    /// What is written back early is left to the kernel; nobody waits long for what is on its way.
    pub fn end_behind(&mut self) {
        self.behind.end();
    }

    /// The size of the ring that an open file has now.
    pub fn capacity_of(&self, open: u64) -> Option<u64> {
        let mut rings = self.rings.values();
        rings.find(|ring| ring.open == open && !ring.ended).map(|ring| ring.reader.grant().capacity)
    }

    /// How many rings take writes.
    pub fn windows(&self) -> usize {
        self.rings.values().filter(|ring| !ring.ended).count()
    }

    /// How often something acknowledged was found damaged.
    #[cfg(test)]
    pub fn damages(&self) -> u64 {
        self.damages.count()
    }

    /// Whether no ring is left.
    pub fn is_over(&self) -> bool {
        self.rings.is_empty()
    }

    /// Ends the rings of one open file, or all: what they hold is acknowledged, and nothing more will be.
    pub fn end(&mut self, open: Option<u64>) {
        let ending: Vec<_> = self.rings.iter().filter(|(_, ring)| open.is_none_or(|open| ring.open == open)).collect();
        let ending: Vec<_> = ending.into_iter().map(|(slot, _)| *slot).collect();
        ending.into_iter().for_each(|slot| self.end_ring(slot, open.is_some()));
    }

    /// `asked`: by its program.
    fn end_ring(&mut self, slot: RingSlot, asked: bool) {
        let Drain { place, rings, queue, hint, damages, counters, .. } = self;
        let Some(ring) = rings.get_mut(&slot).filter(|ring| !ring.ended) else { return };
        if ring.reader.memory().is_broken() {
            // What we have there by now is not what its program has.
            replay::end(&place.ring(slot.0));
        }
        let within = ring.written_within();
        ring.reader.take_rest(&mut |found| offer(queue, (slot, &within), found, hint, damages, counters));
        ring.ended = true;
        ring.count_waits(counters);
        WindowCounters::add(&counters.revoked, (!asked).into());
        if ring.reader.memory().is_cut() {
            // Nobody can tell what else it held.
            damages.note(counters);
            tracing::error!(
                file = hint,
                "the memory of a window is not there, cut by its program or damaged: acknowledged writes in it may be lost"
            );
        }
        queue.leave(slot);
        self.tell_kept();
        if self.windows() == 0 {
            self.behind.ends();
        }
        fault::point("window.revoked");
    }

    /// Takes what is published; whether there was anything.
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
            queue.settle(slot, ring.reader.known_below(sequence));
            if stop == Stop::Revoke || ring.reader.memory().is_broken() {
                self.end_ring(slot, false);
            }
        }
        self.tell_kept();
        self.queue.bytes() != before
    }

    /// Whether a ring is so full that its writer may soon wait.
    pub fn is_short_of_room(&self) -> bool {
        self.rings.values().any(Ring::is_short_of_room)
    }

    /// Whether a writer waits for room.
    pub fn is_without_room(&self) -> bool {
        self.rings.values().any(|ring| !ring.ended && ring.reader.used() == ring.reader.grant().capacity)
    }

    /// Whether others may bring what belongs between the bytes of those who are short of room.
    pub fn neighbours_come(&self) -> bool {
        let mut rings = self.rings.values().filter(|ring| !ring.ended);
        rings.any(|ring| !ring.is_short_of_room() && ring.came.elapsed() < limits::WINDOW_DRAIN_AFTER)
    }

    /// Whether nothing taken waits to be drained.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether what is pending could not be brought to the burst buffer when it was tried last.
    pub fn is_failing(&self) -> bool {
        self.failing
    }

    /// Brings one batch to the burst buffer, when this file has its `turn` if there are such; false if there is none worth it. On an
    /// error the same batch comes again, and the rings have ended: their programs write through the kernel, which tells them, and do
    /// not wait for room in vain.
    pub fn batch(&mut self, urgent: bool, turn: Option<&Mutex<()>>) -> io::Result<bool> {
        let Some(batch) = self.queue.batch(urgent) else { return Ok(false) };
        let turn = turn.map(Mutex::lock);
        let brought = self.bring(Some(batch));
        // To whoever waits longest, and not to this file again.
        turn.into_iter().for_each(MutexGuard::unlock_fair);
        brought
    }

    fn bring(&mut self, batch: Option<Batch>) -> io::Result<bool> {
        let Some(batch) = batch else { return Ok(false) };
        let written = self.write(&batch);
        if written.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINTR)) {
            // Whoever waited for the server has given up; others bring it there.
            return written.map(|()| false);
        }
        let failed_before = std::mem::replace(&mut self.failing, written.is_err());
        self.tell_kept();
        if let Err(error) = written {
            if !failed_before {
                let (file, bytes) = (&self.hint, self.queue.bytes());
                tracing::error!(%error, file, bytes, "a window cannot be drained: it ends, and its bytes are tried again");
            }
            self.end(None);
            return Err(error);
        }
        WindowCounters::add(&self.counters.drained, batch.writes.iter().map(|write| write.range.len()).sum());
        WindowCounters::add(&self.counters.superseded, batch.superseded);
        batch.writes.iter().for_each(|write| self.behind.wrote(write.range));
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

    /// Removes the rings that are over, once nothing of them is pending (3).
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
        // Before anybody learns that it is over, from when on nothing is synced that comes.
        self.tell_kept();
    }

    /// The bell of the only ring, with the memory to sleep on; `None` if there are several, or something to take.
    pub fn lie_down(&self) -> Option<(Arc<Mapping>, u32)> {
        let mut rings = self.rings.values();
        let (Some(ring), None) = (rings.next(), rings.next()) else { return None };
        Some((Arc::clone(ring.reader.memory()), ring.reader.lie_down()?))
    }

    /// Bells need not ring any more.
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
            tracing::error!(file = hint, ?damage, "an acknowledged write was damaged in its ring and is lost");
        }
    }
}
