//! Rate of memory copies, since every buffered byte is copied at least once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::{Component, Measurement, Unit};
use crate::units::counted;

/// Bytes of a buffer: far more than one thread's share of the processor caches.
const BUFFER: usize = 32 << 20;
/// Most threads: more would not fill a memory bus better, and the buffers would exceed 4 GiB.
const THREADS_MAX: usize = 64;

pub fn measure(time: Duration) -> Vec<Measurement> {
    let processors = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let mut counts = vec![1, processors];
    counts.dedup();
    counts.into_iter().map(|threads| copy(threads, time)).collect()
}

/// Returns the rate of one thread, bytes per second.
pub fn by_one(time: Duration) -> f64 {
    copy(1, time).value
}

fn copy(threads: usize, time: Duration) -> Measurement {
    let start = Barrier::new(threads);
    let rate = |_| {
        let (from, mut to) = (vec![1u8; BUFFER], vec![2u8; BUFFER]);
        start.wait();
        let started = Instant::now();
        let mut copied = 0u64;
        while copied == 0 || started.elapsed() < time {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            copied += BUFFER as u64;
        }
        copied as f64 / started.elapsed().as_secs_f64()
    };
    let value = thread::scope(|scope| {
        let rate = &rate;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || rate(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    });
    let what = format!("copy, {}", counted(threads as u64, "thread"));
    Measurement::new(Component::Memory, what, value, Unit::BytesPerSecond)
}
