//! Stage 3: M groups x N processes run the ideal workload with new files, over a grid of M and N.

mod analysis;
mod best;
mod cell;
mod estimate;
mod multiple;
mod show;
mod statistics;
mod suspicion;
mod traffic;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use analysis::{Analysis, analyse, cells};
pub use cell::{Scratch, generator_ns};
pub use estimate::{estimate, uncached_seconds};
pub use show::render;
pub use statistics::{distinct, median, spread};
pub use traffic::Traffic;

use crate::bounds::PROCESSES_MAX;
use crate::counters::{Behind, Counters};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::plan::Plan;
use crate::workload::{Kind, Launcher, Pattern, Task};
use traffic::Observers;

/// Options of a sweep. A run continues an earlier one only if all options are equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub target: PathBuf,
    /// Subdirectories over which files are distributed; empty: the target itself.
    #[serde(default)]
    pub across: Vec<PathBuf>,
    /// Values of M.
    pub groups: Vec<u64>,
    /// Values of N.
    pub processes: Vec<u64>,
    pub pattern: Pattern,
    /// Length of a phase.
    pub seconds: f64,
    pub repeat: u64,
    /// Runs of the largest cell before anything counts.
    pub warm_up: u64,
    pub seed: u64,
    pub known: Known,
    /// Hosts of the groups, in turn; empty: this machine.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Hosts that are observed only: their interface counters are read.
    #[serde(default)]
    pub io_nodes: Vec<String>,
}

/// Limits from the plan, the probe or the command line, in bytes per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    pub write_bytes_per_s: Option<f64>,
    pub read_bytes_per_s: Option<f64>,
    /// Rate of one client node's link.
    pub client_bytes_per_s: Option<f64>,
    pub source: String,
}

impl Known {
    /// Returns the limits of a plan from the file `source`.
    pub fn of_plan(plan: &Plan, source: &Path) -> Known {
        Known {
            write_bytes_per_s: Some(plan.write().minimum_bytes_per_s),
            read_bytes_per_s: Some(plan.read().minimum_bytes_per_s),
            client_bytes_per_s: Some(plan.client_link_bytes_per_s),
            source: source.display().to_string(),
        }
    }

    pub fn limit(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Write => self.write_bytes_per_s,
            Kind::Read => self.read_bytes_per_s,
            _ => None,
        }
    }
}

