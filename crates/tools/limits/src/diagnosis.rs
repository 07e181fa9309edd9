//! Finds the limit that binds, from measurements of each part, and whether that limit is the planned one.
//!
//! D1. A cache is reported first: if a cache answers, all other measurements are meaningless.
//! D2. Only a part that is busy can bind. A part that is below its plan but idle is mentioned and not blamed.
//! D3. A part that binds as planned raises no alarm.

mod planted;
mod uses;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use planted::{MOUNTED, Outcome, PLANTS, Plant, SIMULATED, Story, planted};
pub use uses::reading;

use crate::bounds::{BUSY, LIMIT_SLACK, LOST_TO_SHARING, PROMISE_KEPT, UNEQUAL};
use crate::units::format_rate;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    ClientCpu,
    ClientLink,
    /// The core network, which all data crosses.
    Core,
    ServerLink,
    /// The disks.
    Target,
    /// The metadata server; its rates are operations a second.
    Metadata,
    /// The lock manager; its rates are requests per second.
    LockManager,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Culprit {
    All(Part),
    /// One part of a kind, by its number.
    One(Part, usize),
    Locks,
    /// A cache that answers in place of the storage.
    Cache,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |part: &Part| match part {
            Part::ClientCpu => "the processor of client",
            Part::ClientLink => "the link of client",
            Part::Core => "the core network",
            Part::ServerLink => "the link of server",
            Part::Target => "disk",
            Part::Metadata => "metadata server",
            Part::LockManager => "lock manager",
        };
        match self {
            Culprit::All(Part::ClientCpu) => f.write_str("the clients' processors"),
            Culprit::All(Part::ClientLink) => f.write_str("the clients' links"),
            Culprit::All(Part::Core) => f.write_str("the core network"),
            Culprit::All(Part::ServerLink) => f.write_str("the servers' links"),
            Culprit::All(Part::Target) => f.write_str("the disks"),
            Culprit::All(Part::Metadata) => f.write_str("the metadata server"),
            Culprit::One(part, number) => write!(f, "{} {number}", one(part)),
            Culprit::Locks | Culprit::All(Part::LockManager) => f.write_str("the lock protocol"),
            Culprit::Cache => f.write_str("a cache that answers in place of the storage"),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reading {
    pub part: Part,
    /// Number of the part among those of its kind.
    pub number: usize,
    /// Rate that the specification promises, bytes or operations per second.
    pub planned: f64,
    /// Rate while busy: amount moved divided by busy time.
    pub gives: f64,
    /// Share of the load's time in which the part was busy.
    pub busy: f64,
    /// Amount moved, bytes or operations.
    pub moved: f64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Load {
    /// Rate that the programs got, bytes or operations per second.
    pub rate: f64,
    /// Amount acknowledged to the programs, bytes or operations.
    pub acknowledged: f64,
    pub readings: Vec<Reading>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Load of processes with separate files.
    pub own_files: Load,
    /// Load of processes that write one file in turn; none if not measured.
    pub shared_file: Option<Load>,
    /// Load of operations on names; none if not measured.
    pub names: Option<Load>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Part that is below its promise and binds; none if all is as planned.
    pub alarm: Option<Culprit>,
    /// Part that binds, as planned or not; none if no part was busy.
    pub binds: Option<Culprit>,
    /// Sentences for the user; the part to blame comes first.
    pub words: Vec<String>,
}

pub fn diagnose(observed: &Observed) -> Verdict {
    let mut verdict = Verdict { alarm: None, binds: None, words: Vec::new() };
    if let Some(why) = cache(&observed.own_files) {
        verdict.words.push(why);
        (verdict.alarm, verdict.binds) = (Some(Culprit::Cache), Some(Culprit::Cache));
        return verdict;
    }
    verdict.take(&observed.own_files);
    let loads = [&observed.names, &observed.shared_file];
    for load in loads.into_iter().flatten() {
        if verdict.alarm.is_none() {
            verdict.take(load);
        }
    }
    if verdict.alarm.is_none()
        && let Some(shared) = &observed.shared_file
    {
        verdict.sharing(&observed.own_files, shared);
    }
    for reading in idle_and_below(observed, verdict.alarm) {
        let Reading { part, number, planned, gives, .. } = reading;
        let share = gives / planned * 100.0;
        let culprit = Culprit::One(*part, *number);
        verdict.words.push(format!("{culprit} gives {share:.0} % of what is planned, but does not bind"));
    }
    verdict
}

impl Verdict {
    fn take(&mut self, load: &Load) {
        let full = || load.readings.iter().filter(|reading| reading.busy >= BUSY);
        // Among several full parts, one below its plan limits more than it should; those as planned may be waiting for
        // it.
        let busy = |a: &&Reading, b: &&Reading| a.busy.total_cmp(&b.busy);
        let below = full().filter(|reading| reading.gives < reading.planned * PROMISE_KEPT).max_by(busy);
        let Some(busiest) = below.or_else(|| full().max_by(busy)) else { return };
        let kind: Vec<&Reading> = load.readings.iter().filter(|reading| reading.part == busiest.part).collect();
        let mut gives: Vec<f64> = kind.iter().map(|reading| reading.gives).collect();
        gives.sort_by(f64::total_cmp);
        // The lower of two in the middle, so that one slow part of two counts as one and not as all.
        let middle = gives[gives.len() / 2];
        let lone = kind.len() > 1 && busiest.gives < middle * UNEQUAL;
        let culprit = if busiest.part == Part::LockManager {
            Culprit::Locks
        } else if lone {
            Culprit::One(busiest.part, busiest.number)
        } else {
            Culprit::All(busiest.part)
        };
        let below = busiest.gives < busiest.planned * PROMISE_KEPT;
        let (busy, share) = (busiest.busy * 100.0, busiest.gives / busiest.planned * 100.0);
        if below {
            let words = format!("{culprit}: busy {busy:.0} % of the time, and only {share:.0} % of what is planned");
            self.words.insert(0, words);
        } else {
            let bought = "and as planned: this is the limit that was bought";
            self.words.push(format!("{culprit}: busy {busy:.0} % of the time, {bought}"));
        }
        self.binds.get_or_insert(culprit);
        if below {
            (self.alarm, self.binds) = (Some(culprit), Some(culprit));
        }
    }

    /// Blames the lock protocol if one shared file is slower than separate files and no part explains it.
    fn sharing(&mut self, own: &Load, shared: &Load) {
        let kept = shared.rate / own.rate.max(1.0);
        let busy = shared.readings.iter().map(|reading| reading.busy).fold(0.0, f64::max);
        if kept < LOST_TO_SHARING && busy < BUSY {
            let words = format!(
                "the lock protocol: one shared file gets {} where own files get {}, and no part is busy more than {:.0} % meanwhile",
                format_rate(shared.rate),
                format_rate(own.rate),
                busy * 100.0
            );
            self.words.insert(0, words);
            (self.alarm, self.binds) = (Some(Culprit::Locks), Some(Culprit::Locks));
        }
    }
}

/// Returns a sentence if a cache answered: the disks moved too few bytes, or the rate exceeds that of some kind of
/// part.
fn cache(load: &Load) -> Option<String> {
    let of = |part| load.readings.iter().filter(move |reading: &&Reading| reading.part == part);
    let arrived: f64 = of(Part::Target).map(|reading| reading.moved).sum();
    if of(Part::Target).next().is_some() && arrived < load.acknowledged * PROMISE_KEPT {
        let share = arrived / load.acknowledged * 100.0;
        return Some(format!(
            "the disks received only {share:.0} % of what was acknowledged: a cache answers for them"
        ));
    }
    let kinds = [Part::ClientLink, Part::Core, Part::ServerLink, Part::Target];
    let sum = |part| of(part).next().map(|_| of(part).map(|reading| reading.gives).sum::<f64>());
    let limit = kinds.into_iter().filter_map(sum).fold(f64::INFINITY, f64::min);
    // Two measurements are compared, each with its error.
    (load.rate > limit * (1.0 + 3.0 * LIMIT_SLACK)).then(|| {
        let (rate, limit) = (format_rate(load.rate), format_rate(limit));
        format!("{rate} is more than the {limit} that the hardware gives: a cache answers")
    })
}

fn idle_and_below(observed: &Observed, alarm: Option<Culprit>) -> impl Iterator<Item = &Reading> {
    let blamed = move |reading: &Reading| match alarm {
        Some(Culprit::All(part)) => reading.part == part,
        Some(Culprit::One(part, number)) => (reading.part, reading.number) == (part, number),
        _ => false,
    };
    let below = |reading: &Reading| reading.moved > 0.0 && reading.gives < reading.planned * PROMISE_KEPT;
    observed.own_files.readings.iter().filter(move |reading| below(reading) && !blamed(reading))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(part: Part, number: usize, gives: f64, busy: f64) -> Reading {
        Reading { part, number, planned: 100.0, gives, busy, moved: gives * busy }
    }

    fn load(rate: f64, readings: Vec<Reading>) -> Observed {
        let own_files = Load { rate, acknowledged: 0.0, readings };
        Observed { own_files, ..Observed::default() }
    }

    #[test]
    fn the_busy_part_is_named_and_blamed_only_below_its_plan() {
        let readings = vec![reading(Part::Core, 0, 99.0, 0.98), reading(Part::ClientLink, 0, 50.0, 0.5)];
        let verdict = diagnose(&load(40.0, readings));
        assert_eq!((verdict.alarm, verdict.binds), (None, Some(Culprit::All(Part::Core))));
        assert!(verdict.words.iter().any(|words| words.contains("link of client 0 gives 50 %")), "{:?}", verdict.words);
        let readings = vec![reading(Part::Core, 0, 60.0, 0.98), reading(Part::ClientLink, 0, 100.0, 0.5)];
        assert_eq!(diagnose(&load(40.0, readings)).alarm, Some(Culprit::All(Part::Core)));
    }

    #[test]
    fn one_slow_part_of_many_is_told_from_all_of_them() {
        let one =
            (0..4).map(|at| reading(Part::Target, at, if at == 2 { 50.0 } else { 100.0 }, 0.5 + at as f64 * 0.01));
        let mut one: Vec<Reading> = one.collect();
        one[2].busy = 0.99;
        assert_eq!(diagnose(&load(150.0, one)).alarm, Some(Culprit::One(Part::Target, 2)));
        let all = (0..4).map(|at| reading(Part::Target, at, 50.0 + at as f64, 0.97)).collect();
        assert_eq!(diagnose(&load(150.0, all)).alarm, Some(Culprit::All(Part::Target)));
    }

    #[test]
    fn of_several_full_parts_the_one_below_its_plan_is_to_blame() {
        let mut links: Vec<_> = (0..4).map(|at| reading(Part::ServerLink, at, 100.0, 0.99)).collect();
        links[3] = reading(Part::ServerLink, 3, 60.0, 0.93);
        assert_eq!(diagnose(&load(350.0, links)).alarm, Some(Culprit::One(Part::ServerLink, 3)));
    }

    #[test]
    fn a_cache_is_named_before_anything_else() {
        let verdict = diagnose(&load(500.0, vec![reading(Part::Target, 0, 50.0, 0.99)]));
        assert_eq!(verdict.alarm, Some(Culprit::Cache));
        let mut observed = load(50.0, vec![reading(Part::Target, 0, 100.0, 0.5)]);
        observed.own_files.acknowledged = 70.0;
        assert_eq!(diagnose(&observed).alarm, Some(Culprit::Cache));
    }

    #[test]
    fn sharing_is_blamed_on_locks_only_where_no_part_explains_it() {
        let mut observed = load(90.0, vec![reading(Part::Core, 0, 100.0, 0.95)]);
        let shared =
            |busy| Some(Load { rate: 40.0, acknowledged: 0.0, readings: vec![reading(Part::Core, 0, 100.0, busy)] });
        observed.shared_file = shared(0.4);
        let verdict = diagnose(&observed);
        assert_eq!(verdict.alarm, Some(Culprit::Locks));
        assert!(verdict.words[0].starts_with("the lock protocol: "), "{:?}", verdict.words);
        observed.shared_file = shared(0.97);
        assert_eq!(diagnose(&observed).alarm, None);
    }

    #[test]
    fn nothing_measured_is_no_alarm() {
        assert_eq!(diagnose(&Observed::default()).alarm, None);
    }
}
