//! How much may be fetched ahead: what a program did not ask for is moved only as far as its reads have earned it.
//!
//! Of the bytes that were fetched ahead those that no read has found are at most three quarters of those that reads asked for. So no more
//! than twice what is used is moved, however a file is read: a sequential reader earns its window as it goes on, and one at random places
//! little.

use window::limits::BLOCK;

/// Bytes asked for by reads, fetched ahead of them, and found so.
#[derive(Debug, Default)]
pub(super) struct Earned {
    asked: u64,
    fetched: u64,
    used: u64,
}

impl Earned {
    /// A read, or what a program says that it will need, asks for so many bytes.
    pub fn asks(&mut self, bytes: u64) {
        self.asked = self.asked.saturating_add(bytes);
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

    /// Bytes that may lie ahead of a reader who asks for so many now.
    pub fn window(&self, bytes: u64) -> u64 {
        let asked = self.asked.saturating_add(bytes);
        // A stream is fetched up to the end of a block: one more is little where much was read.
        let rest = if asked >= 4 * BLOCK { BLOCK } else { 0 };
        (asked / 4 * 3).saturating_add(rest)
    }

    /// Bytes that may be fetched now.
    pub fn room(&self) -> u64 {
        self.window(0).saturating_sub(self.fetched.saturating_sub(self.used))
    }
}
