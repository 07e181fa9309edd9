//! Limit of read-ahead: data that no program requested is moved only as far as reads have earned it.
//!
//! Bytes fetched ahead that no read has found never exceed the bytes earned. A read that continues where another ended
//! earns all of its bytes; any other read earns three quarters. So at most twice the bytes used are moved, however a
//! file is read. A sequential reader may have as much ahead as it has read; a random reader little.

use types::ByteRange;
use window::limits::{BLOCK, STREAMS_MAX};

/// Bytes earned by reads, bytes fetched ahead, and bytes of these that reads have found.
#[derive(Debug, Default)]
pub(crate) struct Earned {
    earned: u64,
    fetched: u64,
    used: u64,
    /// Ends of earlier reads, at which another may continue. Initially the beginning of the file.
    ends: [u64; STREAMS_MAX],
    oldest: usize,
}

impl Earned {
    /// Notes a read of `range`.
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

    /// Notes that a program announced that it will need `bytes` bytes.
    pub fn needs(&mut self, bytes: u64) {
        self.earned = self.earned.saturating_add(bytes);
    }

    /// Notes that `bytes` bytes are being fetched.
    pub fn fetches(&mut self, bytes: u64) {
        self.fetched = self.fetched.saturating_add(bytes);
    }

    /// Notes that `bytes` bytes were not fetched after all.
    pub fn gives_back(&mut self, bytes: u64) {
        self.fetched = self.fetched.saturating_sub(bytes);
    }

    /// Notes that a read has found `bytes` bytes.
    pub fn uses(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Returns how many bytes a sequential reader that requests `bytes` bytes may have ahead. From one block on, the
    /// detector rounds up to the end of a block, at most one block more. These must be earned too, because the detector
    /// requests missing bytes only after a miss.
    pub fn window(&self, bytes: u64) -> u64 {
        let earned = self.earned.saturating_add(bytes);
        if earned < BLOCK { earned } else { (BLOCK - 1).max(earned - BLOCK) }
    }

    /// Returns how many bytes may be fetched now.
    pub fn room(&self) -> u64 {
        self.earned.saturating_sub(self.fetched.saturating_sub(self.used))
    }
}
