//! One run of one cell: M leaders with N processes each, every phase, and the combined result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::traffic::{self, Observers};
use super::{Run, Sweep, device_bytes};
use super::{multiple, suspicion};
use crate::bounds::{CLOCK_SHARE, FREE_SHARE, PHASE_MIN, START_SLACK, START_SLACK_EACH};
use crate::clock::now_ns;
use crate::counters::{Counters, free_bytes};
use crate::failure::Failure;
use crate::workload::{Block, Command, Fleet, Histogram, Kind, Launcher, Names, Pattern, Places, Reply, Sample, Task};

/// Prefix of a sweep's directory in the target.
const SCRATCH: &str = ".forebay-limits.";

/// A temporary directory in the target, removed on drop.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates the directory. Errors: the target is not writable, for example.
    pub fn make(target: &Path) -> Result<Scratch, Failure> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{SCRATCH}{}.{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = target.join(name);
        fs::create_dir(&path).map_err(|error| {
            Failure::output(format!(
                "cannot make a directory in {}: {error}; choose another --target",
                target.display()
            ))
        })?;
        Ok(Scratch { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory of a killed run from the target, if the name has the prefix of such directories.
    pub fn clear(left: &Path, target: &Path) {
        let named = left.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(SCRATCH.as_bytes()));
        if left.parent() == Some(target) && named {
            let _ = fs::remove_dir_all(left);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Runs every phase once. On an error nothing of the run is kept.
pub fn run(
    sweep: &Sweep,
    launcher: &Launcher,
    scratch: &[Scratch],
    cell: (u64, u64, u64),
    observers: &mut Observers,
) -> Result<Vec<Run>, Failure> {
    let (groups, processes, repetition) = cell;
    let name = format!("cell.{groups}.{processes}.{}", repetition.wrapping_add(1));
    let directories: Vec<PathBuf> = scratch.iter().map(|scratch| scratch.path().join(&name)).collect();
    let made = directories.iter().try_for_each(fs::create_dir);
    let result = match made {
        Ok(()) => phases(sweep, launcher, &directories, cell, observers),
        Err(error) => Err(Failure::output(format!("cannot make a directory: {error}"))),
    };
    let removed = directories.iter().try_for_each(fs::remove_dir_all);
    let runs = result?;
    removed.map_err(|error| Failure::output(format!("cannot remove the files of a cell: {error}")))?;
    Ok(runs)
}

fn phases(
    sweep: &Sweep,
    launcher: &Launcher,
    directories: &[PathBuf],
    cell: (u64, u64, u64),
    observers: &mut Observers,
) -> Result<Vec<Run>, Failure> {
    let (groups, processes, repetition) = cell;
    let ranks = groups * processes;
    let pattern = bounded(&sweep.options.pattern, directories, ranks)?;
    let seed = sweep.options.seed.wrapping_add(repetition.wrapping_mul(1 << 32));
    let directory = directories.first().cloned().unwrap_or_default();
    let task = Task { pattern, directory, across: directories.to_vec(), processes, ranks, seed };
    let leaders = (0..groups).map(|group| (format!("group {group}"), Command::Lead { group, task: task.clone() }));
    let mut fleet = Fleet::start(launcher, leaders)?;
    ready(fleet.gather(None))?;
    whole(&fleet)?;
    let far = !sweep.options.hosts.is_empty();
    let open = if far { clocks(&mut fleet, sweep.options.seconds)? } else { Duration::ZERO };
    let mut common = u64::MAX;
    let mut runs = Vec::new();
    for kind in task.pattern.phases.iter().copied() {
        let prepare = Command::Prepare { kind, common };
        fleet.tell(&prepare);
        let resident = ready(fleet.gather(Some(&prepare)))?;
        whole(&fleet)?;
        let look = |fleet: &mut Fleet| if far { fleet.look() } else { Vec::new() };
        let (hosts, nodes) = (look(&mut fleet), observers.look());
        let before = Counters::now();
        let at_ns = now_ns() + (START_SLACK + START_SLACK_EACH * ranks as u32 + 4 * open).as_nanos() as u64;
        let go = Command::Go { at_ns, until_ns: at_ns + (sweep.options.seconds * 1e9) as u64 };
        fleet.tell(&go);
        let samples = samples(fleet.gather(Some(&go)), kind, ranks)?;
        let growth = Counters::now().since(&before);
        if matches!(kind, Kind::Write | Kind::Create) {
            common = samples.iter().map(|sample| sample.operations).min().unwrap_or(0);
        }
        let mut run = account(sweep, kind, &samples, cell, &growth, resident);
        run.clients = traffic::grown(&sweep.options.hosts, &hosts, &look(&mut fleet));
        run.io_nodes = observers.since(&nodes);
        run.processors = if far { multiple::of(hosts.iter().flatten()) } else { multiple::of([&before]) };
        whole(&fleet)?;
        runs.push(run);
    }
    Ok(runs)
}

/// Compares the hosts' clocks and returns the uncertainty. Errors: the uncertainty is not small compared with a phase.
fn clocks(fleet: &mut Fleet, seconds: f64) -> Result<Duration, Failure> {
    let (open, whose) = fleet.set_clocks();
    whole(fleet)?;
    if open * CLOCK_SHARE > Duration::from_secs_f64(seconds) {
        let (open, need) = (open.as_secs_f64() * 1e3, (open * CLOCK_SHARE).as_secs_f64());
        return Err(Failure::unavailable(format!(
            "the clock of {whose} can be compared to {open:.1} ms only, too little for phases this short: --time {:.0}s or more",
            need.ceil()
        )));
    }
    Ok(open)
}

/// Returns the samples of all processes. Errors: a sample is missing or reports an error.
fn samples(reply: Reply, kind: Kind, ranks: u64) -> Result<Vec<Sample>, Failure> {
    let samples = match reply {
        Reply::Done { samples, lost } if lost.is_empty() => samples,
        Reply::Done { lost, .. } => return Err(Failure::unavailable(lost.join("; "))),
        Reply::Failed { what } => return Err(Failure::unavailable(what)),
        Reply::Ready { .. } | Reply::Clock { .. } | Reply::Seen { .. } => {
            return Err(Failure::defect("a phase ended without samples"));
        }
    };
    if samples.len() as u64 != ranks {
        return Err(Failure::unavailable(format!("{} of {ranks} processes answered", samples.len())));
    }
    if let Some(sample) = samples.iter().find(|sample| sample.error.is_some()) {
        let why = sample.error.as_deref().unwrap_or("");
        return Err(Failure::unavailable(format!("{kind} by process {}: {why}", sample.rank)));
    }
    Ok(samples)
}

fn ready(reply: Reply) -> Result<Option<f64>, Failure> {
    match reply {
        Reply::Ready { resident } => Ok(resident),
        Reply::Failed { what } => Err(Failure::unavailable(what)),
        Reply::Done { .. } | Reply::Clock { .. } | Reply::Seen { .. } => {
            Err(Failure::defect("samples without a phase"))
        }
    }
}

/// Checks that no process was lost, because the rate of a part is not the rate of the whole.
fn whole(fleet: &Fleet) -> Result<(), Failure> {
    if fleet.lost().is_empty() { Ok(()) } else { Err(Failure::unavailable(fleet.lost().join("; "))) }
}

/// Returns the pattern, with no more data than the target has room for.
fn bounded(pattern: &Pattern, directories: &[PathBuf], ranks: u64) -> Result<Pattern, Failure> {
    let mut pattern = pattern.clone();
    let mut free = u64::MAX;
    for directory in directories {
        free = free.min(free_bytes(directory)?);
    }
    // Each directory gets its share of the files.
    let free = free.saturating_mul(directories.len() as u64);
    if pattern.phases.iter().any(|kind| kind.is_data()) {
        pattern.size_max = pattern.size_max.min(free / ranks);
        if pattern.size_max < pattern.transfer {
            let need = (pattern.transfer * ranks) as f64 / FREE_SHARE;
            return Err(Failure::output(format!("the target has too little room: {need:.0} bytes free are needed")));
        }
    } else {
        pattern.files_max = pattern.files_max.min(free / ranks / pattern.small_file_bytes()).max(1);
    }
    Ok(pattern)
}

fn account(
    sweep: &Sweep,
    kind: Kind,
    samples: &[Sample],
    cell: (u64, u64, u64),
    growth: &Counters,
    resident: Option<f64>,
) -> Run {
    let (groups, processes, repetition) = cell;
    let amount_of = |sample: &Sample| if kind.is_data() { sample.bytes } else { sample.operations };
    let rate = |part: &[&Sample]| {
        let from = part.iter().map(|sample| sample.started_ns).min().unwrap_or(0);
        let to = part.iter().map(|sample| sample.ended_ns).max().unwrap_or(0);
        let amount: u64 = part.iter().map(|sample| amount_of(sample)).sum();
        (amount, to.saturating_sub(from) as f64 / 1e9)
    };
    let per_s = |(amount, seconds): (u64, f64)| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
    let all: Vec<&Sample> = samples.iter().collect();
    let (amount, seconds) = rate(&all);
    let group = |group: u64| all.iter().copied().filter(|s| s.rank / processes == group).collect::<Vec<_>>();
    let each = || samples.iter().map(|sample| per_s(rate(&[sample])));
    let mut latencies = Histogram::default();
    samples.iter().for_each(|sample| latencies.merge(&sample.latencies));
    let cpu = &growth.cpu;
    let busy = (cpu.user + cpu.system) as f64 / cpu.total().max(1) as f64;
    let mut run = Run {
        groups,
        processes,
        repetition,
        kind,
        amount,
        operations: latencies.count(),
        seconds,
        rate: per_s((amount, seconds)),
        group_rates: (0..groups).map(|number| per_s(rate(&group(number)))).collect(),
        process_rates: (each().fold(f64::INFINITY, f64::min), each().fold(0.0, f64::max)),
        latency_ns: (latencies.quantile(0.5), latencies.quantile(0.99), latencies.quantile(1.0)),
        cpu_share: busy,
        resident,
        device_bytes: device_bytes(&sweep.behind, growth),
        network_bytes: growth.network_bytes(),
        exhausted: samples.iter().any(|sample| sample.exhausted),
        odd: samples.iter().map(|sample| sample.odd).sum(),
        ..Run::default()
    };
    run.rejected =
        suspicion::of(&run, &sweep.options, &sweep.behind).or_else(|| too_short(&run, sweep.options.seconds));
    run
}

fn too_short(run: &Run, asked: f64) -> Option<String> {
    let short = run.seconds < PHASE_MIN.as_secs_f64().min(asked / 2.0);
    let took = run.seconds * 1e3;
    short.then(|| format!("it took {took:.1} ms only: too short to say anything; more --size, --files or --time"))
}

/// Measures the cost of the load generator itself, nanoseconds per operation: all bookkeeping, offsets, names, data and
/// clock without the call.
pub fn generator_ns(pattern: &Pattern) -> f64 {
    const ROUNDS: u64 = 2000;
    let is_data = pattern.phases.iter().any(|kind| kind.is_data());
    let (mut block, places) = (Block::new(pattern.transfer, 1), Places::new(pattern, 0, 1));
    let mut names = Names::new(Path::new("/directory/of/the/target/with/files"), 0);
    let mut latencies = Histogram::default();
    let mut round = || {
        let started = Instant::now();
        let mut before = now_ns();
        for index in 0..ROUNDS {
            if !is_data {
                std::hint::black_box(names.of(index));
            }
            let offset = places.offset(index % places.slots());
            std::hint::black_box(block.fill(0, offset, index).len());
            let after = now_ns();
            latencies.add(after - before);
            before = after;
        }
        started.elapsed().as_nanos() as f64 / ROUNDS as f64
    };
    // The best of several rounds, to exclude other activity of the machine.
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests;
