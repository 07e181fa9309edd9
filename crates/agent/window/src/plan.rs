//! Planner: decides which records are applied next.
//!
//! A [`ApplyQueue`] holds the taken records of one file from all its rings and returns batches. Batches are made in
//! *sweeps*: a sweep goes once over the file, from begin to end, and takes along the records that joined it.
//! Invariants:
//!
//! 1. the records that have joined this sweep or former ones are always a prefix of the file's sequence, over all
//!    rings. A number that no ring holds is skipped only when every ring says that it has none below
//!    ([`Reader::known_below`]);
//! 2. a record may join the current sweep only if it begins behind the sweep's position. Otherwise it and all later
//!    records wait for the next. So programs that write one file side by side stay together, apart by as much as their
//!    rings hold. A program that is ahead waits for room until the sweep has reached it;
//! 3. of bytes written several times within a sweep only the newest are applied;
//! 4. pieces that touch are applied as one write, of at most [`BATCH_BYTES_MAX`] bytes;
//! 5. room is given back only below the oldest record that is not applied.
//!
//! [`Reader::known_below`]: crate::ring::RingReader::known_below

mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use types::{ByteRange, RangeSet};

use crate::drained::AppliedProgress;
use crate::limits::{BATCH_BYTES_MAX, MERGE_BYTES_MIN};
use crate::ring::Taken;
use sweep::Sweep;

/// Number of a ring within one [`ApplyQueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSlot(pub usize);

/// Bytes of one record that are the newest at their offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPiece {
    /// Ring that holds the bytes.
    pub ring: RingSlot,
    /// Record that contains the bytes.
    pub record: Taken,
    /// Range of these bytes in the file.
    pub range: ByteRange,
}

impl RecordPiece {
    /// Returns the bytes of the record's payload before this piece.
    pub fn skip(&self) -> u64 {
        self.range.start - self.record.range.start
    }
}

/// Bytes that are written together: pieces that touch, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Range of the bytes in the file.
    pub range: ByteRange,
    /// Pieces that contain the bytes.
    pub pieces: Vec<RecordPiece>,
}

impl Write {
    /// Returns when the last of the bytes was written according to the programs, ns since 1970.
    pub fn written_ns(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.record.written_ns).max().unwrap_or(0)
    }
}

/// Step of applying a file's records. When all its writes are done, call [`crate::drained::Drained::advance`] with
/// `progress`, then [`ApplyQueue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Writes of the batch: disjoint, in file order.
    pub writes: Vec<Write>,
    /// Progress after the batch.
    pub progress: AppliedProgress,
    /// Bytes superseded by newer ones since the last batch.
    pub superseded: u64,
    /// Offset that the sweep has passed after the batch.
    passed: u64,
}

/// Sequence number, ring, position, first byte. This is the order of the file; the last three only make it total.
type Key = (u64, RingSlot, u64, u64);

#[derive(Debug, Default)]
struct RingState {
    known_below: u64,
    positions: BTreeSet<(u64, u64)>,
}

/// Records of one file that are not applied yet.
#[derive(Debug)]
pub struct ApplyQueue {
    /// Records that have not joined the sweep.
    waiting: BTreeMap<Key, (Taken, ByteRange)>,
    sweep: Sweep,
    rings: BTreeMap<RingSlot, RingState>,
    waiting_bytes: u64,
    /// Number of bytes from which a new attempt to find a batch that nobody waits for is worth it.
    try_at: u64,
    batch_bytes_max: u64,
    lone_bytes_max: u64,
}

impl Default for ApplyQueue {
    fn default() -> ApplyQueue {
        ApplyQueue::with_batches_of(BATCH_BYTES_MAX, BATCH_BYTES_MAX)
    }
}

impl ApplyQueue {
    /// Makes an empty queue. Its batches have at most `batch_bytes_max` bytes, or `lone_bytes_max` if none of their
    /// writes has [`MERGE_BYTES_MIN`].
    pub fn with_batches_of(batch_bytes_max: u64, lone_bytes_max: u64) -> ApplyQueue {
        let (waiting, sweep, rings) = (BTreeMap::new(), Sweep::default(), BTreeMap::new());
        ApplyQueue { waiting, sweep, rings, waiting_bytes: 0, try_at: 0, batch_bytes_max, lone_bytes_max }
    }

