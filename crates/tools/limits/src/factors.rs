//! One software factor at a time: what does each setting of a program or mount change, everything else being equal?

mod levels;
mod show;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

pub use show::{render, value};

use crate::bounds::FREE_SHARE;
use crate::counters::Behind;
use crate::failure::Failure;
use crate::sweep::{Scratch, median, spread};
use crate::units::format_seconds;
use crate::workload::{Task, together};
use levels::{Plan, Setting};

/// A factor whose best and worst levels differ by less than this ratio does not matter here.
const MATTERS: f64 = 1.15;
/// Filling a directory takes at most so many times the length of a measurement.
const FILL_TIMES: u32 = 5;

/// One setting of one factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Its name: `64 KiB`.
    pub name: String,
    /// Median rate, bytes or operations a second; none if this file system refuses the setting.
    pub rate: Option<f64>,
    /// Half the 95 % confidence interval as a share of the mean.
    pub spread: Option<f64>,
    /// Why there is no rate.
    pub refused: Option<String>,
}

/// One factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// Its name: `block size, writing`.
    pub name: String,
    /// Whether rates are bytes a second; else operations.
    pub data: bool,
    /// Its settings.
    pub levels: Vec<Level>,
    /// Best over worst; none with fewer than two rates.
    pub effect: Option<f64>,
    /// In words.
    pub words: String,
}

/// What `factors` finds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// The directory.
    pub target: PathBuf,
    /// What stands behind it.
    pub behind: Behind,
    /// All of them.
    pub factors: Vec<Factor>,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory.
    pub target: PathBuf,
    /// Length of one measurement.
    pub time: Duration,
    /// Measurements of each level; the median counts.
    pub repeat: u64,
    /// Most bytes that are written at one time.
    pub size_max: u64,
}

impl Options {
    /// How long it takes, for `--dry-run`.
    pub fn estimate(&self) -> String {
        let plans = levels::all(self.size_max);
        let measurements: usize = plans.iter().map(|plan| plan.settings.len()).sum();
        // Levels that read write first.
        let phases: usize = plans.iter().flat_map(|plan| &plan.settings).map(|setting| setting.phases.len()).sum();
        let seconds = self.time.as_secs_f64() * phases as f64 * self.repeat as f64;
        let factors = plans.len();
        format!(
            "{factors} factors, {measurements} levels, {} runs each: about {}",
            self.repeat,
            format_seconds(seconds)
        )
    }
}

impl Factors {
    /// Measures every factor. Repetitions are outermost, so that a drift meets all levels of a factor alike.
    pub fn run(options: &Options, progress: &mut dyn FnMut(u64, u64, &str)) -> Result<Factors, Failure> {
        let scratch = Scratch::make(&options.target)?;
        let space =
            statvfs(scratch.path()).map_err(|error| Failure::input(format!("cannot ask for free space: {error}")))?;
        let free = (space.f_bavail.saturating_mul(space.f_frsize) as f64 * FREE_SHARE) as u64;
        if free < 256 << 20 {
            let target = options.target.display();
            return Err(Failure::output(format!("{target} has too little room: 512 MiB free are needed")));
        }
        let plans = levels::all(options.size_max.min(free));
        let mut factors = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            progress(number as u64, plans.len() as u64, plan.name);
            factors.push(factor(plan, scratch.path(), options));
        }
        Ok(Factors { target: options.target.clone(), behind: Behind::of(&options.target), factors })
    }
}

fn factor(plan: &Plan, scratch: &Path, options: &Options) -> Factor {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); plan.settings.len()];
    let mut refused: Vec<Option<String>> = vec![None; plan.settings.len()];
    for _ in 0..options.repeat {
        for (number, setting) in plan.settings.iter().enumerate() {
            if refused[number].is_some() {
                continue;
            }
            match measure(setting, scratch, options.time) {
                Ok(rate) => rates[number].push(rate),
                Err(error) => refused[number] = Some(error.to_string()),
            }
        }
    }
    let levels = plan.settings.iter().zip(rates).zip(refused).map(|((setting, rates), refused)| Level {
        name: setting.name.clone(),
        rate: (!rates.is_empty() && refused.is_none()).then(|| median(&rates)),
        spread: spread(&rates),
        refused,
    });
    let mut factor = Factor {
        name: plan.name.to_string(),
        data: plan.settings.iter().all(|setting| setting.measured.is_data()),
        levels: levels.collect(),
        effect: None,
        words: String::new(),
    };
    judge(&mut factor);
    factor
}

/// One measurement in a directory of its own.
fn measure(setting: &Setting, scratch: &Path, time: Duration) -> io::Result<f64> {
    let directory = scratch.join("level");
    fs::create_dir(&directory)?;
    let outcome = fill(setting, &directory, time).and_then(|()| {
        let task = Task {
            pattern: setting.pattern.clone(),
            directory: directory.clone(),
            processes: setting.streams,
            ranks: setting.streams,
            seed: 5,
        };
        let rates = together(&task, &setting.phases, time)?;
        let measured = setting.phases.iter().zip(rates).find(|(kind, _)| **kind == setting.measured);
        measured.map(|(_, (rate, _))| rate).ok_or_else(|| io::Error::other("the level measures nothing"))
    });
    fs::remove_dir_all(&directory)?;
    outcome
}

/// Puts other files into the directory where small files are made.
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
        Level { name: name.to_string(), rate, spread, refused: None }
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

    #[test]
    fn every_factor_is_measured_in_memory_and_nothing_stays() {
        let target = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options {
            target: target.path().to_path_buf(),
            time: Duration::from_millis(5),
            repeat: 1,
            size_max: 16 << 20,
        };
        let found = Factors::run(&options, &mut |_, _, _| {}).unwrap();
        assert!(found.factors.len() >= 8);
        for factor in &found.factors {
            let rates = factor.levels.iter().filter(|level| level.rate.is_some()).count();
            assert!(rates >= 2 || factor.levels.iter().any(|level| level.refused.is_some()), "{factor:?}");
        }
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
        assert!(options.estimate().contains("factors"));
        assert!(found.factors.iter().any(|factor| !factor.data && factor.name.contains("directory")));
    }
}
