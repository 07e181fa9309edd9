//! Assignment of processes to processors at the start of a phase.
//!
//! Processes that were started one after the other and sleep until one instant tend to wake up on one processor. They
//! share it until the scheduler moves them: milliseconds that a real program would not lose.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A process pinned to one processor until it is released.
pub struct Place {
    /// Processors allowed before pinning; `None` if pinning failed.
    all: Option<CpuSet>,
}

impl Place {
    /// Pins this thread to the processor of its rank, as far as possible from those of neighbouring ranks.
    pub fn of(rank: u64) -> Place {
        let moved = sched_getaffinity(None).and_then(|all| {
            let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number)).collect();
            let mut one = CpuSet::new();
            one.set(allowed[nth(rank, allowed.len().max(1) as u64) as usize]);
            sched_setaffinity(None, &one).map(|()| all)
        });
        // Without permission to pin, the process starts wherever it is.
        Place { all: moved.ok() }
    }

    /// Releases the thread, so that the scheduler may move it.
    pub fn leave(self) {
        if let Some(all) = self.all {
            let _ = sched_setaffinity(None, &all);
        }
    }
}

/// Returns which of `count` processors a rank starts on. `count` consecutive ranks get different processors. Those of a
/// few ranks are far apart, so that they share no cache and no memory.
fn nth(rank: u64, count: u64) -> u64 {
    let divides = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // The golden section, and from there the next stride that reaches every processor.
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
