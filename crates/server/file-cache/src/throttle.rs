//! The rate limit of stage-outs: a bucket that holds one second's bytes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Bytes that may be written, over all stage-outs.
#[derive(Default)]
pub(crate) struct Throttle {
    /// When everything taken so far will have been paid for.
    paid_at: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Takes `bytes` at `rate` bytes a second (0: no limit) and waits until the bucket holds them.
    pub(crate) fn take(&self, bytes: u64, rate: u64) {
        if rate == 0 {
            return;
        }
        let wait = {
            let mut paid_at = self.paid_at.lock();
            let now = Instant::now();
            let from = paid_at.map_or(now, |at| at.max(now));
            let until = from + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *paid_at = Some(until);
            until.saturating_duration_since(now).saturating_sub(Duration::from_secs(1))
        };
        std::thread::sleep(wait);
    }
}
