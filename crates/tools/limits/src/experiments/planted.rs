//! Bottlenecks planted on purpose: many simulated, some really mounted; each must be named, and no control blamed.

use std::fs;
use std::time::Duration;

use slowfs::model::{Spec, Use};

use super::bed::{Bed, uses};
use super::book::{Mounted, Planted};
use super::{Row, Run};
use crate::diagnosis::{Load, Observed, PLANTS, Plant, Story, diagnose, reading};
use crate::failure::Failure;
use crate::workload::{Kind, Layout, Pattern, Preset, Sync, Task, now_ns, together};

/// Writers of a mounted load.
const WRITERS: u64 = 8;
/// Bytes of the shared file, holes at first: more than is written in the time.
const SHARED: u64 = 16 << 30;

pub fn run(run: &Run<'_>, wanted: &Planted, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let mut rows = simulated(run, wanted, tell);
    let cases = if run.quick { &wanted.mounted[..wanted.mounted.len().min(2)] } else { &wanted.mounted[..] };
    for case in cases {
        rows.push(mounted(run, wanted, case, tell)?);
    }
    Ok(rows)
}

fn simulated(run: &Run<'_>, wanted: &Planted, tell: &mut dyn FnMut(&str)) -> Vec<Row> {
    let (mut right, mut alarms) = (0u64, 0u64);
    let stories = if run.quick { wanted.stories.min(33) } else { wanted.stories };
    let mut by_plant = [(0u64, 0u64); PLANTS.len()];
    for seed in 0..stories {
        let at = seed as usize % PLANTS.len();
        let (plant, name) = PLANTS[at];
        let story = Story::new(plant, seed);
        let outcome = story.run();
        by_plant[at] = (by_plant[at].0 + u64::from(outcome.right), by_plant[at].1 + 1);
        right += u64::from(outcome.right);
        alarms += u64::from(outcome.false_alarm);
        if !outcome.right {
            let words = outcome.verdict.words.join("; ");
            tell(&format!("story {seed}, {name} x {:.2}, was judged: {words}", story.strength));
        }
    }
    let controls = by_plant[PLANTS.iter().position(|(plant, _)| *plant == Plant::Nothing).unwrap_or(0)].1;
    let what = PLANTS.iter().zip(by_plant).map(|((_, name), (right, all))| format!("{name} {right}/{all}"));
    let named = Row::new(run, format!("{stories} simulated, named rightly"), right as f64 / stories as f64, "x")
        .judged(Some(wanted.named), None, what.collect::<Vec<_>>().join(", "));
    let mut quiet = Row::new(run, format!("{controls} controls, false alarms"), alarms as f64, "");
    quiet.bar_most = Some(0.0);
    vec![named, quiet]
}

/// One that is mounted: real writers, and the mount's own counters.
fn mounted(run: &Run<'_>, wanted: &Planted, case: &Mounted, tell: &mut dyn FnMut(&str)) -> Result<Row, Failure> {
    let options: Vec<String> = wanted.store.iter().chain(&case.options).cloned().collect();
    let mut bed = Bed::new()?;
    let slow = bed.slow("store", &options)?;
    let planned = slowfs::planned(&wanted.store).map_err(Failure::input)?;
    let mut observed = Observed::default();
    for (layout, name) in [(Layout::FilePerProcess, "own"), (Layout::Strided, "shared")] {
        let pattern =
            Pattern { transfer: 128 << 10, layout, sync: Sync::Close, direct: true, ..Pattern::preset(Preset::Stream) };
        let directory = slow.shown.join(name);
        fs::create_dir(&directory).map_err(|error| Failure::unavailable(error.to_string()))?;
        if layout == Layout::Strided {
            // Of full size from the start: the kernel lets writes that grow a file pass one by one.
            let grown = fs::File::create(directory.join("data.shared")).and_then(|file| file.set_len(SHARED));
            grown.map_err(|error| Failure::unavailable(error.to_string()))?;
        }
        let task = Task { pattern, directory: directory.clone(), processes: WRITERS, ranks: WRITERS, seed: 1 };
        let (before, began) = (uses(&slow.shown).unwrap_or_default(), now_ns());
        let time = Duration::from_secs(if run.quick { 2 } else { 4 });
        let rates = together(&task, &[Kind::Write], time).map_err(|error| Failure::unavailable(error.to_string()))?;
        let seconds = (now_ns() - began) as f64 / 1e9;
        let after = uses(&slow.shown).unwrap_or_default();
        let load = load(&before, &after, &planned, rates[0].0, seconds);
        match layout {
            Layout::FilePerProcess => observed.own_files = load,
            _ => observed.shared_file = Some(load),
        }
        let _ = fs::remove_dir_all(directory);
    }
    let verdict = diagnose(&observed);
    let named = verdict.alarm.map(|culprit| culprit.to_string());
    tell(&format!("mounted with {}: {}", case.options.join(" "), verdict.words.join("; ")));
    let right = named == case.culprit;
    let case = format!("mounted, {}", case.culprit.as_deref().unwrap_or("as planned"));
    let said = named.unwrap_or("no alarm".to_string());
    Ok(Row::new(run, case, f64::from(u8::from(right)), "right").judged(Some(1.0), None, format!("named: {said}")))
}

/// Readings from the growth of a mount's counters.
fn load(before: &[Use], after: &[Use], planned: &Spec, rate: f64, seconds: f64) -> Load {
    let readings = after.iter().filter_map(|now| reading(&now.since(before), planned, seconds)).collect();
    Load { rate, acknowledged: rate * seconds, readings }
}
