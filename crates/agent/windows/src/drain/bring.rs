//! Applying a batch of records to the burst buffer.
//!
//! The kernel copies bytes straight from the rings' memory into a replica or a socket. If it refuses, for whatever
//! reason, the bytes of the batch are copied through a buffer instead. That path reports the reason and handles it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use data_store::AcknowledgedBytes;
use types::{ByteRange, Timestamp};
use window::plan::{Batch, RecordPiece, RingSlot, Write};
use window::{Gather, Memory};

use super::{Drain, Ring};
use crate::limits::WINDOW_PIECE_PARTS_MAX;

impl Drain {
    /// Applies a batch. On success all of it is written, and is on the medium if rings are durable. On an error any
    /// part may be written.
    pub(super) fn write(&mut self, batch: &Batch) -> io::Result<()> {
        self.look(batch);
        loop {
            let boot_verifier = self.write_once(batch)?;
            // After a change of the boot verifier, bytes written before the crash of the server's machine were missing
            // from the sync.
            if self.sync()?.is_none_or(|synced| synced == boot_verifier) {
                break;
            }
        }
        self.look(batch);
        self.tell_broken(batch);
        Ok(())
    }

    /// Writes a batch once. Returns the boot verifier from before the write.
    fn write_once(&mut self, batch: &Batch) -> io::Result<u64> {
        let at = Timestamp::from_nanos(batch.writes.iter().map(Write::written_ns).max().unwrap_or(0));
        let parts = if self.is_remote {
            let pieces: Vec<RecordPiece> = batch.writes.iter().flat_map(|write| &write.pieces).copied().collect();
            in_requests(&pieces, self.part_bytes)
        } else {
            batch.writes.iter().flat_map(|write| in_pieces(write, self.part_bytes)).collect()
        };
        let gathered: Option<Vec<_>> =
            parts.iter().map(|part| Some((part[0].range.start, gather(&self.rings, part)?))).collect();
        if let Some(gathered) = gathered {
            let places = gathered.iter().map(|(offset, bytes)| (*offset, AcknowledgedBytes::Gathered(bytes)));
            if let Some(boot_verifier) = self.target.write(&places.collect::<Vec<_>>(), at)? {
                return Ok(boot_verifier);
            }
        }
        self.write_copied(&parts.concat(), at)
    }

    /// Checks whether rings of the batch were truncated. Their memory remembers the result.
    fn look(&self, batch: &Batch) {
        let pieces = batch.writes.iter().flat_map(|write| &write.pieces);
        let slots: BTreeSet<RingSlot> = pieces.map(|piece| piece.ring).collect();
        slots.iter().filter_map(|slot| self.rings.get(slot)).for_each(|ring| {
            ring.reader.memory().is_cut();
        });
    }

    /// Writes pieces through a buffer; adjacent ones are combined. Of a ring whose file was truncated, only bytes
    /// copied before are written.
    fn write_copied(&mut self, pieces: &[RecordPiece], at: Timestamp) -> io::Result<u64> {
        let bytes: usize = pieces.iter().map(|piece| piece.range.len() as usize).sum();
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        let (mut filled, mut runs) = (0, Vec::<(u64, std::ops::Range<usize>)>::new());
        for piece in pieces {
            let end = filled + piece.range.len() as usize;
            copy(&self.rings, piece, &mut self.buffer[filled..end])?;
            if !is_broken(&self.rings, piece) {
                match runs.last_mut() {
                    Some((start, run))
                        if run.end == filled
                            && *start + run.len() as u64 == piece.range.start
                            && (end - run.start) as u64 <= self.part_bytes =>
                    {
                        run.end = end;
                    }
                    _ => runs.push((piece.range.start, filled..end)),
                }
            }
            filled = end;
        }
        let bytes = |run| AcknowledgedBytes::Copied(&self.buffer[run]);
        let runs: Vec<_> = runs.into_iter().map(|(start, run)| (start, bytes(run))).collect();
        self.target.write(&runs, at)?.ok_or_else(|| io::Error::other("copied bytes were not written"))
    }

    /// Reports acknowledged bytes of the batch that were lost with rings truncated by their programs.
    fn tell_broken(&mut self, batch: &Batch) {
        let pieces = batch.writes.iter().flat_map(|write| &write.pieces);
        let lost: Vec<_> = pieces.filter(|piece| is_broken(&self.rings, piece)).map(|piece| piece.range).collect();
        if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            self.damages.note(&self.counters);
            let (file, start, end) = (&self.hint, first.start, last.end);
            tracing::error!(
                file,
                start,
                end,
                "a window was truncated by its program: acknowledged writes are lost; write them again"
            );
        }
    }
}

/// Splits a write into pieces of parts. Pieces end at multiples of `piece` bytes of the file where possible, so that
/// each is one folio if the page cache has large folios. This takes five sixths of the time of several folios (256 KiB
/// at a time into ext4 of Linux 6.18).
fn in_pieces(write: &Write, piece: u64) -> Vec<Vec<RecordPiece>> {
    let mut pieces: Vec<Vec<RecordPiece>> = Vec::new();
    for part in &write.pieces {
        let mut start = part.range.start;
        while start < part.range.end {
            if start.is_multiple_of(piece) || pieces.last().is_none_or(|last| last.len() == WINDOW_PIECE_PARTS_MAX) {
                pieces.push(Vec::new());
            }
            let end = part.range.end.min((start / piece + 1).saturating_mul(piece));
            if let Some(last) = pieces.last_mut() {
                last.push(RecordPiece { range: ByteRange::new(start, end), ..*part });
            }
            start = end;
        }
    }
    pieces
}

