//! Stage 3: M groups x N processes run the ideal workload, over a grid of M and N, each with new files.

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
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use analysis::{Analysis, Cell, analyse, cells};
pub use cell::{Scratch, generator_ns};
pub use estimate::{estimate, uncached_seconds};
pub use show::render;
pub use statistics::{median, spread};
pub use traffic::Traffic;

use crate::bounds::PROCESSES_MAX;
use crate::counters::{Behind, Counters};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::workload::{Kind, Launcher, Pattern, Task};
use traffic::Observers;

/// What was asked for: a run is resumed only if all of it is the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The directory to test.
    pub target: PathBuf,
    /// Directories in it that files are dealt out to in turn; empty: the target itself.
    #[serde(default)]
    pub across: Vec<PathBuf>,
    /// Values of M.
    pub groups: Vec<u64>,
    /// Values of N.
    pub processes: Vec<u64>,
    /// What the processes do.
    pub pattern: Pattern,
    /// Length of a phase.
    pub seconds: f64,
    /// Runs of each cell.
    pub repeat: u64,
    /// Runs of the largest cell before anything counts.
    pub warm_up: u64,
    /// For the random data.
    pub seed: u64,
    /// What the hardware can do, if it is known.
    pub known: Known,
    /// Where the groups run, in turn; empty: here.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Hosts whose interfaces are looked at, and nothing else.
    #[serde(default)]
    pub io_nodes: Vec<String>,
}

/// Limits from the plan, the probe or the command line; bytes a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Most that can be written.
    pub write_bytes_per_s: Option<f64>,
    /// Most that can be read.
    pub read_bytes_per_s: Option<f64>,
    /// One client node's link.
    pub client_bytes_per_s: Option<f64>,
    /// Who says so.
    pub source: String,
}

impl Known {
    /// The limit that holds for a phase.
    pub fn limit(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Write => self.write_bytes_per_s,
            Kind::Read => self.read_bytes_per_s,
            _ => None,
        }
    }
}

/// One phase of one run of one cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// M.
    pub groups: u64,
    /// N.
    pub processes: u64,
    /// Which repetition, from 0.
    pub repetition: u64,
    /// Which phase.
    pub kind: Kind,
    /// Bytes for data, operations for metadata.
    pub amount: u64,
    /// Operations of both.
    pub operations: u64,
    /// From the common start to the last close.
    pub seconds: f64,
    /// Amount over seconds: bytes a second, or operations a second.
    pub rate: f64,
    /// Each group's own rate, in its own time.
    pub group_rates: Vec<f64>,
    /// The slowest and the fastest process's own rate.
    pub process_rates: (f64, f64),
    /// Median, 99th percentile and maximum of an operation's latency, nanoseconds.
    pub latency_ns: (u64, u64, u64),
    /// Share of the machine's processor time that was used, by everybody.
    pub cpu_share: f64,
    /// Share of the data that the page cache held before a read, if the file system tells.
    pub resident: Option<f64>,
    /// Growth of the counters of the device behind the target: bytes read and written. None without a device.
    pub device_bytes: Option<(u64, u64)>,
    /// How many processors the hosts with groups have; each number once.
    #[serde(default)]
    pub processors: Vec<u64>,
    /// Bytes received and sent over all interfaces of this machine but loopback.
    pub network_bytes: (u64, u64),
    /// The same of each host with groups; empty without hosts.
    #[serde(default)]
    pub clients: Vec<Traffic>,
    /// The same of the I/O nodes that were named.
    #[serde(default)]
    pub io_nodes: Vec<Traffic>,
    /// Whether the processes came to the end of their share before the deadline.
    pub exhausted: bool,
    /// Files whose size was not what was written when they were looked at.
    #[serde(default)]
    pub odd: u64,
    /// Why the run does not count; none if it does.
    pub rejected: Option<String>,
}

/// A run that could not be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hole {
    /// M.
    pub groups: u64,
    /// N.
    pub processes: u64,
    /// Which repetition.
    pub repetition: u64,
    /// Why.
    pub why: String,
}

/// What a sweep found so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sweep {
    /// What was asked for.
    pub options: Options,
    /// What stands behind the target.
    pub behind: Behind,
    /// Counters that could not be read: without them no cache can be told by what the devices moved.
    #[serde(default)]
    pub missing: Vec<String>,
    /// What the generator itself costs, nanoseconds an operation.
    pub generator_ns: f64,
    /// What crossed the I/O nodes' interfaces in a second before anything ran.
    #[serde(default)]
    pub quiet: Vec<Traffic>,
    /// Whether everything asked for was tried.
    pub complete: bool,
    /// Directory that is being used; left behind if the sweep was killed.
    pub scratch: Option<PathBuf>,
    /// The further ones of a sweep across several.
    #[serde(default)]
    pub further: Vec<PathBuf>,
    /// Every run.
    pub runs: Vec<Run>,
    /// What is missing, and why.
    pub holes: Vec<Hole>,
}

/// Told after each cell: what is done, what there is to do, and words.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64, &str);

impl Options {
    /// One run of one process at `target`: what tests begin with.
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

    /// What makes it impossible, in a sentence.
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

    /// Where files are made.
    pub fn bases(&self) -> Vec<PathBuf> {
        match self.across.is_empty() {
            true => vec![self.target.clone()],
            false => self.across.iter().map(|directory| self.target.join(directory)).collect(),
        }
    }

    /// How many machines M groups are on: without hosts all are on this one.
    pub fn nodes(&self, groups: u64) -> u64 {
        let first = self.hosts.iter().take(usize::try_from(groups).unwrap_or(usize::MAX));
        (first.collect::<BTreeSet<_>>().len() as u64).max(1)
    }

    /// The limit that holds for a phase of M groups, and what it is of: their own links may be less than the whole.
    pub fn limit(&self, kind: Kind, groups: u64) -> Option<(f64, String)> {
        let (whole, source) = (self.known.limit(kind)?, &self.known.source);
        let nodes = self.nodes(groups);
        let links = self.known.client_bytes_per_s.map(|link| link * nodes as f64).filter(|links| *links < whole);
        let Some(links) = links else { return Some((whole, source.clone())) };
        let who = if nodes == 1 { "one client's link".to_string() } else { format!("{nodes} clients' links") };
        Some((links, format!("{who}, {source}")))
    }

    /// Every run: repetitions outside, so that a drift of the machine meets all cells alike.
    fn plan(&self) -> Vec<(u64, u64, u64)> {
        let cells = |repetition| {
            let cell = move |m: u64| self.processes.iter().map(move |n| (m, *n, repetition));
            self.groups.iter().flat_map(move |m| cell(*m))
        };
        (0..self.repeat).flat_map(cells).collect()
    }
}

impl Sweep {
    /// A sweep of which nothing is done.
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

    /// Takes up an earlier one; none if it had other options. What failed is tried again.
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

    /// The runs that are not done.
    fn left(&self) -> Vec<(u64, u64, u64)> {
        let done: BTreeSet<_> = self.runs.iter().map(|run| (run.groups, run.processes, run.repetition)).collect();
        self.options.plan().into_iter().filter(|run| !done.contains(run)).collect()
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.left().is_empty()
    }

    /// Does what is not done yet, until interrupted. `save` is called after each run, so that nothing is lost.
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

    /// What fails here fails again where it counts, and is a hole there.
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

/// Growth of the counters of a device, if there is one.
fn device_bytes(behind: &Behind, growth: &Counters) -> Option<(u64, u64)> {
    let disk = growth.disks.get(behind.device.as_ref()?)?;
    Some((disk.read_bytes, disk.written_bytes))
}
