//! How much may be fetched ahead: what a program did not ask for is moved only as far as its reads have earned it.
//!
//! Of the bytes that were fetched ahead those that no read has found are never more than reads have earned: as many as were asked for by
//! reads that go on where another one ended, and three quarters of those that others asked for. So no more than twice what is used is
//! moved, however a file is read: a sequential reader may have as much ahead of him as he has read, and one at random places little.

use types::ByteRange;
use window::limits::{BLOCK, STREAMS_MAX};

/// Bytes earned by reads, fetched ahead of them, and found so.
#[derive(Debug, Default)]
pub(super) struct Earned {
    earned: u64,
    fetched: u64,
    used: u64,
    /// Where reads ended that another one may go on from; in the beginning that of the file.
    ends: [u64; STREAMS_MAX],
    oldest: usize,
}

impl Earned {
    /// A read asks for `range`.
    pub fn reads(&mut self, range: ByteRange) {
        let place = self.ends.iter().position(|end| *end == range.start);
        let bytes = if place.is_some() { range.len() } else { range.len() / 4 * 3 };
        let place = place.unwrap_or_else(|| {
            let place = self.oldest;
            self.oldest = (place + 1) % STREAMS_MAX;
            place
        });
        self.ends[place] = range.end;
        self.needs(bytes);
    }

    /// A program says that it will need so many bytes.
    pub fn needs(&mut self, bytes: u64) {
        self.earned = self.earned.saturating_add(bytes);
    }

    /// So many are being fetched.
    pub fn fetches(&mut self, bytes: u64) {
        self.fetched = self.fetched.saturating_add(bytes);
    }

    /// So many were not fetched after all.
    pub fn gives_back(&mut self, bytes: u64) {
        self.fetched = self.fetched.saturating_sub(bytes);
    }

    /// A read has found so many.
    pub fn uses(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Bytes that a reader in sequence who asks for so many now may want ahead of him. Once these are blocks he wants up to one more, to
    /// the end of a block: that has to be earned too, for what he wanted and did not get he does not want again before he misses it.
    pub fn window(&self, bytes: u64) -> u64 {
        let earned = self.earned.saturating_add(bytes);
        if earned < BLOCK { earned } else { (BLOCK - 1).max(earned - BLOCK) }
    }

    /// Bytes that may be fetched now.
    pub fn room(&self) -> u64 {
        self.earned.saturating_sub(self.fetched.saturating_sub(self.used))
    }
}
