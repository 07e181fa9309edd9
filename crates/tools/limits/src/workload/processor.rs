//! A processor for each process when a phase begins. Processes that were told one after the other and sleep until one instant tend to wake
//! up on one processor, and share it until the scheduler finds out: milliseconds that no program of theirs would lose.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A process that stays on one processor until it is told to go where it likes.
pub struct Place {
    /// Where it may be; none if it could not be moved.
    all: Option<CpuSet>,
}

impl Place {
    /// Moves this thread to the processor of its rank, as far from those of the ranks beside it as may be.
    pub fn of(rank: u64) -> Place {
        let moved = sched_getaffinity(None).and_then(|all| {
            let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number)).collect();
            let mut one = CpuSet::new();
            one.set(allowed[nth(rank, allowed.len().max(1) as u64) as usize]);
            sched_setaffinity(None, &one).map(|()| all)
        });
        // Who may not say where it runs starts wherever it is.
        Place { all: moved.ok() }
    }

    /// From now on the scheduler may move it.
    pub fn leave(self) {
        if let Some(all) = self.all {
            let _ = sched_setaffinity(None, &all);
        }
    }
}

/// Which of `count` processors a rank begins on: all differ for `count` ranks in a row, and those of a few lie far apart, so that they
/// share no cache and no memory.
fn nth(rank: u64, count: u64) -> u64 {
    let divides = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // The golden section, and from there the next that meets every processor.
    let stride = (count * 618 / 1000).max(1);
    let stride = (stride..=stride + count).find(|stride| divides(*stride, count) == 1).unwrap_or(1);
    (rank % count) * stride % count
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ranks_in_a_row_begin_on_different_processors_and_few_of_many_far_apart() {
        for count in 1..300 {
            for first in [0, 7, 1000] {
                let places: BTreeSet<u64> = (first..first + count).map(|rank| nth(rank, count)).collect();
                assert!(places.len() as u64 == count && places.iter().all(|place| *place < count), "{count}");
            }
        }
        let places: Vec<u64> = (0..4).map(|rank| nth(rank, 64)).collect();
        let apart = |a: u64, b: u64| a.abs_diff(b).min(64 - a.abs_diff(b));
        assert!(places.iter().all(|a| places.iter().all(|b| a == b || apart(*a, *b) >= 8)), "{places:?}");
    }

    #[test]
    fn a_process_is_where_it_was_told_and_then_where_it_may() {
        let all = sched_getaffinity(None).unwrap();
        let place = Place::of(1);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        place.leave();
        assert_eq!(sched_getaffinity(None).unwrap(), all);
    }
}
