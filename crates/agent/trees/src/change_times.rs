//! Times of a tree's changes, by which the owner decides when it is applied and when its small files are packed.

use std::time::Duration;

use concurrency::Instant;

/// Times of changes.
pub(crate) struct ChangeTimes {
    /// Number of changes when they were last looked at.
    seen: u64,
    /// When more were last seen.
    moved: Instant,
    /// When the first change was seen that the global store lacks; `None`: it has all.
    pub pending: Option<Instant>,
}

impl ChangeTimes {
    /// A tree that is opened now.
    pub fn new(changes: u64, is_pending: bool) -> ChangeTimes {
        let now = Instant::now();
        ChangeTimes { seen: changes, moved: now, pending: is_pending.then_some(now) }
    }

    /// Notes how many changes there have been. Returns whether the last one was seen at least `quiet` ago.
    pub fn are_quiet(&mut self, changes: u64, quiet: Duration) -> bool {
        if self.seen != changes {
            (self.seen, self.moved) = (changes, Instant::now());
        }
        self.moved.elapsed() >= quiet
    }
}
