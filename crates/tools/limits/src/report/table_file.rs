//! Table of another tool's results: CSV with the columns M, N and MB/s (or MiB/s, GB/s, GiB/s), one line per run.

use std::fs;
use std::path::Path;

use crate::counters::Behind;
use crate::failure::Failure;
use crate::sweep::{Known, Options, Run, Sweep, distinct};
use crate::units::Rate;
use crate::workload::{Pattern, Preset};

/// Reads the table as a sweep of writes; lines that begin with `#` are skipped. Errors: the line and the problem.
pub fn read(path: &Path, known: Known) -> Result<Sweep, Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| Failure::input(format!("cannot read {}: {error}", path.display())))?;
    let wrong = |line: usize, what: &str| Failure::input(format!("{}:{}: {what}", path.display(), line + 1));
    let lines = text.lines().enumerate().map(|(number, line)| (number, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (number, heading) = lines.next().ok_or_else(|| wrong(0, "is empty; the heading is M,N,MB/s"))?;
    let columns: Vec<&str> = heading.split(',').map(str::trim).collect();
    let ["M", "N", unit] = columns[..] else { return Err(wrong(number, "the heading must be M,N,MB/s")) };
    Rate::parse(&format!("1 {unit}")).map_err(|error| wrong(number, &error))?;
    let mut runs: Vec<Run> = Vec::new();
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [groups, processes, rate] = cells[..] else { return Err(wrong(number, "a line has three values")) };
        let count = |text: &str| text.parse::<u64>().ok().filter(|count| (1..=1 << 20).contains(count));
        let (Some(groups), Some(processes)) = (count(groups), count(processes)) else {
            return Err(wrong(number, "M and N are whole numbers from 1 on"));
        };
        let rate = Rate::parse(&format!("{rate} {unit}")).map_err(|error| wrong(number, &error))?.bytes_per_s();
        let same = |run: &&Run| (run.groups, run.processes) == (groups, processes);
        let repetition = runs.iter().filter(same).count() as u64;
        runs.push(Run { groups, processes, repetition, rate, ..Run::default() });
    }
    if runs.is_empty() {
        return Err(wrong(number, "holds no line of results"));
    }
    Ok(sweep(path, runs, known))
}

fn sweep(path: &Path, runs: Vec<Run>, known: Known) -> Sweep {
    let repeat = runs.iter().map(|run| run.repetition + 1).max().unwrap_or(1);
    let options = Options {
        target: path.to_path_buf(),
        across: Vec::new(),
        groups: distinct(runs.iter().map(|run| run.groups)),
        processes: distinct(runs.iter().map(|run| run.processes)),
        pattern: Pattern { name: "table".to_string(), ..Pattern::preset(Preset::Stream) },
        seconds: 0.0,
        repeat,
        warm_up: 0,
        seed: 0,
        known,
        hosts: Vec::new(),
        io_nodes: Vec::new(),
    };
    let behind = Behind { file_system: "as reported".to_string(), ..Behind::default() };
    Sweep { behind, missing: Vec::new(), complete: true, runs, ..Sweep::new(options) }
}
