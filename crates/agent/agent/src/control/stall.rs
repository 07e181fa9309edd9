//! Detection of a drain without progress.

use std::cell::Cell;
use std::time::Duration;

use concurrency::Instant;
use data_store::DrainProgress;

/// Watches a drain. The drain is over after `patience` without progress; `None`: never.
#[derive(Debug)]
pub struct Stall {
    patience: Option<Duration>,
    last: Cell<(DrainProgress, Instant)>,
}

impl Stall {
    /// Starts to watch a drain that begins now.
    pub fn new(patience: Option<Duration>) -> Stall {
        Stall { patience, last: Cell::new((DrainProgress::default(), Instant::now())) }
    }

    /// Notes the progress so far.
    pub fn saw(&self, now: DrainProgress) {
        if self.last.get().0 != now {
            self.last.set((now, Instant::now()));
        }
    }

    /// Whether there was no progress for at least the patience.
    pub fn is_over(&self) -> bool {
        self.patience.is_some_and(|patience| self.last.get().1.elapsed() >= patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // S22
    fn a_drain_that_comes_further_is_waited_for_and_one_that_stands_is_not() {
        let (one, two) = (DrainProgress::default(), DrainProgress { files_done: 1, ..DrainProgress::default() });
        let never = Stall::new(None);
        let at_once = Stall::new(Some(Duration::ZERO));
        let stall = Stall::new(Some(Duration::from_secs(3600)));
        for now in [one, two, one] {
            [&never, &at_once, &stall].into_iter().for_each(|stall| stall.saw(now));
        }
        assert_eq!((never.is_over(), at_once.is_over(), stall.is_over()), (false, true, false));
        let before = Instant::now().checked_sub(Duration::from_secs(7200));
        stall.last.set((one, before.unwrap_or_else(Instant::now)));
        stall.saw(one);
        assert_eq!(stall.is_over(), before.is_some());
        stall.saw(two);
        assert!(!stall.is_over());
    }
}
