//! What to drain next.
//!
//! A [`ApplyQueue`] holds the taken records of one file from all its rings and hands out batches. They come in *sweeps*: a sweep goes once
//! over the file, from its begin to its end, and takes with it what joined it. It keeps:
//!
//! 1. what has joined the sweep under way or former ones is always a prefix of the file's sequence, over all rings: a number that no ring
//!    holds is passed over only when every ring says that it has none below ([`Reader::known_below`]);
//! 2. a record may join the sweep under way only if it begins behind what that has passed; else it, and all after it, wait for the
//!    next. So programs that write one file side by side, apart by as much as their rings hold, travel together: who is ahead waits for
//!    room until the sweep has come there;
//! 3. of bytes written several times within a sweep only the newest travel;
//! 4. pieces that touch travel as one write, of at most [`BATCH_BYTES_MAX`] bytes;
//! 5. room is given back only below the oldest record that is not drained.
//!
//! [`Reader::known_below`]: crate::ring::RingReader::known_below

mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use types::{ByteRange, RangeSet};

use crate::drained::AppliedProgress;
use crate::limits::{BATCH_BYTES_MAX, MERGE_BYTES_MIN};
use crate::ring::Taken;
use sweep::Sweep;

/// Names a ring within one [`ApplyQueue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSlot(pub usize);

/// Bytes of one record that are the newest at their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPiece {
    /// The ring that holds them.
    pub ring: RingSlot,
    /// The record.
    pub record: Taken,
    /// Which of its bytes, as a range of the file.
    pub range: ByteRange,
}

impl RecordPiece {
    /// Bytes of the record's payload before this piece.
    pub fn skip(&self) -> u64 {
        self.range.start - self.record.range.start
    }
}

/// Bytes that travel together: pieces that touch, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The bytes of the file.
    pub range: ByteRange,
    /// Where they are.
    pub pieces: Vec<RecordPiece>,
}

impl Write {
    /// When the last of them was written, as programs say: ns since 1970.
    pub fn written_ns(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.record.written_ns).max().unwrap_or(0)
    }
}

/// A step of the drain. When all writes are done: [`crate::drained::Drained::advance`] to `progress`, then [`ApplyQueue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Disjoint, in file order.
    pub writes: Vec<Write>,
    /// What is drained with it.
    pub progress: AppliedProgress,
    /// Bytes that newer ones made needless since the last batch.
    pub superseded: u64,
    /// The sweep has passed all before this.
    passed: u64,
}

/// Number, ring, position, first byte: the order of the file; the rest only makes it total.
type Key = (u64, RingSlot, u64, u64);

#[derive(Debug, Default)]
struct RingState {
    known_below: u64,
    positions: BTreeSet<(u64, u64)>,
}

/// The undrained records of one file.
#[derive(Debug)]
pub struct ApplyQueue {
    /// Records that have not joined the sweep.
    waiting: BTreeMap<Key, (Taken, ByteRange)>,
    sweep: Sweep,
    rings: BTreeMap<RingSlot, RingState>,
    /// Bytes of `waiting`.
    waiting_bytes: u64,
    /// Bytes with which it is worth trying again to find a batch that nobody waits for.
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
    /// An empty queue, whose batches have at most so many bytes, or `lone_bytes_max` if none of their writes has [`MERGE_BYTES_MIN`].
    pub fn with_batches_of(batch_bytes_max: u64, lone_bytes_max: u64) -> ApplyQueue {
        let (waiting, sweep, rings) = (BTreeMap::new(), Sweep::default(), BTreeMap::new());
        ApplyQueue { waiting, sweep, rings, waiting_bytes: 0, try_at: 0, batch_bytes_max, lone_bytes_max }
    }

    /// A ring joins the file. A ring that was left is never named again.
    pub fn join(&mut self, ring: RingSlot) {
        self.rings.entry(ring).or_default();
    }

    /// A ring that was scanned to its end leaves; its records stay until they are drained.
    pub fn leave(&mut self, ring: RingSlot) {
        self.settle(ring, u64::MAX);
    }

