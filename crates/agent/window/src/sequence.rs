//! Order of one file's writes over all its rings.

use crate::memory::Memory;
use crate::sync::Ordering::{AcqRel, Acquire};

/// Bytes of the memory for the counter; also of the memory for the mark of applied records.
pub const WORD_BYTES: usize = 4096;

/// Next sequence number of the file, in memory that all its writers share.
///
/// A writer takes a number when its payload is in place, just before it publishes the record. If one write began after
/// another had returned, the later one therefore has the larger number, whatever process wrote it.
#[derive(Debug, Clone)]
pub struct Sequence<M>(M);

impl<M: Memory> Sequence<M> {
    /// Uses the first word of `memory` as the counter. Numbers start at 0 in zeroed memory.
    pub fn new(memory: M) -> Sequence<M> {
        Sequence(memory)
    }

    /// Takes the next number.
    pub fn take(&self) -> u64 {
        self.0.word(0).fetch_add(1, AcqRel)
    }

    /// Returns a lower bound of the number that the next write will get.
    pub fn next(&self) -> u64 {
        self.0.word(0).load(Acquire)
    }

    /// Raises the counter to `at_least`. After a crash of the machine the counter may be older than the records.
    pub fn raise(&self, at_least: u64) {
        self.0.word(0).fetch_max(at_least, AcqRel);
        self.0.flush(0, 8);
        self.0.fence();
    }
}
