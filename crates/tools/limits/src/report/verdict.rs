//! Comparison of the stages from the specification to the program, and its meaning in words.

use serde::Serialize;

use super::Source;
use crate::counters::Behind;
use crate::plan::Plan;
use crate::results::Stage;
use crate::sweep::{Sweep, analyse};
use crate::units::{format_rate, format_share};
use crate::workload::Kind;

/// Smallest loss that is worth a sentence.
const LOSS: f64 = 0.05;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Name of the stage: `plan`, `probe`, `sweep`.
    pub stage: String,
    pub what: String,
    /// Write limit or rate, bytes per second.
    pub write_bytes_per_s: Option<f64>,
    /// Ratio of the write rate to its reference.
    pub write_kept: Option<f64>,
    /// Read limit or rate, bytes per second.
    pub read_bytes_per_s: Option<f64>,
    /// Ratio of the read rate to its reference.
    pub read_kept: Option<f64>,
    /// Description of the place where the rest is lost.
    #[serde(skip)]
    between: &'static str,
    /// File system and device of the stage's directory.
    #[serde(skip)]
    behind: Option<Behind>,
}

impl Step {
    fn new(stage: &str, what: String, write: Option<f64>, read: Option<f64>) -> Step {
        let (write_bytes_per_s, read_bytes_per_s) = (write.filter(|rate| *rate > 0.0), read.filter(|rate| *rate > 0.0));
        Step {
            stage: stage.to_string(),
            what,
            write_bytes_per_s,
            write_kept: None,
            read_bytes_per_s,
            read_kept: None,
            between: "",
            behind: None,
        }
    }
}

pub fn steps(sources: &[Source]) -> Vec<Step> {
    let mut steps = Vec::new();
    for plan in plans(sources) {
        let (write, read) = (plan.write().minimum_bytes_per_s, plan.read().minimum_bytes_per_s);
        steps.push(Step::new("plan", plan.write().binding.words().to_string(), Some(write), Some(read)));
    }
    for source in sources {
        if let Stage::Probe(probe) = &source.results.stage {
            for medium in &probe.media {
                let what = medium.directory.display().to_string();
                let step = Step::new("probe", what, Some(medium.write_bytes_per_s), Some(medium.read_bytes_per_s));
                steps.push(Step { behind: Some(medium.behind.clone()), ..step });
            }
        }
    }
    for sweep in sweeps(sources) {
        let found = analyse(sweep);
        let best = |kind| found.iter().find(|analysis| analysis.kind == kind).map(|analysis| analysis.best.rate);
        let what = format!("{} in {}", sweep.options.pattern.name, sweep.options.target.display());
        let step = Step::new("sweep", what, best(Kind::Write), best(Kind::Read));
        steps.push(Step { behind: Some(sweep.behind.clone()), ..step });
    }
    for number in 1..steps.len() {
        let (before, rest) = steps.split_at_mut(number);
        let step = &mut rest[0];
        let Some(reference) = reference(before, step) else { continue };
        step.between =
            if reference.stage == "plan" { "between data sheet and programs" } else { "between device and programs" };
        let kept = |now: Option<f64>, before: Option<f64>| now.zip(before).map(|(now, before)| now / before);
        step.write_kept = kept(step.write_bytes_per_s, reference.write_bytes_per_s);
        step.read_kept = kept(step.read_bytes_per_s, reference.read_bytes_per_s);
    }
    steps.retain(|step| step.write_bytes_per_s.is_some() || step.read_bytes_per_s.is_some());
    steps
}

/// Returns the reference of a stage. For a sweep this is the probe of its file system, otherwise the plan. A single
/// medium is no cluster, so a probe is only compared with its documented rates.
fn reference<'a>(before: &'a [Step], step: &Step) -> Option<&'a Step> {
    if step.stage != "sweep" {
        return None;
    }
    let probed = before.iter().find(|earlier| earlier.stage == "probe" && earlier.behind == step.behind);
    probed.or_else(|| before.iter().find(|earlier| earlier.stage == "plan"))
}

/// Returns the verdict, most important sentence first.
pub fn words(sources: &[Source], steps: &[Step]) -> Vec<String> {
    let mut words: Vec<String> = in_one(sources, steps).into_iter().collect();
    words.extend(plans(sources).map(by_specification));
    words.extend(steps.iter().flat_map(losses));
    words.extend(between(sources));
    for source in sources {
        match &source.results.stage {
            Stage::Plan(_) => {}
            Stage::Probe(probe) => {
                words.extend(probe.promises.iter().filter_map(|promise| promise.finding.clone()));
                words.extend(probe.missing().map(str::to_string));
                words.extend(unfinished("probe", &probe.left));
            }
            Stage::Sweep(sweep) => words.extend(sweep_words(sweep)),
            Stage::Watch(watch) => {
                words.push(format!(
                    "{}: {}",
                    watch.command.first().map_or("", String::as_str),
                    watch.findings.join("; ")
                ));
            }
            Stage::Factors(factors) => {
                let largest = factors.factors.iter().filter(|factor| factor.words.starts_with("matters"));
                let largest = largest.max_by(|a, b| a.effect.unwrap_or(0.0).total_cmp(&b.effect.unwrap_or(0.0)));
                words.extend(largest.map(|factor| {
                    format!("of the software factors, {} matters most: {}", factor.name, &factor.words[9..])
                }));
                words.extend(unfinished("factors", &factors.left));
            }
        }
    }
    if words.is_empty() {
        words.push("nothing to judge yet: no stage was complete".to_string());
    }
    words
}

