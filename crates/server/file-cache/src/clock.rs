//! Time as the cache uses it: monotonic, and replaceable in tests.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A monotonic clock: the time since some fixed moment.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The system's.
pub(crate) fn system() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// Seconds since 1970, for records only: nothing expires by it.
pub(crate) fn wall_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
