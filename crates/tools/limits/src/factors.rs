//! Effect of one software factor at a time: each setting of a program or mount, all else being equal.

mod levels;
mod show;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

pub use show::{render, value};

use crate::bounds::{BLOCK_MAX, BLOCK_MIN};
use crate::counters::{Behind, free_bytes};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::sweep::{Scratch, median, spread};
use crate::units::format_seconds;
use crate::workload::{Task, small_file, together};
use levels::{Plan, Setting};

/// Ratio of the best to the worst level below which a factor does not matter.
const MATTERS: f64 = 1.15;
/// Factor for the longest time of filling a directory, relative to a measurement.
const FILL_TIMES: u32 = 5;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Name of the setting: `64 KiB`.
    pub name: String,
    /// Median rate, bytes or operations per second; none if this file system refuses the setting.
    pub rate: Option<f64>,
    /// Half the 95 % confidence interval, as a share of the mean.
    pub spread: Option<f64>,
    /// Reason why there is no rate.
    pub refused: Option<String>,
    /// Bytes of storage that one file takes, if measured.
    #[serde(default)]
    pub space_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// Name of the factor: `block size, writing`.
    pub name: String,
    /// Whether rates are bytes per second; otherwise operations per second.
    pub data: bool,
    pub levels: Vec<Level>,
    /// Best rate divided by the worst; none with fewer than two rates.
    pub effect: Option<f64>,
    pub words: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    pub target: PathBuf,
    pub behind: Behind,
    /// Options of the run; none in files of earlier versions.
    #[serde(default)]
    pub options: Option<Options>,
    /// Names of the factors that are still to be measured.
    #[serde(default)]
    pub left: Vec<String>,
    /// Directory in use; left behind if the run was killed.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
    pub factors: Vec<Factor>,
}

/// Options of a run. A run continues an earlier one only if all options are equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub target: PathBuf,
    /// Length of one measurement.
    pub seconds: f64,
    /// Measurements of each level; the median counts.
    pub repeat: u64,
    /// Most bytes that are written at a time.
    pub size_max: u64,
    /// Block size of the file system in bytes.
    pub block: u64,
}

/// Returns the block size that the file system of a directory reports, in bytes.
pub fn block_of(target: &Path) -> u64 {
    statvfs(target).map_or(BLOCK_MIN, |space| space.f_bsize).clamp(BLOCK_MIN, BLOCK_MAX)
}

impl Options {
    /// Returns the expected time in words, for `--dry-run`.
    pub fn estimate(&self) -> String {
        let plans = levels::all(self.size_max, self.block);
        let measurements: usize = plans.iter().map(|plan| plan.settings.len()).sum();
        // Levels that read need a write phase first.
        let phases: usize = plans.iter().flat_map(|plan| &plan.settings).map(|setting| setting.phases.len()).sum();
        let seconds = self.seconds * phases as f64 * self.repeat as f64;
        let factors = plans.len();
        format!(
            "{factors} factors, {measurements} levels, {} runs each: about {}",
            self.repeat,
            format_seconds(seconds)
        )
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl Factors {
    pub fn new(options: Options) -> Factors {
        let left = levels::all(options.size_max, options.block).iter().map(|plan| plan.name.to_string()).collect();
        let (target, behind) = (options.target.clone(), Behind::of(&options.target));
        Factors { target, behind, options: Some(options), left, scratch: None, factors: Vec::new() }
    }

    /// Continues from the results of an earlier run; `None` if it had other options.
    pub fn resume(mut self, options: &Options) -> Option<Factors> {
        if self.options.as_ref() != Some(options) {
            return None;
        }
        if let Some(scratch) = self.scratch.take() {
            Scratch::clear(&scratch, &self.target);
        }
        Some(self)
    }

    /// Measures every remaining factor, until interrupted.
    ///
    /// Repetitions are the outermost loop, so that a drift affects all levels of a factor equally. `save` is called
    /// after each factor. An interrupted factor remains to be measured.
    pub fn run(
        &mut self,
        options: &Options,
        interrupt: &Interrupt,
        save: &mut dyn FnMut(&Factors) -> Result<(), Failure>,
        progress: &mut dyn FnMut(u64, u64, &str),
    ) -> Result<(), Failure> {
        if self.left.is_empty() {
            return save(self);
        }
        let scratch = Scratch::make(&options.target)?;
        let free = free_bytes(scratch.path())?;
        if free < 256 << 20 {
            let target = options.target.display();
            return Err(Failure::output(format!("{target} has too little room: 512 MiB free are needed")));
        }
        self.scratch = Some(scratch.path().to_path_buf());
        save(self)?;
        let plans = levels::all(options.size_max.min(free), options.block);
        for (number, plan) in plans.iter().enumerate() {
            if !self.left.iter().any(|name| name == plan.name) {
                continue;
            }
            progress(number as u64, plans.len() as u64, plan.name);
            let Some(factor) = factor(plan, scratch.path(), options, interrupt) else { break };
            self.factors.push(factor);
            self.left.retain(|name| name != plan.name);
            save(self)?;
        }
        drop(scratch);
        self.scratch = None;
        save(self)
    }
}

/// Measures one factor; `None` if interrupted.
fn factor(plan: &Plan, scratch: &Path, options: &Options, interrupt: &Interrupt) -> Option<Factor> {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); plan.settings.len()];
    let mut spaces: Vec<Option<u64>> = vec![None; plan.settings.len()];
    let mut refused: Vec<Option<String>> = vec![None; plan.settings.len()];
    for _ in 0..options.repeat {
        for (number, setting) in plan.settings.iter().enumerate() {
            if interrupt.came() {
                return None;
            }
            if refused[number].is_some() {
                continue;
            }
            match measure(setting, scratch, options.time()) {
                Ok((rate, space)) => {
                    rates[number].push(rate);
                    spaces[number] = space;
                }
                Err(error) => refused[number] = Some(error.to_string()),
            }
        }
    }
    let levels = plan.settings.iter().zip(rates).zip(refused).zip(spaces);
    let levels = levels.map(|(((setting, rates), refused), space_bytes)| Level {
        name: setting.name.clone(),
        rate: (!rates.is_empty() && refused.is_none()).then(|| median(&rates)),
        spread: spread(&rates),
        refused,
        space_bytes,
    });
    let mut factor = Factor {
        name: plan.name.to_string(),
        data: plan.settings.iter().all(|setting| setting.measured.is_data()),
        levels: levels.collect(),
        effect: None,
        words: String::new(),
    };
    judge(&mut factor);
    factor.words.extend(show::space(&factor.levels).map(|words| format!("; {words}")));
    Some(factor)
}

