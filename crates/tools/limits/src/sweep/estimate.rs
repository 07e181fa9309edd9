//! What a sweep will take, before it is started.

use std::path::Path;

use rustix::fs::statvfs;

use super::{Options, multiple};
use crate::bounds::FREE_SHARE;
use crate::counters::{Counters, memory_bytes};
use crate::table::Table;
use crate::units::{format_rate, format_seconds};
use crate::workload::Kind;

/// Starting and ending one process, seconds: measured 1 to 2 ms on small machines.
const PROCESS_S: f64 = 0.002;
/// Removing a cell's files and asking for counters, seconds.
const CELL_S: f64 = 0.1;

/// What it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Runs of cells.
    pub runs: u64,
    /// Time, if no phase ends early and no fsync waits long, seconds.
    pub seconds: f64,
    /// Most bytes in the target at one time.
    pub bytes_max: u64,
    /// How long a read phase must be so that what it reads cannot all have been in memory, at the known limit; seconds.
    pub uncached_seconds: Option<f64>,
}

/// Computes it; nothing is written.
pub fn estimate(options: &Options) -> Estimate {
    let runs = options.plan();
    let phases = options.pattern.phases.len() as f64;
    let warm = options.warm_up as f64 * (phases * options.seconds + CELL_S);
    let each = runs.iter().map(|(m, n, _)| phases * options.seconds + CELL_S + (m * n) as f64 * PROCESS_S);
    let seconds = warm + each.sum::<f64>();
    let room = free_bytes(&options.target);
    let bytes_max = options.known.limit(Kind::Write).map_or(room, |limit| room.min((limit * options.seconds) as u64));
    let memory = memory_bytes() as f64;
    let uncached_seconds = options.known.limit(Kind::Read).filter(|_| memory > 0.0).map(|limit| 2.0 * memory / limit);
    Estimate { runs: runs.len() as u64, seconds, bytes_max, uncached_seconds }
}

fn free_bytes(target: &Path) -> u64 {
    statvfs(target).map_or(0, |space| (space.f_bavail.saturating_mul(space.f_frsize) as f64 * FREE_SHARE) as u64)
}

impl Estimate {
    /// In words, for `--dry-run`.
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
        table.row(["space".to_string(), format!("at most {:.1} GB at a time", self.bytes_max as f64 / 1e9)]);
        if let (Some(seconds), true) = (self.uncached_seconds, options.pattern.phases.contains(&Kind::Read)) {
            let limit = options.known.limit(Kind::Read).map_or(String::new(), format_rate);
            let words = format!("from {} a phase reads twice this memory at {limit}", format_seconds(seconds));
            table.row(["caches".to_string(), format!("{words}; shorter ones drop the files' pages first")]);
        } else if options.pattern.phases.contains(&Kind::Read) {
            let words = "--limit, --plan or --probe says how long a phase must be to read twice this memory";
            table.row(["caches".to_string(), format!("the files' pages are dropped first; {words}")]);
        }
        // What other hosts have is not known before they are asked.
        let here = if options.hosts.is_empty() { multiple::of([&Counters::now()]) } else { Vec::new() };
        if let Some(hint) = multiple::missed(options, &here) {
            table.row(["processors".to_string(), hint]);
        }
        table.render()
    }
}
