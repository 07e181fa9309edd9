//! Time and space that a sweep will need.

use super::{Options, multiple};
use crate::counters::{self, Counters, memory_bytes};
use crate::table::Table;
use crate::units::format_seconds;
use crate::workload::Kind;

/// Time for starting and ending one process, seconds: measured 1 to 2 ms on small machines.
const PROCESS_S: f64 = 0.002;
/// Time for removing a cell's files and reading counters, seconds.
const CELL_S: f64 = 0.1;

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub runs: u64,
    /// Time if no phase ends early and no fsync takes long, seconds.
    pub seconds: f64,
    /// Most bytes in the target at a time.
    pub bytes_max: u64,
    /// Length of a phase in seconds for which the data at the known limit exceeds the machines' memory.
    pub uncached_seconds: Option<f64>,
}

/// Computes the estimate without writing anything.
pub fn estimate(options: &Options) -> Estimate {
    let runs = options.plan();
    let phases = options.pattern.phases.len() as f64;
    let warm = options.warm_up as f64 * (phases * options.seconds + CELL_S);
    let each = runs.iter().map(|(m, n, _)| phases * options.seconds + CELL_S + (m * n) as f64 * PROCESS_S);
    let seconds = warm + each.sum::<f64>();
    let room = free_bytes(options).min(asked_bytes(options));
    let bytes_max = options.known.limit(Kind::Write).map_or(room, |limit| room.min((limit * options.seconds) as u64));
    let uncached_seconds = uncached_seconds(options);
    Estimate { runs: runs.len() as u64, seconds, bytes_max, uncached_seconds }
}

/// Returns a number of bytes that no cache holds: twice the memory of the machines with groups, assuming that of this
/// one for each.
fn uncached_bytes(options: &Options) -> f64 {
    let most = options.groups.iter().max().copied().unwrap_or(1);
    2.0 * memory_bytes() as f64 * options.nodes(most) as f64
}

/// Returns the time in seconds in which that many bytes pass at the known limit; `None` without a limit or without
/// data.
pub fn uncached_seconds(options: &Options) -> Option<f64> {
    let bytes = uncached_bytes(options);
    let limits = options.pattern.phases.iter().filter_map(|kind| options.known.limit(*kind));
    limits.filter(|_| bytes > 0.0).map(|limit| bytes / limit).reduce(f64::max)
}

/// Returns the most bytes that the largest cell may write with `--size` or `--files`, including blocks and names of
/// small files.
fn asked_bytes(options: &Options) -> u64 {
    let most = |list: &[u64]| list.iter().max().copied().unwrap_or(1);
    let pattern = &options.pattern;
    let each = match pattern.phases.iter().any(|kind| kind.is_data()) {
        true => pattern.size_max,
        false => pattern.files_max.saturating_mul(pattern.small_file_bytes()),
    };
    most(&options.groups).saturating_mul(most(&options.processes)).saturating_mul(each)
}

fn free_bytes(options: &Options) -> u64 {
    let bases = options.bases();
    let least = bases.iter().map(|base| counters::free_bytes(base).unwrap_or(0)).min();
    least.unwrap_or(0).saturating_mul(bases.len() as u64)
}

impl Estimate {
    pub fn render(&self, options: &Options) -> String {
        let mut table = Table::new(["dry run", ""]);
        let list = |counts: &[u64]| counts.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let phases = options.pattern.phases.iter().map(Kind::to_string).collect::<Vec<_>>().join(", ");
        table.row(["target".to_string(), options.target.display().to_string()]);
        table.row(["pattern".to_string(), format!("{} ({phases})", options.pattern.name)]);
        table.row(["M".to_string(), format!("{} groups", list(&options.groups))]);
        table.row(["N".to_string(), format!("{} processes a group", list(&options.processes))]);
        table.row(["runs".to_string(), format!("{} ({} a cell)", self.runs, options.repeat)]);
        table.row(["time".to_string(), format_seconds(self.seconds)]);
        table.row(["space".to_string(), format!("at most {:.3} GB at a time", self.bytes_max as f64 / 1e9)]);
        for words in self.caches(options) {
            table.row(["caches".to_string(), words]);
        }
        // The processors of other hosts are not known in advance.
        let here = if options.hosts.is_empty() { multiple::of([&Counters::now()]) } else { Vec::new() };
        if let Some(hint) = multiple::missed(options, &here) {
            table.row(["processors".to_string(), hint]);
        }
        table.render()
    }

    /// Returns sentences about the measures against caches, and the time needed to exceed them.
    fn caches(&self, options: &Options) -> Vec<String> {
        let reads = options.pattern.phases.contains(&Kind::Read);
        let dropped = if reads { "the files' pages are dropped before they are read; " } else { "" };
        let Some(seconds) = self.uncached_seconds else {
            let words = "--limit, --plan or --probe says how long a phase must be for twice the memory to pass";
            return if reads { vec![format!("{dropped}{words}")] } else { Vec::new() };
        };
        let (bytes, room) = (uncached_bytes(options), free_bytes(options) as f64);
        let mass = format!("{dropped}twice the memory, {:.1} GB, passes in {}", bytes / 1e9, format_seconds(seconds));
        let hint = if options.seconds < seconds { ": --time uncached" } else { "" };
        let mut words = vec![format!("{mass} at the limit{hint}")];
        if room < bytes {
            words.push(format!("the target has room for {:.1} GB only: phases end when that is written", room / 1e9));
        }
        words
    }
}