    /// Every record of `ring` below `known_below` has been offered.
    pub fn settle(&mut self, ring: RingSlot, known_below: u64) {
        if let Some(state) = self.rings.get_mut(&ring) {
            state.known_below = state.known_below.max(known_below);
        }
    }

    /// A record that was taken from `ring`.
    pub fn offer(&mut self, ring: RingSlot, record: Taken) {
        self.offer_part(ring, record, record.range);
    }

    /// Some bytes of a record, when others may not be drained.
    pub fn offer_part(&mut self, ring: RingSlot, record: Taken, part: ByteRange) {
        let part = part.intersection(&record.range);
        let state = self.rings.entry(ring).or_default();
        if part.is_empty() || !state.positions.insert((record.position, part.start)) {
            return;
        }
        self.waiting_bytes += part.len();
        self.waiting.insert((record.sequence, ring, record.position, part.start), (record, part));
    }

    /// Bytes of the records that wait to be drained, superseded ones included.
    pub fn bytes(&self) -> u64 {
        self.waiting_bytes + self.sweep.bytes()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sweep.is_empty()
    }

    /// Whether something of a ring waits.
    pub fn holds(&self, ring: RingSlot) -> bool {
        self.rings.get(&ring).is_some_and(|state| !state.positions.is_empty())
    }

    /// The newest record that has not joined the sweep; 0 if there is none.
    pub fn last_waiting(&self) -> u64 {
        self.waiting.last_key_value().map_or(0, |((sequence, ..), _)| *sequence)
    }

    /// Whether some of the records up to the number `last` that were offered, and perhaps newer ones, have undrained bytes in `range`.
    pub fn touches(&mut self, last: u64, range: ByteRange) -> bool {
        self.join_sweep(last);
        let overlaps = |part: &ByteRange| !part.intersection(&range).is_empty();
        self.waiting.values().any(|(_, part)| overlaps(part))
            || self.sweep.pieces_of(range).any(|piece| overlaps(&piece.range))
    }

    /// Whether every record up to the number `last` that was offered is drained.
    pub fn is_drained_to(&self, last: u64) -> bool {
        self.sweep.is_empty() && self.waiting.first_key_value().is_none_or(|((sequence, ..), _)| *sequence > last)
    }

    /// The newest undrained bytes within `range`, in file order: what a read finds of bytes that cannot be drained now.
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

    /// Where the file ends at least, by what waits; 0 when nothing does.
    pub fn end(&self) -> u64 {
        self.waiting.values().map(|(_, part)| part.end).max().unwrap_or(0).max(self.sweep.end())
    }

    /// The file was cut to `len` bytes after all that waits was written: what lies behind never travels. How many bytes of records are
    /// dropped so, of those that no batch has drained or counted as superseded.
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
            self.sweep.superseded = 0; // no batch will say so
        }
        undrained_before - undrained(self)
    }

    /// The next batch, if there is one; ask again only after [`ApplyQueue::done`]. Without `urgent` (nobody waits and no ring is
    /// short of room) only one that is worth a request: up to the last of its merged writes of [`MERGE_BYTES_MIN`] or more.
    pub fn batch(&mut self, urgent: bool) -> Option<Batch> {
        if !urgent && self.bytes() < self.try_at.max(MERGE_BYTES_MIN) {
            return None;
        }
        // What nothing can join any more, or nobody else will, does not wait.
        let closed = self.join_sweep(u64::MAX) || self.rings.len() == 1 && self.sweep.bytes() >= self.batch_bytes_max;
        self.next(if urgent || closed { self.lone_bytes_max } else { 0 })
    }

    /// An urgent one, for whoever waits for the records up to the number `last`: no later one joins the sweep.
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

    /// What may join the sweep does (1, 2), up to the number `last`. Whether something is there that waits for the next.
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

    /// The batch, the last one handed out, is in the burst buffer. For each ring of which records are drained: the position below which
    /// its room can be given back, `u64::MAX` when it holds nothing undrained.
    pub fn done(&mut self, batch: &Batch) -> Vec<(RingSlot, u64)> {
        let over = self.sweep.pass(batch.passed);
        self.forget(&over)
    }

    /// Records are drained, or cut off.
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
