//! Sweep: applies records once over the file, from begin to end.

use std::collections::{BTreeMap, BTreeSet};

use types::ByteRange;

use super::{RecordPiece, RingSlot, Write};
use crate::drained::AppliedProgress;
use crate::limits::{BATCH_RECORDS_MAX, DRAIN_ALIGN, MERGE_BYTES_MIN};

/// Records of a sweep in the order of the file's bytes. Of several records at one offset the last that joined counts.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Applied part of the file; `swept` is 0 if no sweep is running.
    progress: AppliedProgress,
    /// Newest bytes, by their first offset. Pieces do not overlap, and none lies before `progress.swept`.
    pieces: BTreeMap<u64, RecordPiece>,
    /// Records that the sweep has not passed: end, ring, position, first byte.
    records: BTreeSet<(u64, RingSlot, u64, u64)>,
    bytes: u64,
    /// Bytes superseded by newer ones since the last batch.
    pub superseded: u64,
}

impl Sweep {
    /// Returns whether the sweep holds no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the bytes of the records that the sweep has not passed, superseded ones included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number below which every record has joined this sweep or an earlier one.
    pub fn joined(&self) -> u64 {
        self.progress.joined
    }

    /// Returns whether the next record of the file's sequence may join.
    pub fn takes(&self, part: ByteRange) -> bool {
        part.start >= self.progress.swept
    }

    pub fn join(&mut self, piece: RecordPiece) {
        self.progress.joined = self.progress.joined.max(piece.record.sequence.saturating_add(1));
        self.supersede(piece.range);
        self.records.insert((piece.range.end, piece.ring, piece.record.position, piece.range.start));
        self.bytes += piece.range.len();
        self.pieces.insert(piece.range.start, piece);
    }

    /// Removes the bytes of `range`, which are no longer the newest.
    fn supersede(&mut self, range: ByteRange) {
        let before = self.pieces.range(..range.start).next_back().filter(|(_, piece)| piece.range.end > range.start);
        let first = before.map_or(range.start, |(start, _)| *start);
        while let Some((start, piece)) =
            self.pieces.range(first..range.end).find(|(_, piece)| piece.range.end > range.start)
        {
            let (start, piece) = (*start, *piece);
            self.superseded += piece.range.intersection(&range).len();
            self.pieces.remove(&start);
            for kept in [ByteRange::new(start, range.start), ByteRange::new(range.end, piece.range.end)] {
                if kept.start < kept.end {
                    self.pieces.insert(kept.start, RecordPiece { range: kept, ..piece });
                }
            }
        }
    }

    /// Returns the bytes of the file that are left to apply.
    pub fn undrained(&self) -> u64 {
        self.pieces.values().map(|piece| piece.range.len()).sum()
    }