/// Runs one measurement in a separate directory. Returns the rate, and the space that a file takes if requested.
fn measure(setting: &Setting, scratch: &Path, time: Duration) -> io::Result<(f64, Option<u64>)> {
    let directory = scratch.join("level");
    fs::create_dir(&directory)?;
    let outcome = fill(setting, &directory, time).and_then(|()| {
        let task = Task {
            pattern: setting.pattern.clone(),
            directory: directory.clone(),
            across: Vec::new(),
            processes: setting.streams,
            ranks: setting.streams,
            seed: 5,
        };
        let rates = together(&task, &setting.phases, time)?;
        let measured = setting.phases.iter().zip(rates).find(|(kind, _)| **kind == setting.measured);
        let (_, (rate, _)) = measured.ok_or_else(|| io::Error::other("the level measures nothing"))?;
        Ok((rate, if setting.space { Some(space(&small_file(&task, 0, 0))?) } else { None }))
    });
    fs::remove_dir_all(&directory)?;
    outcome
}

/// Returns the bytes of storage that a file takes. Syncs the file first, because some file systems allocate late.
fn space(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(file.metadata()?.blocks() * 512)
}

/// Creates other files in the directory where small files are created.
fn fill(setting: &Setting, directory: &Path, time: Duration) -> io::Result<()> {
    let files = directory.join("files");
    if setting.filled > 0 {
        fs::create_dir_all(&files)?;
    }
    let started = Instant::now();
    for number in 0..setting.filled {
        if started.elapsed() > time * FILL_TIMES {
            return Err(io::Error::other(format!("only {number} files could be made in time")));
        }
        File::create(files.join(format!("other.{number:08}")))?;
    }
    Ok(())
}

