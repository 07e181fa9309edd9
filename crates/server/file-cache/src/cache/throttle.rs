//! The rate limit of stage-outs: a bucket that holds one second's bytes.

use std::time::Duration;

use concurrency::{Instant, Mutex};

use crate::limits::POLL;

/// The limit on bytes written by all stage-outs together.
#[derive(Default)]
pub(crate) struct Throttle {
    /// Time when everything taken so far will have been paid for.
    paid_at: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Takes `bytes` at `rate` bytes a second (0: no limit) and waits until the bucket holds them. Returns false if
    /// `interrupted` said so before.
    pub(crate) fn take(&self, bytes: u64, rate: u64, interrupted: &dyn Fn() -> bool) -> bool {
        if rate == 0 {
            return true;
        }
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let end = {
            let mut paid_at = self.paid_at.lock();
            let now = Instant::now();
            let from = paid_at.map_or(now, |at| at.max(now));
            let until = from + cost;
            *paid_at = Some(until);
            until.checked_sub(Duration::from_secs(1)).unwrap_or(now)
        };
        loop {
            let wait = end.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return true;
            }
            if interrupted() {
                // Bytes that are not written are not paid for.
                let mut paid_at = self.paid_at.lock();
                *paid_at = paid_at.and_then(|at| at.checked_sub(cost));
                return false;
            }
            concurrency::sleep(wait.min(POLL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_the_rate_ends_when_it_is_interrupted() {
        let throttle = Throttle::default();
        assert!(throttle.take(1 << 20, 1 << 20, &|| false), "the first second's bytes are there");
        let start = Instant::now();
        assert!(!throttle.take(1 << 40, 1 << 20, &|| start.elapsed() > Duration::from_millis(5)));
        assert!(start.elapsed() < Duration::from_secs(30), "it would be a day");
        assert!(throttle.take(1, 1 << 20, &|| true), "what was not taken is not owed");
    }
}