    /// Returns the pieces that begin or end in `range`.
    pub fn pieces_of(&self, range: ByteRange) -> impl Iterator<Item = RecordPiece> + '_ {
        let before = self.pieces.range(..range.start).next_back();
        before.into_iter().chain(self.pieces.range(range.start..range.end.max(range.start))).map(|(_, piece)| *piece)
    }

    /// Returns the end of the last piece; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(_, piece)| piece.range.end)
    }

    /// Returns the next writes and the offset where they end. Of the next `bytes_max` bytes, takes all up to the end of
    /// the last run that is long enough, or the first `lone_max` if there is none. A run that continues, or may
    /// continue, is cut at a multiple of [`DRAIN_ALIGN`].
    pub fn next(&self, bytes_max: u64, lone_max: u64) -> (Vec<Write>, u64) {
        let (mut writes, mut bytes, mut worth, mut lone) = (Vec::<Write>::new(), 0, None, None);
        let mut left_out = false;
        for (count, piece) in self.pieces.values().enumerate() {
            left_out = bytes >= bytes_max || count >= BATCH_RECORDS_MAX;
            if left_out {
                break;
            }
            let mut piece = *piece;
            if lone.is_none() && piece.range.len() > lone_max.saturating_sub(bytes) {
                lone = Some(piece.range.start + lone_max.saturating_sub(bytes));
            }
            piece.range.end = piece.range.end.min(piece.range.start + (bytes_max - bytes));
            bytes += piece.range.len();
            let run = add(&mut writes, piece);
            if aligned(run).len() >= MERGE_BYTES_MIN {
                worth = Some(aligned(run).end);
            }
        }
        let end = worth.or(lone).unwrap_or(self.end());
        leave(&mut writes, end);
        let last = writes.last().map_or(ByteRange::new(0, 0), |last| last.range);
        // No alignment if all of it is taken.
        let end = if left_out || lone.is_some() { aligned(last).end } else { last.end };
        leave(&mut writes, end);
        (writes, end)
    }

    /// Returns the progress after the sweep has passed `end`.
    pub fn progress(&self, end: u64) -> AppliedProgress {
        match self.end() > end {
            true => AppliedProgress { swept: end, ..self.progress },
            false => AppliedProgress::all_below(self.progress.joined),
        }
    }

    /// Notes that all before `end` is applied. Returns the records that are applied completely: ring, position, first
    /// byte.
    pub fn pass(&mut self, end: u64) -> Vec<(RingSlot, u64, u64)> {
        self.progress = self.progress(end);
        self.superseded = 0;
        while let Some(first) = self.pieces.first_entry().filter(|first| *first.key() < end) {
            let piece = first.remove();
            if piece.range.end > end {
                self.pieces.insert(end, RecordPiece { range: ByteRange::new(end, piece.range.end), ..piece });
            }
        }
        self.passed(if self.pieces.is_empty() { u64::MAX } else { end })
    }

    /// Truncates the pieces to a file of `len` bytes. Returns the records with nothing left to apply.
    pub fn cut(&mut self, len: u64) -> Vec<(RingSlot, u64, u64)> {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.retain(|start, _| *start < len);
        pieces.values_mut().for_each(|piece| piece.range.end = piece.range.end.min(len));
        self.pieces = pieces;
        let records = std::mem::take(&mut self.records);
        let mut over = Vec::new();
        for (end, ring, position, start) in records {
            self.bytes -= end - end.min(len.max(start));
            match start < len {
                true => drop(self.records.insert((end.min(len), ring, position, start))),
                false => over.push((ring, position, start)),
            }
        }
        over.extend(self.passed(self.progress.swept));
        if self.pieces.is_empty() {
            over.extend(self.passed(u64::MAX));
            self.progress = AppliedProgress::all_below(self.progress.joined);
        }
        over
    }

    /// Removes and returns the records that end before `end`.
    fn passed(&mut self, end: u64) -> Vec<(RingSlot, u64, u64)> {
        let mut over = Vec::new();
        while let Some((record_end, ring, position, start)) =
            self.records.first().copied().filter(|first| first.0 <= end)
        {
            self.records.pop_first();
            self.bytes -= record_end - start;
            over.push((ring, position, start));
        }
        over
    }
}

/// Returns a run up to its last multiple of [`DRAIN_ALIGN`], or all of it if there is none.
fn aligned(run: ByteRange) -> ByteRange {
    let end = run.end - run.end % DRAIN_ALIGN;
    if end > run.start { ByteRange::new(run.start, end) } else { run }
}

/// Adds a piece that lies behind all others. Returns the run that contains it now.
fn add(writes: &mut Vec<Write>, piece: RecordPiece) -> ByteRange {
    match writes.last_mut() {
        Some(last) if last.range.end == piece.range.start => {
            last.range.end = piece.range.end;
            last.pieces.push(piece);
            last.range
        }
        _ => {
            writes.push(Write { range: piece.range, pieces: vec![piece] });
            piece.range
        }
    }
}

/// Removes the bytes behind `end`.
fn leave(writes: &mut Vec<Write>, end: u64) {
    writes.retain(|write| write.range.start < end);
    for write in writes {
        write.range.end = write.range.end.min(end);
        write.pieces.retain(|piece| piece.range.start < end);
        write.pieces.iter_mut().for_each(|piece| piece.range.end = piece.range.end.min(end));
    }
}
