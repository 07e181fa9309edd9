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
    pub(crate) out_bytes: AtomicU64,
    pub(crate) out_files: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) spilled: AtomicU64,
    pub(crate) full: AtomicU64,
    /// How often a global copy became authoritative for its file again. Counted before anybody can see the change.
    pub(crate) staged_count: AtomicU64,
    pub(crate) draining: Busy,
    pub(crate) fetching: Busy,
    /// The last stage-out that failed: the file's path, and the reason.
    pub(crate) failure: Mutex<Option<(String, String)>>,
    pub(crate) open_for_writing: AtomicU64,
    /// Number of handles through which the kernel may write replicas without the agent.
    pub(crate) kernel_writers: AtomicU64,
    /// Number of replica descriptors kept open since all of them were closed last.
    pub(crate) kept: AtomicU64,
}

impl CacheCounters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// Counts the threads at work, and the time with at least one of them.
#[derive(Default)]
pub(crate) struct Busy {
    threads: Mutex<(u32, Option<Instant>)>,
    /// In microseconds.
    pub(crate) total_us: AtomicU64,
}

/// One thread at work.
pub(crate) struct BusyGuard<'a>(&'a Busy);

impl Busy {
    pub(crate) fn enter(&self) -> BusyGuard<'_> {
        let mut threads = self.threads.lock();
        threads.0 += 1;
        threads.1.get_or_insert_with(Instant::now);
        BusyGuard(self)
    }
}

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        let mut threads = self.0.threads.lock();
        threads.0 -= 1;
        if threads.0 == 0
            && let Some(since) = threads.1.take()
        {
            CacheCounters::add(&self.0.total_us, since.elapsed().as_micros() as u64);
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
        let busy = Busy::default();
        let start = Instant::now();
        let first = busy.enter();
        let second = busy.enter();
        while start.elapsed() < Duration::from_millis(3) {
            std::thread::yield_now();
        }
        drop(first);
        assert_eq!(busy.total_us.load(Ordering::Relaxed), 0, "one is still at work");
        drop(second);
        let counted = Duration::from_micros(busy.total_us.load(Ordering::Relaxed));
        assert!(counted >= Duration::from_micros(2900) && counted <= start.elapsed(), "{counted:?}");
    }
}
