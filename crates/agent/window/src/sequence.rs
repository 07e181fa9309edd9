//! The order of one file's writes over all its rings, and how much of it is drained.

use twox_hash::XxHash3_64;

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
///
/// One word, because that is what is stored whole or not at all. In it are 48 bits of the number and 16 that are made from them:
/// what somebody wrote over it is no mark, and neither is zeroed memory.
#[derive(Debug, Clone)]
pub struct Drained<M>(M);

/// In a mark: every record, whatever its number. 2^48 writes to one file take nine years at a million a second.
const ALL: u64 = (1 << 48) - 1;

fn marked(number: u64) -> u64 {
    number << 16 | XxHash3_64::oneshot(&number.to_le_bytes()) >> 48
}

impl<M: Memory> Drained<M> {
    /// A new mark in the first word of `memory`: nothing is drained. Before any ring is granted.
    pub fn begin(memory: M) -> Drained<M> {
        let drained = Drained(memory);
        drained.mark(0);
        drained
    }

    /// The mark that an earlier agent left there.
    pub fn left_behind(memory: M) -> Drained<M> {
        Drained(memory)
    }

    /// Every record with a smaller number is drained. `None`: the mark is damaged, and nobody knows.
    pub fn below(&self) -> Option<u64> {
        let word = self.0.word(0).load(Acquire);
        let number = word >> 16;
        (marked(number) == word).then_some(if number == ALL { u64::MAX } else { number })
    }

    /// Records that all records below `sequence` are in the burst buffer, as durable as the medium of the rings is. Before
    /// the tails are released.
    pub fn advance(&self, sequence: u64) {
        if self.below().is_none_or(|below| sequence > below) {
            self.mark(sequence.min(ALL));
        }
    }

    fn mark(&self, number: u64) {
        self.0.word(0).store(marked(number), Release);
        self.0.flush(0, 8);
        self.0.fence();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Heap;
    use crate::sync::Ordering::Relaxed;

    fn found(word: u64) -> Option<u64> {
        let memory = Heap::zeroed(WORD_BYTES);
        memory.word(0).store(word, Relaxed);
        Drained::left_behind(memory).below()
    }

    #[test]
    fn a_mark_that_was_written_over_is_told_from_one_that_was_made() {
        let memory = Arc::new(Heap::zeroed(WORD_BYTES));
        let drained = Drained::begin(Arc::clone(&memory));
        assert_eq!(drained.below(), Some(0));
        for number in [1, 2, 77, 1 << 32, ALL - 1] {
            drained.advance(number);
            drained.advance(number - 1);
            let word = memory.word(0).load(Relaxed);
            assert_eq!(found(word), Some(number));
            (0..64).for_each(|bit| assert_eq!(found(word ^ 1 << bit), None, "{number}, bit {bit}"));
        }
        for word in [0, 1, 5000, u64::MAX, u64::from_le_bytes(*b"somebody")] {
            assert_eq!(found(word), None, "{word:#x}");
        }
        drained.advance(u64::MAX);
        assert_eq!(drained.below(), Some(u64::MAX));
    }
}
