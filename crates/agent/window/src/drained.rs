//! Mark of how much of a file's records has been applied, in memory of the agent only.
//!
//! The tails of the rings advance one after the other. An agent may die between two of them. The older record of one
//! ring must then not be replayed over the newer one of another, which is gone. So this mark moves first, and recovery
//! reads it.
//!
//! ```text
//! byte 0          below: all records with smaller numbers are applied. 48 bits, and 16 derived from them
//! byte 64, 128    two lines, the newer counts: check . below . joined . swept; a sweep's progress above `below`
//! ```
//!
//! An overwritten word is not a valid mark, and neither is zeroed memory. One line is written while the other stays
//! valid: `check` is set to 0 first and to its value last, so a crash in between leaves 0. A line whose `below` differs
//! from the first word's is of a former sweep.

use twox_hash::XxHash3_64;
use types::ByteRange;

use crate::memory::Memory;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Applied part of a file's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppliedProgress {
    /// Number below which all records are applied.
    pub below: u64,
    /// Number below which records have joined the sweep.
    pub joined: u64,
    /// Offset in the file before which the bytes of these records are applied.
    pub swept: u64,
}

impl AppliedProgress {
    /// Returns the progress in which exactly the records below `number` are applied.
    pub fn all_below(number: u64) -> AppliedProgress {
        AppliedProgress { below: number, joined: number, swept: 0 }
    }

    /// Returns the bytes of a record that are not applied: all from some offset on, or none.
    pub fn rest(&self, sequence: u64, range: ByteRange) -> ByteRange {
        match sequence {
            sequence if sequence < self.below => ByteRange::new(range.end, range.end),
            sequence if sequence < self.joined => ByteRange::new(range.start.max(self.swept).min(range.end), range.end),
            _ => range,
        }
    }
}

/// Mark of applied records.
#[derive(Debug, Clone)]
pub struct Drained<M>(M);

/// Number in a mark that stands for all records. 2^48 writes to one file take nine years at a million a second.
const ALL: u64 = (1 << 48) - 1;
const LINES: [usize; 2] = [64, 128];
const CHECK: usize = 0;
const BELOW: usize = 8;
const JOINED: usize = 16;
const SWEPT: usize = 24;
const LINE_BYTES: usize = 32;

fn marked(number: u64) -> u64 {
    number << 16 | XxHash3_64::oneshot(&number.to_le_bytes()) >> 48
}

fn check_of(progress: AppliedProgress) -> u64 {
    let words = [progress.below, progress.joined, progress.swept];
    let mut bytes = [0; 24];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    XxHash3_64::oneshot(&bytes) | 1
}

impl<M: Memory> Drained<M> {
    /// Makes a new mark in `memory`, which must be at least [`WORD_BYTES`](crate::sequence::WORD_BYTES) zeroes. Nothing
    /// is applied yet. To be called before any ring is granted.
    pub fn begin(memory: M) -> Drained<M> {
        let drained = Drained(memory);
        drained.mark(0);
        drained
    }

    /// Opens the mark that an earlier agent left in `memory`.
    pub fn left_behind(memory: M) -> Drained<M> {
        Drained(memory)
    }

    /// Returns the progress. `None` if the mark is damaged, so that the progress is unknown.
    pub fn progress(&self) -> Option<AppliedProgress> {
        let below = self.below()?;
        let mut newest = AppliedProgress::all_below(below);
        for line in LINES {
            let Some(progress) = self.line(line)? else { continue };
            if progress.below > below {
                return None;
            }
            if progress.below == below && (progress.joined, progress.swept) > (newest.joined, newest.swept) {
                newest = progress;
            }
        }
        Some(newest)
    }

    /// Records that this much has been applied to the burst buffer, as durably as the medium of the rings. To be called
    /// before the tails are released. `progress` must never be less than before.
    pub fn advance(&self, progress: AppliedProgress) {
        let below = progress.below.min(ALL);
        if self.below().is_none_or(|before| below > before) {
            self.mark(below);
        }
        if progress.swept > 0 {
            self.mark_line(AppliedProgress { below, ..progress });
        }
    }

    fn below(&self) -> Option<u64> {
        let word = self.0.word(0).load(Acquire);
        let number = word >> 16;
        (marked(number) == word).then_some(if number == ALL { u64::MAX } else { number })
    }

    fn mark(&self, number: u64) {
        self.0.word(0).store(marked(number), Release);
        self.0.flush(0, 8);
        self.0.fence();
    }

    /// Returns the progress in a line: inner `None` if the line is empty, outer `None` if it is damaged.
    fn line(&self, line: usize) -> Option<Option<AppliedProgress>> {
        let check = self.0.word(line + CHECK).load(Acquire);
        let word = |at: usize| self.0.word(line + at).load(Relaxed);
        let progress = AppliedProgress { below: word(BELOW), joined: word(JOINED), swept: word(SWEPT) };
        match check {
            0 => Some(None),
            check => (check == check_of(progress)).then_some(Some(progress)),
        }
    }

    fn mark_line(&self, progress: AppliedProgress) {
        let age = |line: &usize| {
            let found = self.line(*line).flatten();
            found.map(|found| (found.below, found.joined, found.swept))
        };
        let line = LINES.into_iter().min_by_key(age).unwrap_or(LINES[0]);
        self.0.word(line + CHECK).store(0, Release);
        self.0.word(line + BELOW).store(progress.below, Release);
        self.0.word(line + JOINED).store(progress.joined, Release);
        self.0.word(line + SWEPT).store(progress.swept, Release);
        self.0.word(line + CHECK).store(check_of(progress), Release);
        self.0.flush(line, LINE_BYTES);
        self.0.fence();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