/// One phase of one run of one cell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// M.
    pub groups: u64,
    /// N.
    pub processes: u64,
    /// Number of the repetition, from 0.
    pub repetition: u64,
    pub kind: Kind,
    /// Number of bytes for data, of operations for metadata.
    pub amount: u64,
    /// Number of operations, for data and metadata.
    pub operations: u64,
    /// Time from the common start to the last close, seconds.
    pub seconds: f64,
    /// Rate: amount divided by seconds, bytes or operations per second.
    pub rate: f64,
    pub group_rates: Vec<f64>,
    pub process_rates: (f64, f64),
    /// Median, 99th percentile and maximum of an operation's latency, nanoseconds.
    pub latency_ns: (u64, u64, u64),
    /// Used share of the machine's processor time, including other programs.
    pub cpu_share: f64,
    /// Share of the data that was in the page cache before a read, if the file system reports it.
    pub resident: Option<f64>,
    /// Bytes read and written by the device behind the target. None without a device.
    pub device_bytes: Option<(u64, u64)>,
    /// Numbers of processors of the hosts with groups, without duplicates.
    #[serde(default)]
    pub processors: Vec<u64>,
    /// Bytes received and sent over all interfaces of this machine except loopback.
    pub network_bytes: (u64, u64),
    /// Traffic of each host with groups; empty without hosts.
    #[serde(default)]
    pub clients: Vec<Traffic>,
    #[serde(default)]
    pub io_nodes: Vec<Traffic>,
    /// Whether the processes completed their share before the deadline.
    pub exhausted: bool,
    /// Number of files whose `stat` showed another size than was written.
    #[serde(default)]
    pub odd: u64,
    /// Reason why the run does not count; none if it does.
    pub rejected: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hole {
    /// M.
    pub groups: u64,
    /// N.
    pub processes: u64,
    pub repetition: u64,
    pub why: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sweep {
    pub options: Options,
    pub behind: Behind,
    /// Counters that could not be read. Without them a cache cannot be recognised by the devices' traffic.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Cost of the load generator itself, nanoseconds per operation.
    pub generator_ns: f64,
    /// Traffic of the I/O nodes' interfaces in a second before anything ran.
    #[serde(default)]
    pub quiet: Vec<Traffic>,
    /// Whether every requested run was attempted.
    pub complete: bool,
    /// Directory in use; left behind if the sweep was killed.
    pub scratch: Option<PathBuf>,
    /// Further directories in use, for a sweep across several.
    #[serde(default)]
    pub further: Vec<PathBuf>,
    pub runs: Vec<Run>,
    pub holes: Vec<Hole>,
}

/// Callback before each run: number of runs done, number of all runs, description.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64, &str);

impl Options {
    /// Returns options of one run of one process at `target`, as a base for tests.
    #[cfg(test)]
    pub(crate) fn one(target: &str) -> Options {
        Options {
            target: target.into(),
            across: Vec::new(),
            groups: vec![1],
            processes: vec![1],
            pattern: Pattern::preset(crate::workload::Preset::Stream),
            seconds: 1.0,
            repeat: 1,
            warm_up: 0,
            seed: 1,
            known: Known::default(),
            hosts: Vec::new(),
            io_nodes: Vec::new(),
        }
    }

    /// Returns the reason why the sweep is impossible, as a sentence; `None` if it is possible.
    pub fn fault(&self) -> Option<String> {
        if self.groups.is_empty() || self.processes.is_empty() || self.repeat == 0 {
            return Some("-M, -N and --repeat need at least one value above zero".to_string());
        }
        if self.groups.iter().chain(&self.processes).any(|count| *count == 0) {
            return Some("-M and -N cannot be zero".to_string());
        }
        let most = self.groups.iter().max().zip(self.processes.iter().max()).map_or(0, |(m, n)| m.saturating_mul(*n));
        if most > PROCESSES_MAX {
            return Some(format!("the largest cell has {most} processes; at most {PROCESSES_MAX} can be started"));
        }
        if !(0.01..86_400.0).contains(&self.seconds) {
            return Some("--time must lie between 10ms and a day".to_string());
        }
        self.pattern.fault()
    }

    pub fn bases(&self) -> Vec<PathBuf> {
        match self.across.is_empty() {
            true => vec![self.target.clone()],
            false => self.across.iter().map(|directory| self.target.join(directory)).collect(),
        }
    }

    /// Returns the number of machines with M groups: one without hosts.
    pub fn nodes(&self, groups: u64) -> u64 {
        let first = self.hosts.iter().take(usize::try_from(groups).unwrap_or(usize::MAX));
        (first.collect::<BTreeSet<_>>().len() as u64).max(1)
    }

    /// Returns the limit for a phase of M groups, with its origin. The links of their clients may be slower than the
    /// rest.
    pub fn limit(&self, kind: Kind, groups: u64) -> Option<(f64, String)> {
        let (whole, source) = (self.known.limit(kind)?, &self.known.source);
        let nodes = self.nodes(groups);
        let links = self.known.client_bytes_per_s.map(|link| link * nodes as f64).filter(|links| *links < whole);
        let Some(links) = links else { return Some((whole, source.clone())) };
        let who = if nodes == 1 { "one client's link".to_string() } else { format!("{nodes} clients' links") };
        Some((links, format!("{who}, {source}")))
    }

    /// Returns all runs. Repetitions are the outermost loop, so that a drift of the machine affects all cells equally.
    fn plan(&self) -> Vec<(u64, u64, u64)> {
        let cells = |repetition| {
            let cell = move |m: u64| self.processes.iter().map(move |n| (m, *n, repetition));
            self.groups.iter().flat_map(move |m| cell(*m))
        };
        (0..self.repeat).flat_map(cells).collect()
    }
}

impl Sweep {
    pub fn new(options: Options) -> Sweep {
        let behind = Behind::of(options.bases().first().unwrap_or(&options.target));
        Sweep {
            options,
            behind,
            missing: crate::counters::missing(),
            generator_ns: 0.0,
            quiet: Vec::new(),
            complete: false,
            scratch: None,
            further: Vec::new(),
            runs: Vec::new(),
            holes: Vec::new(),
        }
    }

    /// Returns the kinds of the phases that were run, in their order.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for run in &self.runs {
            if !kinds.contains(&run.kind) {
                kinds.push(run.kind);
            }
        }
        kinds
    }

    /// Continues an earlier sweep; `None` if it had other options. Failed runs are repeated.
    pub fn resume(mut self, options: &Options) -> Option<Sweep> {
        if self.options != *options {
            return None;
        }
        self.holes.clear();
        self.complete = false;
        for scratch in self.scratch.take().into_iter().chain(std::mem::take(&mut self.further)) {
            self.options.bases().iter().for_each(|base| Scratch::clear(&scratch, base));
        }
        Some(self)
    }

    fn left(&self) -> Vec<(u64, u64, u64)> {
        let done: BTreeSet<_> = self.runs.iter().map(|run| (run.groups, run.processes, run.repetition)).collect();
        self.options.plan().into_iter().filter(|run| !done.contains(run)).collect()
    }

    pub fn is_done(&self) -> bool {
        self.left().is_empty()
    }

    /// Does the remaining runs, until interrupted. `save` is called after each run, so that nothing is lost.
    pub fn run(
        &mut self,
        launcher: &Launcher,
        interrupt: &Interrupt,
        save: &mut dyn FnMut(&Sweep) -> Result<(), Failure>,
        progress: Progress,
    ) -> Result<(), Failure> {
        let left = self.left();
        let all = self.options.plan().len() as u64;
        let scratch = self.options.bases().iter().map(|base| Scratch::make(base)).collect::<Result<Vec<_>, _>>()?;
        let mut paths = scratch.iter().map(|scratch| scratch.path().to_path_buf());
        (self.scratch, self.further) = (paths.next(), paths.collect());
        self.generator_ns = generator_ns(&self.options.pattern);
        save(self)?;
        let mut observers = self.observers(launcher)?;
        if !left.is_empty() {
            self.quiet = observers.quiet();
            self.warm_up(launcher, &scratch, &mut observers);
        }
        for (number, (groups, processes, repetition)) in left.iter().copied().enumerate() {
            progress(all - (left.len() - number) as u64, all, &format!("M={groups} N={processes}"));
            match cell::run(self, launcher, &scratch, (groups, processes, repetition), &mut observers) {
                Ok(runs) => self.runs.extend(runs),
                Err(failure) => self.holes.push(Hole { groups, processes, repetition, why: failure.message }),
            }
            save(self)?;
            if interrupt.came() {
                break;
            }
        }
        progress(all, all, "done");
        let unseen = observers.lost().iter().map(|lost| format!("{lost}: its traffic since then is not told"));
        self.missing.extend(unseen);
        drop(scratch);
        (self.scratch, self.further) = (None, Vec::new());
        self.complete = self.holes.is_empty() && !interrupt.came();
        save(self)
    }

    fn observers(&self, launcher: &Launcher) -> Result<Observers, Failure> {
        let (pattern, directory) = (self.options.pattern.clone(), self.options.target.clone());
        let task = Task { pattern, directory, across: Vec::new(), processes: 0, ranks: 0, seed: 0 };
        Observers::start(launcher, &self.options.io_nodes, &task)
    }

    /// Runs the warm-up. A failure here is only noted: it will recur in a run that counts.
    fn warm_up(&mut self, launcher: &Launcher, scratch: &[Scratch], observers: &mut Observers) {
        let most = |list: &[u64]| list.iter().max().copied().unwrap_or(1);
        let cell = (most(&self.options.groups), most(&self.options.processes), u64::MAX);
        for _ in 0..self.options.warm_up {
            if let Err(failure) = cell::run(self, launcher, scratch, cell, observers) {
                self.missing.push(format!("the warm-up did not come to its end: {}", failure.message));
                return;
            }
        }
    }
}

fn device_bytes(behind: &Behind, growth: &Counters) -> Option<(u64, u64)> {
    let disk = growth.disks.get(behind.device.as_ref()?)?;
    Some((disk.read_bytes, disk.written_bytes))
}
