//! A sweep as terminal text: the paper's table, a heat map, and sentences.

use std::fmt::Write;

use super::analysis::{Cell, analyse, cells};
use super::{Analysis, Run, Sweep, distinct, multiple};
use crate::bounds::{GENERATOR_NS_MAX, GENERATOR_TRANSFER};
use crate::table::Table;
use crate::units::{format_nanoseconds, format_share};
use crate::workload::Kind;

const SHADES: [char; 5] = ['.', '░', '▒', '▓', '█'];

pub fn render(sweep: &Sweep) -> String {
    let mut text = String::new();
    let options = &sweep.options;
    let below = sweep.behind.device.as_deref().map_or(String::new(), |device| format!(" on {device}"));
    let (name, target) = (&options.pattern.name, options.target.display());
    let _ = writeln!(text, "{name} in {target} ({}{below})", sweep.behind.file_system);
    // A table of another tool does not contain this cost.
    if sweep.generator_ns > 0.0 {
        let (generator, dear) = (sweep.generator_ns, too_dear(sweep.generator_ns, options.pattern.transfer));
        let _ = writeln!(text, "the load generator itself costs {} an operation{dear}", format_nanoseconds(generator));
    }
    text.push('\n');
    let analyses = analyse(sweep);
    for kind in sweep.kinds() {
        let table = cells(&sweep.runs, kind);
        let unit = if kind.is_data() { "MB/s" } else { "operations/s" };
        let _ = writeln!(text, "{kind}, {unit}");
        text.push_str(&rates(&table, kind));
        let _ = write!(text, "\n{}", heat_map(&table));
        match analyses.iter().find(|analysis| analysis.kind == kind) {
            Some(analysis) => text.push_str(&words(analysis, sweep)),
            None => text.push_str(&nothing(&table)),
        }
        text.push('\n');
    }
    if let Some(hint) = multiple::hint(sweep) {
        let _ = writeln!(text, "note: {hint}");
    }
    for missing in &sweep.missing {
        let _ = writeln!(text, "note: {missing}");
    }
    for hole in &sweep.holes {
        let _ = writeln!(text, "missing: M={} N={}: {}", hole.groups, hole.processes, hole.why);
    }
    if !sweep.complete {
        let _ = writeln!(text, "This sweep is not complete: the same command with the same -o file goes on.");
    }
    text
}

/// Returns a warning if the generator is slow. Every page of a transfer is stamped, so transfers above the largest
/// preset may cost proportionally more.
fn too_dear(generator_ns: f64, transfer: u64) -> &'static str {
    let large = transfer as f64 / GENERATOR_TRANSFER as f64;
    if generator_ns > GENERATOR_NS_MAX * large.max(1.0) {
        ", more than its 2 us: this machine is busy or slow"
    } else {
        ""
    }
}

fn rates(table: &[Cell], kind: Kind) -> String {
    let processes = distinct(table.iter().map(|cell| cell.processes));
    let heading = std::iter::once("M \\ N".to_string()).chain(processes.iter().map(u64::to_string));
    let mut shown = Table::new(heading);
    for groups in distinct(table.iter().map(|cell| cell.groups)) {
        let row = processes.iter().map(|n| {
            let found = table.iter().find(|cell| cell.groups == groups && cell.processes == *n);
            found.map_or(String::new(), |cell| {
                let value = if kind.is_data() { cell.rate / 1e6 } else { cell.rate };
                let mark = if cell.rejected.is_some() { "!" } else { "" };
                if value < 10_000.0 { format!("{value:.1}{mark}") } else { format!("{value:.0}{mark}") }
            })
        });
        shown.row(std::iter::once(groups.to_string()).chain(row));
    }
    let mut text = shown.render();
    if table.iter().any(|cell| cell.rejected.is_some()) {
        text.push_str("! does not count\n");
    }
    text
}

/// Returns the heat map: a shade for each cell, relative to the best that counts.
pub fn heat_map(table: &[Cell]) -> String {
    let best = table.iter().filter(|cell| cell.rejected.is_none()).map(|cell| cell.rate).fold(0.0, f64::max);
    let processes = distinct(table.iter().map(|cell| cell.processes));
    if table.len() < 2 {
        return String::new();
    }
    let mut text = String::new();
    for groups in distinct(table.iter().map(|cell| cell.groups)) {
        let _ = write!(text, "{groups:>5} ");
        for n in &processes {
            let found = table.iter().find(|cell| cell.groups == groups && cell.processes == *n);
            let shade = match found {
                Some(cell) if cell.rejected.is_some() => '!',
                Some(cell) if best > 0.0 => SHADES[((cell.rate / best * 5.0) as usize).min(4)],
                _ => ' ',
            };
            let _ = write!(text, "{shade}{shade}{shade} ");
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    let _ = writeln!(text, "      each shade is a fifth of the best; M downwards, N to the right\n");
    text
}

fn words(analysis: &Analysis, sweep: &Sweep) -> String {
    let mut text = String::new();
    for words in &analysis.words {
        let _ = writeln!(text, "  {words}");
    }
    let best = &analysis.best;
    let runs = sweep.runs.iter().filter(|run| run.kind == analysis.kind);
    let is_best = |run: &&Run| (run.groups, run.processes) == (best.groups, best.processes) && run.latency_ns.2 > 0;
    if let Some(run) = runs.clone().find(is_best) {
        let (middle, most, max) = run.latency_ns;
        let [middle, most, max] = [middle, most, max].map(|ns| format_nanoseconds(ns as f64));
        let cpu = format_share(run.cpu_share);
        let _ =
            writeln!(text, "  there an operation takes {middle} (99 %: {most}, longest {max}); processors {cpu} busy");
        let each = run.seconds * 1e9 / (run.operations.max(1) as f64 / (run.groups * run.processes) as f64);
        if sweep.generator_ns > each * 0.05 {
            let share = format_share(sweep.generator_ns / each);
            let _ =
                writeln!(text, "  the load generator took {share} of that time: the storage may be faster than shown");
        }
    }
    if runs.clone().any(|run| run.exhausted) && analysis.kind == Kind::Write {
        let _ = writeln!(text, "  some processes filled their share of the target before the time was over");
    }
    text
}

fn nothing(table: &[Cell]) -> String {
    let reason = table.iter().find_map(|cell| cell.rejected.as_deref()).unwrap_or("no run was finished");
    format!("  no cell counts: {reason}\n")
}
