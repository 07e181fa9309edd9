//! What to drain next.
//!
//! A [`Queue`] holds the taken records of one file from all its rings and hands out batches. It keeps:
//!
//! 1. what is drained is always a prefix of the file's sequence, over all rings: a batch begins where the last one ended, and
//!    a number that no ring holds is passed over only when every ring says that it has none below ([`Reader::known_below`]);
//! 2. of bytes written several times within a batch only the newest travel;
//! 3. pieces that touch travel as one write, of at most [`BATCH_BYTES_MAX`] bytes;
//! 4. room is given back only below the oldest record that is not drained.
//!
//! [`Reader::known_below`]: crate::ring::Reader::known_below

use std::collections::{BTreeMap, BTreeSet};

use types::{ByteRange, RangeSet};

use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, MERGE_BYTES_MIN};
use crate::ring::Taken;

/// Names a ring within one [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSlot(pub usize);

/// Bytes of one record that are the newest at their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The ring that holds them.
    pub ring: RingSlot,
    /// The record.
    pub record: Taken,
    /// Which of its bytes, as a range of the file.
    pub range: ByteRange,
}

impl Piece {
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
    pub pieces: Vec<Piece>,
}

/// A step of the drain. When all writes are done: [`crate::sequence::Drained::advance`] to `below`, then [`Queue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Disjoint, in file order.
    pub writes: Vec<Write>,
    /// All numbers below are drained by it.
    pub below: u64,
    /// Bytes that newer ones of the batch made needless.
    pub superseded: u64,
    keys: usize,
}

/// Number, ring, position, first byte: the order of the file; the rest only makes it total.
type Key = (u64, RingSlot, u64, u64);

#[derive(Debug, Default)]
struct RingState {
    known_below: u64,
    positions: BTreeSet<(u64, u64)>,
}

/// The undrained records of one file.
#[derive(Debug, Default)]
pub struct Queue {
    pending: BTreeMap<Key, (Taken, ByteRange)>,
    rings: BTreeMap<RingSlot, RingState>,
    drained_below: u64,
    bytes: u64,
    /// Bytes with which it is worth trying again to find a batch that nobody waits for.
    try_at: u64,
}

impl Queue {
    /// An empty queue of a file of which every number below `drained_below` is drained.
    pub fn new(drained_below: u64) -> Queue {
        Queue { drained_below, ..Queue::default() }
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
        self.bytes += part.len();
        self.pending.insert((record.sequence, ring, record.position, part.start), (record, part));
    }

    /// Bytes that wait to be drained, superseded ones included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The newest undrained bytes within `range`, in file order: what a read finds of bytes that cannot be drained now.
    pub fn undrained(&self, range: ByteRange) -> Vec<Piece> {
        let mut covered = RangeSet::new();
        let mut pieces = Vec::new();
        newest(self.pending.iter().rev(), Some(range), &mut covered, &mut pieces);
        pieces.sort_by_key(|piece| piece.range.start);
        pieces
    }

    /// Where the file ends at least, by what waits; 0 when nothing does.
    pub fn end(&self) -> u64 {
        self.pending.values().map(|(_, part)| part.end).max().unwrap_or(0)
    }

    /// The file was cut to `len` bytes after all that waits was written: what lies behind never travels.
    pub fn cut(&mut self, len: u64) {
        for (key, (record, part)) in std::mem::take(&mut self.pending) {
            let kept = part.intersection(&ByteRange::new(0, len));
            self.bytes -= part.len() - kept.len();
            if !kept.is_empty() {
                self.pending.insert(key, (record, kept));
            } else if let Some(state) = self.rings.get_mut(&key.1) {
                state.positions.remove(&(key.2, key.3));
            }
        }
        self.rings.retain(|_, ring| ring.known_below < u64::MAX || !ring.positions.is_empty());
        self.try_at = 0;
    }

