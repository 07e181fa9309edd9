//! Answers about a file while records of its rings cannot be applied (drain, 4).

use std::io;

use data_store::Removed;
use types::{ByteRange, RangeSet};

use super::Drain;
use super::bring::copy;
use crate::counters::WindowCounters;
use crate::place::CutRecord;

/// Pending records, to be laid over the replica.
pub struct Pending<'a>(pub(crate) &'a Drain);

impl Pending<'_> {
    /// Returns the least end of the file, given the pending records.
    pub fn end(&self) -> u64 {
        self.0.queue.end()
    }

    /// Lays pending records over `bytes`, which begin at `offset` of the file and of which `read` came from the
    /// replica. Returns the new number of valid bytes.
    pub fn lay_over(&self, bytes: &mut [u8], offset: u64, read: usize) -> io::Result<usize> {
        let within = ByteRange::at(offset, bytes.len() as u64).intersection(&ByteRange::new(0, self.0.queue.end()));
        let end = if within.is_empty() { read } else { read.max((within.end - offset) as usize) };
        bytes[read..end].fill(0);
        for piece in self.0.queue.undrained(within) {
            let start = (piece.range.start - offset) as usize;
            copy(&self.0.rings, &piece, &mut bytes[start..start + piece.range.len() as usize])?;
        }
        Ok(end)
    }
}

impl Drain {
    /// Whether a ring may be added. False while ended rings hold records that cannot be applied.
    pub fn takes_rings(&self) -> bool {
        !self.failing && self.cut.is_none()
    }

    /// Truncates the file to `len` bytes by `act` while records cannot be applied. Pending bytes beyond `len` are
    /// dropped.
    pub fn cut<T>(&mut self, len: u64, act: &mut dyn FnMut() -> io::Result<T>) -> io::Result<T> {
        let cut = CutRecord::after(self.cut, len);
        self.place.set_cut(Some(&cut))?;
        let done = act();
        if done.is_ok() {
            self.cut = Some(cut);
            self.drop_behind(len);
        } else {
            self.place.set_cut(self.cut.as_ref())?;
        }
        done
    }

    /// Whether the pending records have no use any more: the file has no name, and no other handle has it open.
    pub fn is_forlorn(&self) -> bool {
        self.target.removed() != Removed::No
    }

    /// Drops all pending records. Reports them as lost, unless the file was removed through this agent.
    pub fn abandon(&mut self) {
        self.end(None);
        if self.target.removed() == Removed::Elsewhere {
            let pieces = self.queue.undrained(ByteRange::new(0, self.queue.end()));
            let lost: RangeSet = pieces.iter().fold(RangeSet::new(), |mut all, piece| {
                all.insert(piece.range);
                all
            });
            for range in lost.iter() {
                let (file, start, end) = (&self.hint, range.start, range.end);
                tracing::error!(
                    file,
                    "acknowledged writes are lost: bytes {start} to {end}: the file was removed elsewhere while the server was away"
                );
            }
            WindowCounters::add(&self.counters.lost, self.queue.cut(0));
        } else {
            tracing::info!(file = self.hint, "dropped the records of a removed file that could not be applied");
            self.drop_behind(0);
        }
        self.sweep();
    }

    fn drop_behind(&mut self, len: u64) {
        WindowCounters::add(&self.counters.superseded, self.queue.cut(len));
    }
}