fn judge(factor: &mut Factor) {
    let known: Vec<(&str, f64)> = factor.levels.iter().filter_map(|l| Some((l.name.as_str(), l.rate?))).collect();
    let best = known.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let worst = known.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(best), Some(worst)) = (best, worst.filter(|worst| known.len() > 1 && worst.1 > 0.0)) else {
        factor.words = "cannot be compared here".to_string();
        return;
    };
    let effect = best.1 / worst.1;
    let noise = factor.levels.iter().filter_map(|level| level.spread).fold(0.0, f64::max);
    factor.words = if effect < MATTERS {
        "does not matter here".to_string()
    } else if effect < 1.0 + noise {
        "cannot be told from chance here: more --time or --repeat".to_string()
    } else {
        format!("matters: {} gives {effect:.1} times what {} does", best.0, worst.0)
    };
    factor.effect = Some(effect);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(name: &str, rate: Option<f64>, spread: Option<f64>) -> Level {
        Level { name: name.to_string(), rate, spread, refused: None, space_bytes: None }
    }

    fn judged(levels: Vec<Level>) -> Factor {
        let mut factor = Factor { name: "f".into(), data: true, levels, effect: None, words: String::new() };
        judge(&mut factor);
        factor
    }

    #[test]
    fn a_factor_matters_when_its_effect_exceeds_the_noise() {
        let clear = judged(vec![level("small", Some(10.0), Some(0.02)), level("large", Some(40.0), Some(0.02))]);
        assert_eq!(clear.words, "matters: large gives 4.0 times what small does");
        let noisy = judged(vec![level("a", Some(10.0), Some(0.9)), level("b", Some(14.0), Some(0.1))]);
        assert!(noisy.words.contains("cannot be told from chance"), "{}", noisy.words);
        assert_eq!(
            judged(vec![level("a", Some(10.0), None), level("b", Some(11.0), None)]).words,
            "does not matter here"
        );
        let alone = judged(vec![level("a", Some(10.0), None), level("b", None, None)]);
        assert_eq!((alone.words.as_str(), alone.effect), ("cannot be compared here", None));
    }

    fn options(target: &Path) -> Options {
        Options { target: target.to_path_buf(), seconds: 0.005, repeat: 1, size_max: 16 << 20, block: 64 << 10 }
    }

    fn run(found: &mut Factors, options: &Options, save: &mut dyn FnMut(&Factors) -> Result<(), Failure>) {
        found.run(options, &Interrupt::default(), save, &mut |_, _, _| {}).unwrap();
    }

    #[test]
    fn every_factor_is_measured_in_memory_and_nothing_stays() {
        let target = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = options(target.path());
        let mut found = Factors::new(options.clone());
        run(&mut found, &options, &mut |_| Ok(()));
        assert!(found.factors.len() >= 8 && found.left.is_empty());
        for factor in &found.factors {
            let rates = factor.levels.iter().filter(|level| level.rate.is_some()).count();
            assert!(rates >= 2 || factor.levels.iter().any(|level| level.refused.is_some()), "{factor:?}");
        }
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
        assert!(options.estimate().contains("factors"));
        assert!(found.factors.iter().any(|factor| !factor.data && factor.name.contains("directory")));
    }

    /// Memory has pages of 4 KiB: a thirty-second of a 64 KiB block takes one page, so it is not a full block.
    #[test]
    fn what_a_small_file_and_the_end_of_a_file_take_is_told() {
        let target = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = options(target.path());
        let mut found = Factors::new(options.clone());
        found.left.retain(|name| name.starts_with("sub-blocks"));
        run(&mut found, &options, &mut |_| Ok(()));
        let [factor] = &found.factors[..] else { panic!("{:?}", found.factors) };
        let levels: Vec<_> = factor.levels.iter().map(|level| (level.name.as_str(), level.space_bytes)).collect();
        let (small, block, end) = (Some(4 << 10), Some(64 << 10), Some(68 << 10));
        assert_eq!(
            levels,
            [("1/32 of a block (2 KiB)", small), ("a block (64 KiB)", block), ("33/32 of a block (66 KiB)", end)]
        );
        assert!(
            factor.words.ends_with("; a file of 1/32 of a block takes 4 KiB, one of a block 64 KiB"),
            "{}",
            factor.words
        );
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_with_what_is_left_and_clears_up() {
        let target = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = options(target.path());
        let mut found = Factors::new(options.clone());
        // Simulates a kill after the second factor: only the results saved then remain.
        let (mut saved, mut killed) = (0, None);
        let mut save = |now: &Factors| {
            saved += 1;
            if saved == 3 {
                killed = Some(now.clone());
            }
            Ok(())
        };
        run(&mut found, &options, &mut save);
        let killed = killed.unwrap();
        assert_eq!((killed.factors.len(), killed.left.len()), (2, found.factors.len() - 2));
        fs::create_dir(killed.scratch.as_ref().unwrap()).unwrap();
        assert!(killed.clone().resume(&Options { repeat: 2, ..options.clone() }).is_none());
        let mut again = killed.clone().resume(&options).unwrap();
        run(&mut again, &options, &mut |_| Ok(()));
        assert_eq!(again.factors[..2], killed.factors[..]);
        let names = |found: &Factors| found.factors.iter().map(|factor| factor.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&again), again.left.len()), (names(&found), 0));
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    }
}
