//! The workload in threads of this process, for measurements that need no separate processes.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::message::{Sample, Task};
use super::pattern::Kind;
use super::phase::Worker;
use crate::clock::now_ns;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passed {
    /// Number of bytes, or of operations on names.
    pub amount: u64,
    /// Time from the first start to the last end, seconds.
    pub seconds: f64,
    /// Share of the data that was in the page cache before a read, if known.
    pub resident: Option<f64>,
}

impl Passed {
    /// Returns bytes or operations per second.
    pub fn rate(&self) -> f64 {
        self.amount as f64 / self.seconds
    }
}

/// Runs phases with one thread per rank. Returns for each phase the rate (bytes or operations per second) and the share
/// of the data that was in the page cache before a read.
pub fn together(task: &Task, phases: &[Kind], time: Duration) -> io::Result<Vec<(f64, Option<f64>)>> {
    Ok(phases_of(task, phases, time)?.iter().map(|passed| (passed.rate(), passed.resident)).collect())
}

/// Runs phases like [`together`], and also returns amount and time.
pub fn phases_of(task: &Task, phases: &[Kind], time: Duration) -> io::Result<Vec<Passed>> {
    let mut workers: Vec<Worker> = (0..task.ranks).map(|rank| Worker::new(rank, task.clone())).collect();
    let mut common = u64::MAX;
    let mut passed = Vec::new();
    for kind in phases.iter().copied() {
        let resident = workers.iter_mut().map(|worker| worker.prepare(kind, common)).collect::<io::Result<Vec<_>>>()?;
        let start = Barrier::new(workers.len());
        let samples: Vec<Sample> = thread::scope(|scope| {
            let start = &start;
            let run = |worker: &mut Worker| {
                start.wait();
                worker.run(kind, now_ns() + time.as_nanos() as u64)
            };
            let running: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(move || run(worker))).collect();
            running.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        if let Some(error) = samples.iter().find_map(|sample| sample.error.as_deref()) {
            return Err(io::Error::other(format!("{kind}: {error}")));
        }
        common = common.min(samples.iter().map(|sample| sample.operations).min().unwrap_or(0));
        let from = samples.iter().map(|sample| sample.started_ns).min().unwrap_or(0);
        let to = samples.iter().map(|sample| sample.ended_ns).max().unwrap_or(0);
        let amount: u64 = samples.iter().map(|s| if kind.is_data() { s.bytes } else { s.operations }).sum();
        let seconds = to.saturating_sub(from).max(1) as f64 / 1e9;
        let known: Vec<f64> = resident.into_iter().flatten().collect();
        let resident = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        passed.push(Passed { amount, seconds, resident });
    }
    Ok(passed)
}
