//! The order of one file's writes over all its rings, and how much of it is drained.

use crate::memory::Memory;
use crate::sync::Ordering::{AcqRel, Acquire, Release};

/// Bytes of the memory under either word.
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

/// How much of the file's sequence is drained: every record with a number below. Kept in memory of the agent alone.
///
/// The rings' tails advance one after the other; an agent that dies between two of them must not replay the older record
/// of one ring over the newer one of another, which is gone. So this one word moves first, and recovery asks it.
#[derive(Debug, Clone)]
pub struct Drained<M>(M);

impl<M: Memory> Drained<M> {
    /// The mark in the first word of `memory`.
    pub fn new(memory: M) -> Drained<M> {
        Drained(memory)
    }

    /// Every record with a smaller number is drained.
    pub fn below(&self) -> u64 {
        self.0.word(0).load(Acquire)
    }

    /// Records that all records below `sequence` are in the burst buffer, as durable as the medium of the rings is. Before
    /// the tails are released.
    pub fn advance(&self, sequence: u64) {
        if sequence > self.below() {
            self.0.word(0).store(sequence, Release);
            self.0.flush(0, 8);
            self.0.fence();
        }
    }
}