/// Returns a sentence about the unfinished parts of a stage, if there are any.
fn unfinished(stage: &str, left: &[String]) -> Option<String> {
    (!left.is_empty()).then(|| format!("{stage}: not finished; not measured: {}", left.join("; ")))
}

fn plans(sources: &[Source]) -> impl Iterator<Item = &Plan> {
    sources.iter().filter_map(|source| match &source.results.stage {
        Stage::Plan(plan) => Some(plan),
        _ => None,
    })
}

fn sweeps(sources: &[Source]) -> impl Iterator<Item = &Sweep> {
    sources.iter().filter_map(|source| match &source.results.stage {
        Stage::Sweep(sweep) => Some(sweep),
        _ => None,
    })
}

/// Returns one sentence for the whole: the limit that binds, the largest loss, the saturation of one client. `None` if
/// fewer than two of these are known.
fn in_one(sources: &[Source], steps: &[Step]) -> Option<String> {
    let mut clauses: Vec<String> = plans(sources).take(1).map(binds).collect();
    let kept = |step: &Step| step.write_kept.into_iter().chain(step.read_kept).fold(f64::INFINITY, f64::min);
    let worst = steps.iter().filter(|step| kept(step) < 1.0 - LOSS).min_by(|a, b| kept(a).total_cmp(&kept(b)));
    clauses.extend(worst.map(|step| format!("{} is lost {}", format_share(1.0 - kept(step)), step.between)));
    let ends = sweeps(sources).flat_map(analyse).find_map(|analysis| analysis.saturation);
    clauses.extend(ends.map(|end| {
        let who = if end.is_software() { "the client's software" } else { "one client" };
        format!("{who} saturates at {} processes", end.processes)
    }));
    (clauses.len() > 1).then(|| clauses.join("; "))
}

fn binds(plan: &Plan) -> String {
    let binding = plan.write().binding.words();
    format!("{binding} {}", if binding.ends_with("links") { "bind" } else { "binds" })
}

fn by_specification(plan: &Plan) -> String {
    format!("by specification {} writers, at {}", binds(plan), format_rate(plan.write().minimum_bytes_per_s))
}

/// Compares sweeps of one pattern in several places with the first, for example a burst buffer and an accelerated
/// directory.
fn between(sources: &[Source]) -> Vec<String> {
    let all: Vec<&Sweep> = sweeps(sources).collect();
    let mut words = Vec::new();
    for (number, sweep) in all.iter().enumerate() {
        let same = |first: &&&Sweep| {
            first.options.pattern == sweep.options.pattern && first.options.target != sweep.options.target
        };
        let Some(first) = all[..number].iter().find(same) else { continue };
        let before = analyse(first);
        for found in analyse(sweep) {
            let Some(other) = before.iter().find(|other| other.kind == found.kind) else { continue };
            let ratio = found.best.rate / other.best.rate;
            let (here, there) = (sweep.options.target.display(), first.options.target.display());
            let name = format!("{} {}", sweep.options.pattern.name, found.kind);
            words.push(if ratio < 1.0 {
                format!("{name}: {} is lost between {there} and {here}", format_share(1.0 - ratio))
            } else {
                format!("{name}: {here} gives {ratio:.2} times what {there} does")
            });
        }
    }
    words
}

fn losses(step: &Step) -> Vec<String> {
    let told = |direction: &str, kept: Option<f64>| {
        let kept = kept?;
        let (stage, what) = (&step.stage, &step.what);
        if kept > 1.0 + LOSS {
            let above = format_share(kept - 1.0);
            return Some(format!(
                "{direction} in {stage} ({what}) is {above} above the stage before: a cache, or that stage measured less than there is"
            ));
        }
        (kept < 1.0 - LOSS)
            .then(|| format!("{} is lost {} ({direction}, {what})", format_share(1.0 - kept), step.between))
    };
    [told("writing", step.write_kept), told("reading", step.read_kept)].into_iter().flatten().collect()
}

fn sweep_words(sweep: &Sweep) -> Vec<String> {
    let mut words = Vec::new();
    let name = &sweep.options.pattern.name;
    for analysis in analyse(sweep) {
        // The first sentence states the best; of the others, only those that state a cause are used.
        let causes = [
            "one node saturates",
            "slow in",
            "too many",
            "do not count",
            "knee at",
            "eta",
            "flowed back",
            "I/O node",
            "processors were",
            "showed another",
        ];
        let told = analysis.words.iter().enumerate();
        let told = told.filter(|(number, words)| *number == 0 || causes.iter().any(|cause| words.contains(cause)));
        words.extend(told.map(|(_, words)| format!("{name} {}: {words}", analysis.kind)));
    }
    if !sweep.holes.is_empty() {
        words.push(format!("{name}: {} runs are missing, the first because {}", sweep.holes.len(), sweep.holes[0].why));
    } else if !sweep.complete {
        words.push(format!("{name}: the sweep was not finished"));
    }
    words
}
