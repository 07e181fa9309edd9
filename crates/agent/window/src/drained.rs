//! How much of a file's records is drained, kept in memory of the agent alone.
//!
//! The rings' tails advance one after the other; an agent that dies between two of them must not replay the older record
//! of one ring over the newer one of another, which is gone. So this mark moves first, and recovery asks it.
//!
//! ```text
//! byte 0          below: every record with a smaller number is drained. 48 bits of the number, and 16 that are made from them
//! byte 64, 128    two lines, of which the newer counts: check . below . joined . swept. What a sweep has done above `below`
//! ```
//!
//! What somebody wrote over a word is no mark, and neither is zeroed memory. A line is written while the other stands: `check` is made 0
//! first and right last, and a crash in between leaves 0. A line of another `below` than the first word's is of a former sweep.

use twox_hash::XxHash3_64;
use types::ByteRange;

use crate::memory::Memory;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// What is drained of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppliedProgress {
    /// Every record with a smaller number.
    pub below: u64,
    /// Of the records with a smaller number than this, those that joined the sweep...
    pub joined: u64,
    /// ...the bytes of the file before this.
    pub swept: u64,
}

impl AppliedProgress {
    /// Everything below `number`, and no more.
    pub fn all_below(number: u64) -> AppliedProgress {
        AppliedProgress { below: number, joined: number, swept: 0 }
    }

    /// Which bytes of a record are not drained: all behind some byte, or none.
    pub fn rest(&self, sequence: u64, range: ByteRange) -> ByteRange {
        match sequence {
            sequence if sequence < self.below => ByteRange::new(range.end, range.end),
            sequence if sequence < self.joined => ByteRange::new(range.start.max(self.swept).min(range.end), range.end),
            _ => range,
        }
    }
}

/// The mark of what is drained.
#[derive(Debug, Clone)]
pub struct Drained<M>(M);

/// In a mark: every record, whatever its number. 2^48 writes to one file take nine years at a million a second.
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
    /// A new mark in `memory`, of at least [`WORD_BYTES`](crate::sequence::WORD_BYTES) zeroes: nothing is drained. Before any ring is granted.
    pub fn begin(memory: M) -> Drained<M> {
        let drained = Drained(memory);
        drained.mark(0);
        drained
    }

    /// The mark that an earlier agent left there.
    pub fn left_behind(memory: M) -> Drained<M> {
        Drained(memory)
    }

    /// What is drained. `None`: the mark is damaged, and nobody knows.
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

    /// Records that so much is in the burst buffer, as durable as the medium of the rings is. Before the tails are released.
    /// `progress` is never less than before.
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

    /// What a line says, or nothing; `None` if it is damaged.
    fn line(&self, line: usize) -> Option<Option<AppliedProgress>> {
        let check = self.0.word(line + CHECK).load(Acquire);
        let word = |at: usize| self.0.word(line + at).load(Relaxed);
        let progress = AppliedProgress { below: word(BELOW), joined: word(JOINED), swept: word(SWEPT) };
        match check {
            0 => Some(None),
            check => (check == check_of(progress)).then_some(Some(progress)),
        }
    }

    /// Over the older line.
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
