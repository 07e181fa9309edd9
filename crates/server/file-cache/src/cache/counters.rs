//! Counts of events and of time at work since the cache was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::{Instant, Mutex};

#[derive(Default)]
pub(crate) struct CacheCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) through: AtomicU64,
    pub(crate) read_hits: AtomicU64,
    pub(crate) read_late: AtomicU64,
    pub(crate) read_misses: AtomicU64,
    pub(crate) in_bytes: AtomicU64,
    pub(crate) in_files: AtomicU64,
    pub(crate) in_us: AtomicU64,
    pub(crate) out_bytes: AtomicU64,
    pub(crate) out_files: AtomicU64,
    pub(crate) out_us: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) spilled: AtomicU64,
    pub(crate) full: AtomicU64,
    /// How often a global copy became authoritative for its file again. Counted before anybody can see the change.
    pub(crate) staged_count: AtomicU64,
}

impl CacheCounters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// Counts the threads at work. Time with at least one of them is added to a counter of microseconds.
#[derive(Default)]
pub(crate) struct Busy(Mutex<(u32, Option<Instant>)>);

impl Busy {
    /// Counts one more thread until the returned guard is dropped.
    pub(crate) fn enter<'a>(&'a self, total_us: &'a AtomicU64) -> BusyGuard<'a> {
        let mut state = self.0.lock();
        state.0 += 1;
        state.1.get_or_insert_with(Instant::now);
        BusyGuard { busy: self, total_us }
    }
}

pub(crate) struct BusyGuard<'a> {
    busy: &'a Busy,
    total_us: &'a AtomicU64,
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.busy.0.lock();
        state.0 -= 1;
        if state.0 == 0
            && let Some(since) = state.1.take()
        {
            CacheCounters::add(self.total_us, since.elapsed().as_micros() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    #[test]
    fn two_at_once_count_once() {
        let (busy, total) = (Busy::default(), AtomicU64::new(0));
        let start = Instant::now();
        let first = busy.enter(&total);
        let second = busy.enter(&total);
        while start.elapsed() < Duration::from_millis(3) {
            std::thread::yield_now();
        }
        drop(first);
        assert_eq!(total.load(Ordering::Relaxed), 0, "one is still at work");
        drop(second);
        let counted = Duration::from_micros(total.load(Ordering::Relaxed));
        assert!(counted >= Duration::from_micros(2900) && counted <= start.elapsed(), "{counted:?}");
    }
}
