//! Histogram of latencies with buckets of 1/16: merging is exact, quantiles have an error of at most 7 %.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock::now_ns;

const STEPS: u64 = 16;
const STEP_BITS: u32 = 4;

/// Counts of durations in nanoseconds. Serialised as pairs of bucket and count, for non-empty buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u64)>", into = "Vec<(u32, u64)>")]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts one duration in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.add_many(bucket(ns), 1);
    }

    /// Repeats `operation` for a time, at least once, and returns the median of its durations in nanoseconds.
    pub fn median_of(time: Duration, mut operation: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
        let mut times = Histogram::default();
        let started = Instant::now();
        while times.count() == 0 || started.elapsed() < time {
            let before = now_ns();
            operation()?;
            times.add(now_ns() - before);
        }
        Ok(times.quantile(0.5) as f64)
    }

    fn add_many(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += count;
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_many(bucket, *count);
        }
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the duration in nanoseconds that a share `0.0..=1.0` of all does not exceed; 0 without durations.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle(bucket);
            }
        }
        0
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = ns.ilog2();
    let step = (ns >> (power - STEP_BITS)) & (STEPS - 1);
    (u64::from(power - STEP_BITS + 1) * STEPS + step) as usize
}

fn middle(bucket: usize) -> u64 {
    let (row, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if row == 0 {
        return step;
    }
    let width = 1u64 << (row - 1);
    (STEPS + step) * width + width / 2
}

impl From<Vec<(u32, u64)>> for Histogram {
    fn from(pairs: Vec<(u32, u64)>) -> Histogram {
        let mut histogram = Histogram::default();
        // Buckets beyond the last possible one come from a faulty peer and would only cost memory.
        for (index, count) in pairs.into_iter().filter(|(index, _)| (*index as usize) <= bucket(u64::MAX)) {
            histogram.add_many(index as usize, count);
        }
        histogram
    }
}

impl From<Histogram> for Vec<(u32, u64)> {
    fn from(histogram: Histogram) -> Vec<(u32, u64)> {
        let counts = histogram.counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        counts.map(|(bucket, count)| (bucket as u32, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_seven_percent() {
        for ns in [0, 1, 15, 16, 17, 100, 999, 12_345, 1_000_000, 77_777_777, u64::MAX / 3] {
            let mut histogram = Histogram::default();
            histogram.add(ns);
            let found = histogram.quantile(0.5);
            assert!(found.abs_diff(ns) as f64 <= ns as f64 * 0.07, "{ns}: {found}");
        }
    }

    #[test]
    fn merging_4096_histograms_loses_no_sample() {
        let mut all = Histogram::default();
        for rank in 0..4096u64 {
            let mut one = Histogram::default();
            (0..10).for_each(|i| one.add(rank * 1000 + i));
            let sent = serde_json::to_string(&one).unwrap();
            all.merge(&serde_json::from_str(&sent).unwrap());
        }
        assert_eq!(all.count(), 40_960);
        assert!(all.quantile(0.5).abs_diff(2_048_000) < 150_000);
    }
}
