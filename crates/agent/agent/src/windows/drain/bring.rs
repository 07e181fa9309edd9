//! A batch out of the rings into the burst buffer.

use std::collections::BTreeMap;
use std::io;

use file_cache::limits::PIECE_BYTES;
use types::ByteRange;
use window::plan::{Batch, Piece, RingSlot, Write};

use super::{Drain, Ring};

impl Drain {
    /// All of it is there when it returns; on an error any part of it may be.
    pub(super) fn write(&mut self, batch: &Batch) -> io::Result<()> {
        if self.handle.is_remote() {
            self.write_together(&batch.writes)?;
        } else if self.handle.version().is_some() {
            batch.writes.iter().try_for_each(|write| self.write_in_pieces(write))?;
        } else {
            batch.writes.chunks(1).try_for_each(|write| self.write_together(write))?;
        }
        self.sync(true)
    }

    /// At most one batch, or one record.
    fn write_together(&mut self, writes: &[Write]) -> io::Result<()> {
        let bytes: usize = writes.iter().map(|write| write.range.len() as usize).sum();
        let (mut rest, mut parts) = (room(&mut self.buffer, bytes), Vec::with_capacity(writes.len()));
        for write in writes {
            let (bytes, after) = rest.split_at_mut(write.range.len() as usize);
            for piece in &write.pieces {
                let start = (piece.range.start - write.range.start) as usize;
                copy(&self.rings, piece, &mut bytes[start..start + piece.range.len() as usize])?;
            }
            parts.push((write.range.start, &*bytes));
            rest = after;
        }
        self.handle.write_scattered(&parts)
    }

    /// Into a replica: what is copied out of the ring is still in the processor's cache when it is written.
    fn write_in_pieces(&mut self, write: &Write) -> io::Result<()> {
        let buffer = room(&mut self.buffer, PIECE_BYTES);
        let (mut filled, mut at) = (0, write.range.start);
        for piece in &write.pieces {
            let mut rest = *piece;
            while !rest.range.is_empty() {
                let len = (rest.range.len() as usize).min(PIECE_BYTES - filled);
                let end = rest.range.start + len as u64;
                let part = Piece { range: ByteRange::new(rest.range.start, end), ..rest };
                copy(&self.rings, &part, &mut buffer[filled..filled + len])?;
                (filled, rest.range.start) = (filled + len, end);
                if filled == PIECE_BYTES || end == write.range.end {
                    self.handle.write_acknowledged(&buffer[..filled], at)?;
                    (filled, at) = (0, end);
                }
            }
        }
        Ok(())
    }
}

fn room(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

pub(super) fn copy(rings: &BTreeMap<RingSlot, Ring>, piece: &Piece, to: &mut [u8]) -> io::Result<()> {
    let there = rings.get(&piece.ring).is_some_and(|ring| ring.reader.copy(&piece.record, piece.skip(), to));
    if there { Ok(()) } else { Err(io::Error::other("a record left its ring before it was drained")) }
}
