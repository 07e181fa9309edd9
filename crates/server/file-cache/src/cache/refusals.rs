//! Whether the burst buffer refuses writes, as far as noticed.

use std::sync::atomic::{AtomicBool, AtomicI32};
use std::time::Duration;

use concurrency::Mutex;

#[derive(Default)]
pub(crate) struct Refusal {
    /// The errno of the refusal. 0: the burst buffer takes writes, as far as noticed.
    pub(crate) errno: AtomicI32,
    /// When a look last found that writes work. One thread looks at a time.
    pub(crate) took_at: Mutex<Option<Duration>>,
    /// Whether all dirty files were queued since the refusal was noticed.
    pub(crate) rescued: AtomicBool,
    /// When a file was last named in the log.
    pub(crate) named_at: Mutex<Option<Duration>>,
}
