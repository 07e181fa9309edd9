//! The order of one file's writes over all its rings.

use crate::memory::Memory;
use crate::sync::Ordering::{AcqRel, Acquire};

/// Bytes of the memory under the counter, and under the mark of what is drained.
pub const WORD_BYTES: usize = 4096;

/// The file's next sequence number, in memory that all its writers share.
///
/// A writer takes a number when its payload is in place, just before it publishes. So of two writes of which one
/// began after the other had returned, the later one has the larger number, whatever process wrote it.
#[derive(Debug, Clone)]
pub struct Sequence<M>(M);

impl<M: Memory> Sequence<M> {
    /// The counter in the first word of `memory`; numbers start at 0 in zeroed memory.
    pub fn new(memory: M) -> Sequence<M> {
        Sequence(memory)
    }

    /// Takes the next number.
    pub fn take(&self) -> u64 {
        self.0.word(0).fetch_add(1, AcqRel)
    }

    /// The number that the next write will get, at least.
    pub fn next(&self) -> u64 {
        self.0.word(0).load(Acquire)
    }

    /// Raises the counter to `at_least`: after a crash of the machine it may be older than the records.
    pub fn raise(&self, at_least: u64) {
        self.0.word(0).fetch_max(at_least, AcqRel);
        self.0.flush(0, 8);
        self.0.fence();
    }
}