    /// The next batch, if there is one; ask again only after [`Queue::done`]. Without `urgent` (nobody waits and no ring is
    /// short of room) only one that is worth a request: a merged write of [`MERGE_BYTES_MIN`], or a full batch.
    pub fn batch(&mut self, urgent: bool) -> Option<Batch> {
        if !urgent && self.bytes < self.try_at.max(MERGE_BYTES_MIN) {
            return None;
        }
        let known = self.rings.values().map(|ring| ring.known_below).min().unwrap_or(u64::MAX);
        let (mut below, mut bytes, mut keys) = (self.drained_below, 0, 0);
        for ((sequence, ..), (_, part)) in &self.pending {
            let full = bytes >= BATCH_BYTES_MAX || keys >= BATCH_RECORDS_MAX;
            if full || *sequence > below.max(known) {
                break;
            }
            below = below.max(sequence.saturating_add(1));
            bytes += part.len();
            keys += 1;
        }
        if keys == 0 {
            return None;
        }
        let (mut covered, mut pieces) = (RangeSet::new(), Vec::new());
        let prefix: Vec<_> = self.pending.iter().take(keys).collect();
        newest(prefix.into_iter().rev(), None, &mut covered, &mut pieces);
        pieces.sort_by_key(|piece| piece.range.start);
        let writes = merge(pieces);
        let full = bytes >= BATCH_BYTES_MAX || keys >= BATCH_RECORDS_MAX;
        if !urgent && !full && writes.iter().all(|write| write.range.len() < MERGE_BYTES_MIN) {
            self.try_at = self.bytes + MERGE_BYTES_MIN / 2;
            return None;
        }
        Some(Batch { writes, below, superseded: bytes - covered.len(), keys })
    }

    /// The batch, the last one handed out, is in the burst buffer. For each ring of it: the position below which its room
    /// can be given back, `u64::MAX` when it holds nothing undrained.
    pub fn done(&mut self, batch: &Batch) -> Vec<(RingSlot, u64)> {
        let mut touched = BTreeSet::new();
        for _ in 0..batch.keys {
            let Some(((_, ring, position, start), (_, part))) = self.pending.pop_first() else { break };
            self.bytes -= part.len();
            touched.insert(ring);
            if let Some(state) = self.rings.get_mut(&ring) {
                state.positions.remove(&(position, start));
            }
        }
        self.drained_below = self.drained_below.max(batch.below);
        self.try_at = 0;
        self.rings.retain(|_, ring| ring.known_below < u64::MAX || !ring.positions.is_empty());
        let room = |ring: RingSlot| {
            let oldest = self.rings.get(&ring).and_then(|state| state.positions.first());
            (ring, oldest.map_or(u64::MAX, |oldest| oldest.0))
        };
        touched.into_iter().map(room).collect()
    }
}

/// Adds to `pieces` what each record, given from the newest to the oldest, has that no newer one covered.
fn newest<'a>(
    records: impl Iterator<Item = (&'a Key, &'a (Taken, ByteRange))>,
    within: Option<ByteRange>,
    covered: &mut RangeSet,
    pieces: &mut Vec<Piece>,
) {
    for ((_, ring, ..), (record, part)) in records {
        let part = within.map_or(*part, |within| part.intersection(&within));
        if part.is_empty() {
            continue;
        }
        let fresh = covered.missing(part);
        pieces.extend(fresh.into_iter().map(|range| Piece { ring: *ring, record: *record, range }));
        covered.insert(part);
    }
}

/// Joins pieces that touch.
fn merge(pieces: Vec<Piece>) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    for piece in pieces {
        match writes.last_mut() {
            Some(last)
                if last.range.end == piece.range.start && last.range.len() + piece.range.len() <= BATCH_BYTES_MAX =>
            {
                last.range.end = piece.range.end;
                last.pieces.push(piece);
            }
            _ => writes.push(Write { range: piece.range, pieces: vec![piece] }),
        }
    }
    writes
}

#[cfg(test)]
mod tests;