    /// Adds a ring of the file. The number of a ring that has left must not be used again.
    pub fn join(&mut self, ring: RingSlot) {
        self.rings.entry(ring).or_default();
    }

    /// Removes a ring that was scanned to its end. Its records stay until they are applied.
    pub fn leave(&mut self, ring: RingSlot) {
        self.advance_known(ring, u64::MAX);
    }

    /// Notes that every record of `ring` below `known_below` has been offered.
    pub fn advance_known(&mut self, ring: RingSlot, known_below: u64) {
        if let Some(state) = self.rings.get_mut(&ring) {
            state.known_below = state.known_below.max(known_below);
        }
    }

    /// Adds a record that was taken from `ring`.
    pub fn offer(&mut self, ring: RingSlot, record: Taken) {
        self.offer_part(ring, record, record.range);
    }

    /// Adds some bytes of a record, if the others must not be applied.
    pub fn offer_part(&mut self, ring: RingSlot, record: Taken, part: ByteRange) {
        let part = part.intersection(&record.range);
        let state = self.rings.entry(ring).or_default();
        if part.is_empty() || !state.positions.insert((record.position, part.start)) {
            return;
        }
        self.waiting_bytes += part.len();
        self.waiting.insert((record.sequence, ring, record.position, part.start), (record, part));
    }

    /// Returns the bytes of the records that are not applied, superseded ones included.
    pub fn bytes(&self) -> u64 {
        self.waiting_bytes + self.sweep.bytes()
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sweep.is_empty()
    }

    /// Returns whether any record of a ring waits.
    pub fn holds(&self, ring: RingSlot) -> bool {
        self.rings.get(&ring).is_some_and(|state| !state.positions.is_empty())
    }

    /// Returns the number of the newest record that has not joined the sweep; 0 if there is none.
    pub fn last_waiting(&self) -> u64 {
        self.waiting.last_key_value().map_or(0, |((sequence, ..), _)| *sequence)
    }

    /// Returns whether an offered record with a number up to `last`, or perhaps a newer one, has bytes in `range` that
    /// are not applied.
    pub fn touches(&mut self, last: u64, range: ByteRange) -> bool {
        self.join_sweep(last);
        let overlaps = |part: &ByteRange| !part.intersection(&range).is_empty();
        self.waiting.values().any(|(_, part)| overlaps(part))
            || self.sweep.pieces_of(range).any(|piece| overlaps(&piece.range))
    }

    /// Returns whether every offered record with a number up to `last` is applied.
    pub fn is_drained_to(&self, last: u64) -> bool {
        self.sweep.is_empty() && self.waiting.first_key_value().is_none_or(|((sequence, ..), _)| *sequence > last)
    }

    /// Returns the newest bytes within `range` that are not applied, in file order. A read uses them if they cannot be
    /// applied now.
    pub fn undrained(&self, range: ByteRange) -> Vec<RecordPiece> {
        let (mut covered, mut pieces) = (RangeSet::new(), Vec::new());
        let mut add = |piece: RecordPiece| {
            let part = piece.range.intersection(&range);
            if !part.is_empty() {
                pieces.extend(covered.missing(part).into_iter().map(|range| RecordPiece { range, ..piece }));
                covered.insert(part);
            }
        };
        let waiting = self.waiting.iter().rev();
        waiting.for_each(|((_, ring, ..), (record, part))| {
            add(RecordPiece { ring: *ring, record: *record, range: *part })
        });
        self.sweep.pieces_of(range).for_each(add);
        pieces.sort_by_key(|piece| piece.range.start);
        pieces
    }

    /// Returns a lower bound of the file's size from the waiting records; 0 if there are none.
    pub fn end(&self) -> u64 {
        self.waiting.values().map(|(_, part)| part.end).max().unwrap_or(0).max(self.sweep.end())
    }

