//! Pauses of a stage-out, for programs that write meanwhile.

use std::sync::LazyLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::limits::{REST_MAX, RESTS_AFTER, RESTS_FOR};

/// Computing and resting time of one stage-out. It belongs to the thread that copies.
pub(crate) struct CopyPace {
    /// The thread's processor time when it rested last.
    rested_at: Duration,
}

impl CopyPace {
    pub(crate) fn new() -> CopyPace {
        CopyPace { rested_at: processor_time() }
    }

    /// Rests half as long as the thread computed since it last did, while files are open for writing and no processor
    /// is free. A stage-out that waits for its store rests hardly at all.
    pub(crate) fn make_room(&mut self, open_for_writing: u64) {
        if open_for_writing == 0 {
            return;
        }
        let computed = processor_time().saturating_sub(self.rested_at);
        if computed < RESTS_AFTER {
            return;
        }
        let rest = if is_full(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default(), *PROCESSORS) {
            (computed / RESTS_FOR).min(REST_MAX)
        } else {
            Duration::ZERO
        };
        if !rest.is_zero() {
            concurrency::sleep(rest);
        }
        self.rested_at = processor_time();
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Number of processors that this process may use. Read once, for the answer is in files.
static PROCESSORS: LazyLock<u64> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64));

/// Returns whether as many threads run or would run as there are processors, including the caller. See proc(5).
fn is_full(loadavg: &str, processors: u64) -> bool {
    let running = loadavg.split_whitespace().nth(3).and_then(|of_all| of_all.split_once('/'));
    running.and_then(|(running, _)| running.parse::<u64>().ok()).is_some_and(|running| running >= processors)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::world::World;

    #[test]
    fn processors_are_full_when_as_many_threads_would_run() {
        assert!(is_full("0.20 0.18 0.12 2/80 11206", 2));
        assert!(!is_full("9.20 8.18 7.12 1/80 11206", 2), "what ran before is of no interest");
        assert!(!is_full("", 2), "no /proc");
        assert!(!is_full("0.20 0.18 0.12 many/80 11206", 2));
    }

    #[test]
    fn what_is_open_for_writing_is_counted_until_it_is_closed() {
        let world = World::new();
        world.store.put("f", b"old");
        let open = || world.cache.inner.counters.open_for_writing.load(Ordering::Relaxed);
        world.write(b"x");
        assert_eq!(open(), 0);
        let written = world.open(true, false).unwrap();
        let read = world.open(false, false).unwrap();
        assert_eq!(open(), 1);
        drop(written);
        assert_eq!(open(), 0);
        drop(read);
        assert_eq!(open(), 0);
    }

    #[test]
    fn who_writes_alone_is_not_made_room_for() {
        let mut pace = CopyPace { rested_at: Duration::ZERO };
        pace.make_room(0);
        assert_eq!(pace.rested_at, Duration::ZERO);
        pace.rested_at = processor_time();
        let before = pace.rested_at;
        pace.make_room(1);
        assert_eq!(pace.rested_at, before, "that was little");
        pace.rested_at = Duration::ZERO;
        while processor_time() <= RESTS_AFTER {}
        pace.make_room(1);
        assert!(pace.rested_at > Duration::ZERO);
    }
}
