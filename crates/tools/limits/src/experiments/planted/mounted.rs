//! Mounted scenarios: a slowfs each, real programs, and the counters of the mount. Several run at a time; their rates
//! are so low that they share only processors.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::super::bed::{Bed, uses};
use crate::bounds::BUSY;
use crate::diagnosis::{Load, MOUNTED, Observed, Outcome, Story, reading};
use crate::failure::Failure;
use crate::workload::{Kind, Layout, Pattern, Preset, Sync, Task, phases_of};

const ABREAST: u64 = 4;
/// Processes that create names: more than the metadata server serves in parallel, however late a machine schedules
/// them.
const NAMERS: u64 = 16;
/// Size of the shared file in bytes, initially a hole: more than is written in the time.
const SHARED: u64 = 16 << 30;
/// Attempts of a load in which no part was full, since such a load shows no bottleneck.
const TRIES: u32 = 3;

/// Returns the approximate time in seconds of `count` scenarios: three loads, a mount, and some repeated loads.
pub fn seconds(count: u64) -> f64 {
    count.div_ceil(ABREAST) as f64 * (3.3 * MOUNTED.length as f64 / 1e9 + 1.0)
}

/// Runs the first `count` scenarios and passes on their verdicts, in order.
pub fn run(count: u64, take: &mut dyn FnMut(u64, &Story, &Outcome)) -> Result<(), Failure> {
    let next = AtomicU64::new(0);
    let (sender, outcomes) = channel();
    thread::scope(|scope| {
        for _ in 0..ABREAST.min(count) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count || sender.send((seed, told(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut early, mut wanted) = (BTreeMap::new(), 0);
        for (seed, outcome) in outcomes {
            early.insert(seed, outcome?);
            while let Some((story, outcome)) = early.remove(&wanted) {
                take(wanted, &story, &outcome);
                wanted += 1;
            }
        }
        Ok(())
    })
}

/// Mounts a scenario's bed, runs the loads, and judges the mount's counters.
fn told(seed: u64) -> Result<(Story, Outcome), Failure> {
    let story = Story::new(seed, MOUNTED);
    let mut bed = Bed::new()?;
    let options: Vec<String> =
        ["--client".to_string(), "open".to_string()].into_iter().chain(slowfs::options(story.real())).collect();
    let slow = bed.slow("store", &options)?;
    let observed = observed(&story, &slow.shown).map_err(Failure::unavailable)?;
    let outcome = story.judge(&observed);
    Ok((story, outcome))
}

fn observed(story: &Story, shown: &Path) -> io::Result<Observed> {
    let data = |layout| Pattern {
        transfer: MOUNTED.transfer,
        layout,
        sync: Sync::Close,
        direct: true,
        ..Pattern::preset(Preset::Stream)
    };
    let writers = MOUNTED.clients * MOUNTED.processes;
    Ok(Observed {
        own_files: load(story, shown, "own", data(Layout::FilePerProcess), writers)?,
        names: Some(load(story, shown, "names", Pattern::preset(Preset::MdtestEasy), NAMERS)?),
        shared_file: Some(load(story, shown, "shared", data(Layout::Strided), writers)?),
    })
}

/// Runs a load and returns the best of several attempts.
fn load(story: &Story, shown: &Path, name: &str, pattern: Pattern, processes: u64) -> io::Result<Load> {
    let mut best = Load::default();
    for number in 0..TRIES {
        let task = Task {
            pattern: pattern.clone(),
            directory: shown.join(format!("{name}.{number}")),
            across: Vec::new(),
            processes,
            ranks: processes,
            seed: 1,
        };
        let found = tried(story, shown, &task)?;
        let is_full = found.readings.iter().any(|reading| reading.busy >= BUSY);
        if found.rate > best.rate {
            best = found;
        }
        if is_full {
            break;
        }
    }
    Ok(best)
}

fn tried(story: &Story, shown: &Path, task: &Task) -> io::Result<Load> {
    fs::create_dir(&task.directory)?;
    let kind = if task.pattern.transfer > 0 { Kind::Write } else { Kind::Create };
    if task.pattern.layout == Layout::Strided {
        // Full size from the start, because the kernel serialises writes that extend a file.
        fs::File::create(task.directory.join("data.shared"))?.set_len(SHARED)?;
    }
    let look = || uses(shown).ok_or_else(|| io::Error::other("the mount does not tell what it did"));
    let before = look()?;
    let passed = phases_of(task, &[kind], Duration::from_nanos(MOUNTED.length))?[0];
    let after = look()?;
    // Readings from the growth of the mount's counters.
    let readings =
        after.iter().filter_map(|now| reading(&now.since(&before), story.planned(), passed.seconds)).collect();
    Ok(Load { rate: passed.rate(), acknowledged: passed.amount as f64, readings })
}
