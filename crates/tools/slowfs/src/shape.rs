//! How slow: the same for the same arguments, whatever the machine is.
//!
//! An operation lasts at least the latency, and no shorter than the bandwidth - one for all reads and writes - has room
//! for its bytes. The two run side by side, as in a client that keeps several messages under way, so that a single
//! stream of large writes reaches the bandwidth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::BURST;

/// What is promised.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// Bytes in a second; `None`: no bound.
    pub bandwidth: Option<f64>,
    /// Of every operation.
    pub latency: Duration,
    /// Up to this much more, by `seed`.
    pub jitter: Duration,
    pub seed: u64,
}

/// Keeps the promise.
pub struct Shape {
    promise: Promise,
    operations: AtomicU64,
    /// When everything that was let through so far has passed at the promised bandwidth.
    passed: Mutex<Instant>,
}

impl Shape {
    pub fn new(promise: Promise) -> Shape {
        Shape { promise, operations: AtomicU64::new(0), passed: Mutex::new(Instant::now()) }
    }

    /// Waits until an operation that began at `begun` and moved `bytes` may end. Holds no lock while it sleeps.
    pub fn wait(&self, begun: Instant, bytes: usize) {
        let until = (begun + self.latency()).max(self.reserve(Instant::now(), bytes));
        while let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            std::thread::sleep(rest);
        }
    }

    fn latency(&self) -> Duration {
        if self.promise.jitter.is_zero() {
            return self.promise.latency;
        }
        let operation = self.operations.fetch_add(1, Ordering::Relaxed);
        let share = (splitmix(self.promise.seed.wrapping_add(operation)) >> 11) as f64 / (1u64 << 53) as f64;
        self.promise.latency + self.promise.jitter.mul_f64(share)
    }

    /// Takes the next free stretch of the bandwidth; its end.
    fn reserve(&self, now: Instant, bytes: usize) -> Instant {
        let Some(bandwidth) = self.promise.bandwidth.filter(|_| bytes > 0) else { return now };
        let needs = Duration::from_secs_f64(bytes as f64 / bandwidth);
        let mut passed = self.passed.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        *passed = (*passed).max(earliest) + needs;
        *passed
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(bandwidth: f64) -> Promise {
        Promise { bandwidth: Some(bandwidth), latency: Duration::ZERO, jitter: Duration::ZERO, seed: 0 }
    }

    #[test]
    fn bytes_pass_at_the_promised_bandwidth_however_late_the_callers_come() {
        let shape = Shape::new(promise(1e6));
        let start = Instant::now();
        let first = shape.reserve(start, 100_000);
        // Late by less than the burst: caught up with.
        let second = shape.reserve(first + BURST / 2, 100_000);
        assert_eq!(second - first, Duration::from_millis(100));
        // A long pause is lost but for the burst.
        let third = shape.reserve(second + Duration::from_secs(5), 100_000);
        assert_eq!(third - second, Duration::from_millis(5100) - BURST);
    }

    #[test]
    fn what_moves_no_bytes_does_not_wait_for_those_that_do() {
        let shape = Shape::new(promise(1.0));
        shape.reserve(Instant::now(), 1 << 20);
        let now = Instant::now();
        assert_eq!(shape.reserve(now, 0), now);
    }

    #[test]
    fn jitter_is_bounded_and_the_same_for_the_same_seed() {
        let latencies = |seed| {
            let (latency, jitter) = (Duration::from_millis(2), Duration::from_millis(1));
            let shape = Shape::new(Promise { bandwidth: None, latency, jitter, seed });
            (0..1000).map(|_| shape.latency()).collect::<Vec<_>>()
        };
        assert_eq!(latencies(7), latencies(7));
        assert_ne!(latencies(7), latencies(8));
        let bounds = Duration::from_millis(2)..=Duration::from_millis(3);
        assert!(latencies(7).iter().all(|latency| bounds.contains(latency)));
    }
}
