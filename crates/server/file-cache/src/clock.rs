//! Time as the cache uses it: monotonic, and replaceable in tests.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use concurrency::Instant;
use types::Timestamp;

/// A monotonic clock: the time since some fixed moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

pub(crate) fn system() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// Returns the time of day as the kernel would note it.
pub(crate) fn wall() -> Timestamp {
    let now = concurrency::wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// Returns seconds since 1970, for records only: nothing expires by them.
pub(crate) fn wall_s() -> u64 {
    concurrency::wall_clock().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