/// Combines adjacent pieces into requests of at most `bytes_max` bytes.
fn in_requests(pieces: &[RecordPiece], bytes_max: u64) -> Vec<Vec<RecordPiece>> {
    let mut requests: Vec<Vec<RecordPiece>> = Vec::new();
    let mut left = 0;
    for piece in pieces {
        let mut start = piece.range.start;
        while start < piece.range.end {
            let touches = |last: &Vec<RecordPiece>| last.last().is_some_and(|last| last.range.end == start);
            let has_room = |last: &Vec<RecordPiece>| left > 0 && last.len() < WINDOW_PIECE_PARTS_MAX;
            if !requests.last().is_some_and(|last| touches(last) && has_room(last)) {
                requests.push(Vec::new());
                left = bytes_max;
            }
            let end = piece.range.end.min(start + left);
            if let Some(last) = requests.last_mut() {
                last.push(RecordPiece { range: ByteRange::new(start, end), ..*piece });
            }
            (left, start) = (left - (end - start), end);
        }
    }
    requests
}

/// Returns the parts' places in the rings; `None` if not all of them are there.
fn gather<'a>(rings: &'a BTreeMap<RingSlot, Ring>, parts: &[RecordPiece]) -> Option<Gather<'a>> {
    let mut bytes = Gather::default();
    for part in parts.iter().filter(|part| !part.range.is_empty()) {
        let ring = rings.get(&part.ring).filter(|ring| !ring.reader.memory().is_broken())?;
        for (at, len) in ring.reader.places(&part.record, part.skip(), part.range.len() as usize)? {
            bytes.add(ring.reader.memory(), at, len);
        }
    }
    Some(bytes)
}

fn is_broken(rings: &BTreeMap<RingSlot, Ring>, piece: &RecordPiece) -> bool {
    rings.get(&piece.ring).is_some_and(|ring| ring.reader.memory().is_broken())
}

pub(super) fn copy(rings: &BTreeMap<RingSlot, Ring>, piece: &RecordPiece, to: &mut [u8]) -> io::Result<()> {
    let there = rings.get(&piece.ring).is_some_and(|ring| ring.reader.copy(&piece.record, piece.skip(), to));
    if there { Ok(()) } else { Err(io::Error::other("a record left its ring before it was drained")) }
}

#[cfg(test)]
mod tests {
    use types::Epoch;
    use window::ring::Taken;

    use super::*;

    const PIECE: u64 = 256 << 10;
    const MOST: u64 = 4 << 20;

    fn part(start: u64, end: u64) -> RecordPiece {
        let range = ByteRange::new(start, end);
        let record = Taken { position: 0, end: 1 << 30, sequence: 0, epoch: Epoch(0), range, written_ns: 0 };
        RecordPiece { ring: RingSlot(0), record, range }
    }

    fn ranges(parts: impl Iterator<Item = RecordPiece>) -> Vec<(u64, u64)> {
        let pieces: Vec<RecordPiece> = parts.collect();
        let range = ByteRange::new(pieces[0].range.start, pieces[pieces.len() - 1].range.end);
        let range_of = |parts: &Vec<RecordPiece>| (parts[0].range.start, parts[parts.len() - 1].range.end);
        let pieces = in_pieces(&Write { range, pieces }, PIECE);
        assert!(pieces.iter().flatten().all(|part| part.record.range.intersection(&part.range) == part.range));
        assert!(pieces.iter().all(|parts| parts.windows(2).all(|two| two[0].range.end == two[1].range.start)));
        pieces.iter().map(range_of).collect()
    }

    #[test]
    fn a_request_has_what_touches_and_no_more_than_it_takes() {
        let most = MOST;
        let of = |pieces: &[RecordPiece]| -> Vec<(u64, u64)> {
            let requests = in_requests(pieces, MOST);
            assert!(requests.iter().flatten().all(|part| !part.range.is_empty()));
            assert!(requests.iter().all(|parts| parts.windows(2).all(|two| two[0].range.end == two[1].range.start)));
            requests.iter().map(|parts| (parts[0].range.start, parts[parts.len() - 1].range.end)).collect()
        };
        assert_eq!(of(&[part(5, 10), part(10, 30), part(31, 40), part(7, 9)]), [(5, 30), (31, 40), (7, 9)]);
        let long = [part(3, 10), part(10, 2 * most + 10), part(2 * most + 10, 2 * most + 11)];
        assert_eq!(of(&long), [(3, most + 3), (most + 3, 2 * most + 3), (2 * most + 3, 2 * most + 11)]);
        let parts_max = WINDOW_PIECE_PARTS_MAX as u64;
        let small: Vec<RecordPiece> = (0..=parts_max).map(|number| part(number * 10, number * 10 + 10)).collect();
        assert_eq!(of(&small), [(0, parts_max * 10), (parts_max * 10, parts_max * 10 + 10)]);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn pieces_end_at_multiples_of_their_size_and_have_no_more_parts_than_the_system_takes() {
        let odd = (3..20).map(|number| part(number * 47_008, (number + 1) * 47_008));
        assert_eq!(ranges(odd), [(141_024, PIECE), (PIECE, 2 * PIECE), (2 * PIECE, 3 * PIECE), (3 * PIECE, 940_160)]);
        assert_eq!(ranges([part(5, 3 * PIECE)].into_iter()), [(5, PIECE), (PIECE, 2 * PIECE), (2 * PIECE, 3 * PIECE)]);
        let parts_max = WINDOW_PIECE_PARTS_MAX as u64;
        let small = (1..=2 * parts_max).map(|number| part(number * 10, number * 10 + 10));
        assert_eq!(ranges(small), [(10, 10 + parts_max * 10), (10 + parts_max * 10, 10 + 2 * parts_max * 10)]);
    }
}