    /// Truncates the waiting records, because the file was truncated to `len` bytes after all of them were written.
    /// Bytes behind `len` are never applied. Returns how many bytes of records are dropped, without those already
    /// applied or counted as superseded.
    pub fn cut(&mut self, len: u64) -> u64 {
        let undrained = |queue: &ApplyQueue| queue.waiting_bytes + queue.sweep.undrained() + queue.sweep.superseded;
        let undrained_before = undrained(self);
        for (key, (record, part)) in std::mem::take(&mut self.waiting) {
            let kept = part.intersection(&ByteRange::new(0, len));
            self.waiting_bytes -= part.len() - kept.len();
            if !kept.is_empty() {
                self.waiting.insert(key, (record, kept));
            } else if let Some(state) = self.rings.get_mut(&key.1) {
                state.positions.remove(&(key.2, key.3));
            }
        }
        let over = self.sweep.cut(len);
        self.forget(&over);
        if self.is_empty() {
            self.sweep.superseded = 0; // no batch will report them
        }
        undrained_before - undrained(self)
    }

    /// Returns the next batch, if there is one. Call [`ApplyQueue::done`] before the next call. Set `urgent` if somebody
    /// waits or a ring is short of room. Otherwise returns only a batch that is worth a request: up to the last of its
    /// merged writes of [`MERGE_BYTES_MIN`] or more.
    pub fn batch(&mut self, urgent: bool) -> Option<Batch> {
        if !urgent && self.bytes() < self.try_at.max(MERGE_BYTES_MIN) {
            return None;
        }
        // A sweep that nothing can join any more, or that no other ring will join, need not wait.
        let closed = self.join_sweep(u64::MAX) || self.rings.len() == 1 && self.sweep.bytes() >= self.batch_bytes_max;
        self.next(if urgent || closed { self.lone_bytes_max } else { 0 })
    }

    /// Returns an urgent batch for a caller that waits for the records up to the number `last`. No later record joins
    /// the sweep.
    pub fn batch_to(&mut self, last: u64) -> Option<Batch> {
        self.join_sweep(last);
        self.next(self.batch_bytes_max)
    }

    fn next(&mut self, lone_max: u64) -> Option<Batch> {
        let (writes, passed) = self.sweep.next(self.batch_bytes_max, lone_max.min(self.batch_bytes_max));
        if writes.is_empty() {
            self.try_at = self.bytes() + MERGE_BYTES_MIN / 2;
            return None;
        }
        let progress = self.sweep.progress(passed);
        Some(Batch { writes, progress, superseded: self.sweep.superseded, passed })
    }

    /// Moves all records up to the number `last` that may join (1, 2) into the sweep. Returns whether a record is left
    /// that must wait for the next sweep.
    fn join_sweep(&mut self, last: u64) -> bool {
        let known = self.rings.values().map(|ring| ring.known_below).min().unwrap_or(u64::MAX);
        while let Some(first) = self.waiting.first_entry() {
            let (sequence, ring, ..) = *first.key();
            let (record, part) = *first.get();
            if sequence > last || sequence > self.sweep.joined().max(known) {
                return false;
            }
            if !self.sweep.takes(part) {
                return true;
            }
            first.remove();
            self.waiting_bytes -= part.len();
            self.sweep.join(RecordPiece { ring, record, range: part });
        }
        false
    }

    /// Notes that the last batch is in the burst buffer. For each ring with records applied by it, returns the position
    /// below which its room can be given back, or `u64::MAX` if all its records are applied.
    pub fn done(&mut self, batch: &Batch) -> Vec<(RingSlot, u64)> {
        let over = self.sweep.pass(batch.passed);
        self.forget(&over)
    }

    /// Removes records that were applied or cut off. Returns the room to give back, as [`ApplyQueue::done`] does.
    fn forget(&mut self, over: &[(RingSlot, u64, u64)]) -> Vec<(RingSlot, u64)> {
        let mut touched = BTreeSet::new();
        for (ring, position, start) in over {
            touched.insert(*ring);
            if let Some(state) = self.rings.get_mut(ring) {
                state.positions.remove(&(*position, *start));
            }
        }
        self.try_at = 0;
        self.rings.retain(|_, ring| ring.known_below < u64::MAX || !ring.positions.is_empty());
        let room = |ring: RingSlot| {
            let oldest = self.rings.get(&ring).and_then(|state| state.positions.first());
            (ring, oldest.map_or(u64::MAX, |oldest| oldest.0))
        };
        touched.into_iter().map(room).collect()
    }
}

#[cfg(test)]
mod tests;
