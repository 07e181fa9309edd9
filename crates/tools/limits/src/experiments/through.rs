//! An M x N sweep of the bed itself, and of that bed through Forebay: the share of the bed's limit that is reached.

use std::fs;
use std::path::PathBuf;

use super::bed::{Bed, Slow};
use super::book::Through;
use super::{Row, Run};
use crate::bounds::LIMIT_SLACK;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::sweep::{Analysis, Known, Options, Sweep, analyse};
use crate::units::format_rate;
use crate::workload::{Kind, Launcher, Pattern, Preset, Sync};

pub fn run(run: &Run<'_>, wanted: &Through, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let mut bed = Bed::new()?;
    let store = bed.slow("store", &wanted.store)?;
    let buffer = bed.slow("buffer", &wanted.burst_buffer)?;
    let limits = swept(run, wanted, buffer.shown.clone())?;
    for found in &limits {
        tell(&format!("the burst buffer itself, {}: {}", found.kind, at_best(found)));
    }
    let reached = accelerated(run, &bed, wanted, (&store, &buffer))?;
    let mut rows = Vec::new();
    for kind in [Kind::Write, Kind::Read] {
        let of = |found: &[Analysis]| found.iter().find(|found| found.kind == kind).cloned();
        let (Some(limit), Some(fast)) = (of(&limits), of(&reached)) else {
            return Err(Failure::unavailable(format!("no cell counts of {kind}")));
        };
        rows.extend(judge(run, wanted, &limit, &fast));
    }
    Ok(rows)
}

fn at_best(found: &Analysis) -> String {
    let best = &found.best;
    format!("{} with M={} N={}", format_rate(best.rate), best.groups, best.processes)
}

/// Runs the sweep in a directory of the store with Forebay over it; nothing is staged out during the measurement.
fn accelerated(
    run: &Run<'_>,
    bed: &Bed,
    wanted: &Through,
    (store, buffer): (&Slow, &Slow),
) -> Result<Vec<Analysis>, Failure> {
    let (directory, kept) = (store.shown.join("fast"), buffer.shown.join("replicas"));
    for directory in [&directory, &kept] {
        fs::create_dir(directory).map_err(Failure::unavailable)?;
    }
    bed.accelerate(&directory, &kept)?;
    let found = swept(run, wanted, directory.clone());
    bed.drain(&directory)?;
    found
}

fn swept(run: &Run<'_>, wanted: &Through, target: PathBuf) -> Result<Vec<Analysis>, Failure> {
    // A short run has one cell: all nodes with the fewest processes, so that each process completes several transfers
    // in a second.
    let only = |one: Option<&u64>| one.copied().into_iter().collect::<Vec<u64>>();
    let (groups, processes) = match run.quick {
        true => (only(wanted.groups.iter().max()), only(wanted.processes.iter().min())),
        false => (wanted.groups.clone(), wanted.processes.clone()),
    };
    let mut sweep = Sweep::new(Options {
        target,
        across: Vec::new(),
        groups,
        processes,
        pattern: Pattern {
            phases: vec![Kind::Write, Kind::Read],
            transfer: wanted.transfer,
            size_max: wanted.size,
            // Direct I/O, so that no cache of this machine answers on any side.
            direct: true,
            sync: Sync::Close,
            ..Pattern::preset(Preset::Stream)
        },
        seconds: if run.quick { wanted.seconds.min(1.0) } else { wanted.seconds },
        repeat: if run.quick { 1 } else { wanted.repeat },
        warm_up: 0,
        seed: 1,
        known: Known::default(),
        hosts: Vec::new(),
        io_nodes: Vec::new(),
    });
    if let Some(fault) = sweep.options.fault() {
        return Err(Failure::input(fault));
    }
    let interrupt = Interrupt::default();
    sweep.run(&Launcher::own()?, &interrupt, &mut |_| Ok(()), &mut |_, _, _| {})?;
    if let Some(hole) = sweep.holes.first() {
        let (groups, processes) = (hole.groups, hole.processes);
        return Err(Failure::unavailable(format!("M={groups} N={processes} is missing: {}", hole.why)));
    }
    Ok(analyse(&sweep))
}

fn judge(run: &Run<'_>, wanted: &Through, limit: &Analysis, fast: &Analysis) -> Vec<Row> {
    let (kind, most, best) = (fast.kind, limit.best.rate, fast.best.rate);
    let knee = fast.knee.map_or("no knee".to_string(), |knee| format!("knee at {knee} processes"));
    let (m, n) = fast.near_top;
    let what = format!("{}, of the bed's {}; {knee}; M={m} N={n} within 5 %", at_best(fast), at_best(limit));
    let mut eta = Row::new(run, format!("{kind}, eta"), best / most, "x").judged(Some(wanted.eta), wanted.paper, what);
    if best > most * (1.0 + 3.0 * LIMIT_SLACK) {
        let (best, most) = (format_rate(best), format_rate(most));
        eta.rejected =
            Some(format!("{best} is above the {most} that the bed gave: a cache, or a limit measured too low"));
    }
    let mut rows = vec![eta];
    if let Some(measured) = fast.parallelism_measured {
        let what = "the best over one process alone".to_string();
        rows.push(Row::new(run, format!("{kind}, P_meas"), measured, "").judged(None, None, what));
    }
    rows
}
