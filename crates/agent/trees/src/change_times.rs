//! Times of a tree's changes, by which the owner decides when it is applied and when its small files are packed.

use std::time::Duration;

use concurrency::Instant;

/// Times of changes.
pub(crate) struct ChangeTimes {
    /// End of the log when it was last looked at.
    end: u64,
    /// When the end was last seen to move.
    moved: Instant,
    /// When the first change was seen that the global store lacks; `None`: it has all.
    pub pending: Option<Instant>,
    /// Whether the log grows by packing, which is no change.
    is_packing: bool,
}

impl ChangeTimes {
    /// A tree that is opened now, whose log ends at `end`.
    pub fn new(end: u64, is_pending: bool) -> ChangeTimes {
        let now = Instant::now();
        ChangeTimes { end, moved: now, pending: is_pending.then_some(now), is_packing: false }
    }

    /// Notes where the log ends now.
    pub fn look(&mut self, end: u64) {
        if self.end != end && !self.is_packing {
            (self.end, self.moved) = (end, Instant::now());
        }
    }

    /// Whether the log has not moved for so long.
    pub fn are_quiet(&self, quiet: Duration) -> bool {
        self.moved.elapsed() >= quiet
    }

    /// Begins to pack, unless the log, which ends at `end`, has moved in this time. Returns whether it does.
    pub fn begin_packing(&mut self, end: u64, quiet: Duration) -> bool {
        self.is_packing = self.end == end && self.are_quiet(quiet);
        self.is_packing
    }

    /// Ends the packing.
    pub fn end_packing(&mut self, end: u64) {
        if std::mem::take(&mut self.is_packing) {
            self.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S71
    fn packing_is_no_change_and_what_comes_before_or_after_it_is_one() {
        let (soon, never) = (Duration::ZERO, Duration::from_secs(3600));
        let mut times = ChangeTimes::new(10, false);
        let opened = times.moved;
        assert!(!times.begin_packing(11, soon) && !times.begin_packing(10, never));
        assert!(times.begin_packing(10, soon));
        // The thread that applies looks meanwhile.
        times.look(20);
        times.end_packing(30);
        times.look(30);
        assert!(times.moved == opened && times.begin_packing(30, soon));
        times.end_packing(40);
        times.look(41);
        assert!(times.moved > opened && times.begin_packing(41, soon));
        // What is packed because too many files wait ends nothing that was begun.
        times.end_packing(41);
        times.end_packing(50);
        assert!(!times.begin_packing(50, soon));
    }
}
