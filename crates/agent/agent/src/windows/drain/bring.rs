//! A batch out of the rings into the burst buffer.
//!
//! Into a replica the kernel copies bytes out of the rings' memory; in between nobody does. What it does not take so, for whatever
//! reason, goes the way of copies, which tells the reason and knows what is to be done.

use std::collections::BTreeMap;
use std::io;

use file_cache::limits::PIECE_BYTES;
use types::ByteRange;
use window::Gather;
use window::plan::{Batch, Piece, RingSlot, Write};

use super::{Drain, Ring};
use crate::limits::WINDOW_PIECE_PARTS_MAX;

impl Drain {
    /// All of it is there when it returns; on an error any part of it may be.
    pub(super) fn write(&mut self, batch: &Batch) -> io::Result<()> {
        if self.handle.is_remote() {
            let pieces: Vec<Piece> = batch.writes.iter().flat_map(|write| &write.pieces).copied().collect();
            self.write_copied(&pieces)?;
        } else {
            batch.writes.iter().try_for_each(|write| self.write_in_pieces(write))?;
        }
        self.sync(true)?;
        self.tell_broken(batch);
        Ok(())
    }

    fn write_in_pieces(&mut self, write: &Write) -> io::Result<()> {
        let (mut parts, mut room) = (Vec::new(), PIECE_BYTES as u64);
        for piece in &write.pieces {
            let mut start = piece.range.start;
            while start < piece.range.end {
                let end = piece.range.end.min(start + room);
                parts.push(Piece { range: ByteRange::new(start, end), ..*piece });
                room -= end - start;
                if room == 0 || parts.len() == WINDOW_PIECE_PARTS_MAX || end == write.range.end {
                    self.write_piece(&parts)?;
                    (parts, room) = (Vec::new(), PIECE_BYTES as u64);
                }
                start = end;
            }
        }
        Ok(())
    }

    /// Parts that touch.
    fn write_piece(&mut self, parts: &[Piece]) -> io::Result<()> {
        let straight = gather(&self.rings, parts).is_some_and(|bytes| {
            let at = parts[0].range.start;
            self.handle.write_straight(&mut |replica| bytes.write(replica, at))
        });
        if straight { Ok(()) } else { self.write_copied(parts) }
    }

    /// What touches travels together. Of a ring whose file was cut nothing does that was not copied before.
    fn write_copied(&mut self, pieces: &[Piece]) -> io::Result<()> {
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
                    Some((start, run)) if run.end == filled && *start + run.len() as u64 == piece.range.start => {
                        run.end = end;
                    }
                    _ => runs.push((piece.range.start, filled..end)),
                }
            }
            filled = end;
        }
        let runs: Vec<_> = runs.into_iter().map(|(start, run)| (start, &self.buffer[run])).collect();
        self.handle.write_scattered(&runs)
    }

    /// Acknowledged bytes of the batch were lost with rings that their programs cut.
    fn tell_broken(&mut self, batch: &Batch) {
        let pieces = batch.writes.iter().flat_map(|write| &write.pieces);
        let lost: Vec<_> = pieces.filter(|piece| is_broken(&self.rings, piece)).map(|piece| piece.range).collect();
        if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
            self.damaged = true;
            let (file, start, end) = (&self.hint, first.start, last.end);
            tracing::error!(
                file,
                start,
                end,
                "a window was cut by its program, and acknowledged writes in it are lost"
            );
        }
    }
}

/// Where the parts are in the rings; `None` if not all of them are there.
fn gather<'a>(rings: &'a BTreeMap<RingSlot, Ring>, parts: &[Piece]) -> Option<Gather<'a>> {
    let mut bytes = Gather::default();
    for part in parts.iter().filter(|part| !part.range.is_empty()) {
        let ring = rings.get(&part.ring).filter(|ring| !ring.reader.memory().is_broken())?;
        for (at, len) in ring.reader.places(&part.record, part.skip(), part.range.len() as usize)? {
            bytes.add(ring.reader.memory(), at, len);
        }
    }
    Some(bytes)
}

fn is_broken(rings: &BTreeMap<RingSlot, Ring>, piece: &Piece) -> bool {
    rings.get(&piece.ring).is_some_and(|ring| ring.reader.memory().is_broken())
}

pub(super) fn copy(rings: &BTreeMap<RingSlot, Ring>, piece: &Piece, to: &mut [u8]) -> io::Result<()> {
    let there = rings.get(&piece.ring).is_some_and(|ring| ring.reader.copy(&piece.record, piece.skip(), to));
    if there { Ok(()) } else { Err(io::Error::other("a record left its ring before it was drained")) }
}
