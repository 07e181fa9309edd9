//! Event counts since the cache was opened.

use std::sync::atomic::{AtomicU64, Ordering};

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
