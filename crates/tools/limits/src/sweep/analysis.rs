//! Analysis of a table of rates: maximum, knee, smallest cell near the maximum, efficiency, parallelism, imbalance.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::statistics::{median, spread};
use super::{Known, Run, Sweep};
use super::{best, traffic};
use crate::bounds::{KNEE_GAIN, NEAR_TOP, SLOW_GROUP};
use crate::units::{format_operations, format_rate, format_share};
use crate::workload::Kind;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// M.
    pub groups: u64,
    /// N.
    pub processes: u64,
    /// Median rate of the runs that count; of all runs if none counts.
    pub rate: f64,
    /// Half the 95 % confidence interval, as a share of the mean; none with fewer than two runs.
    pub spread: Option<f64>,
    /// Reason of the first run, if no run counts.
    pub rejected: Option<String>,
    pub group_rates: Vec<f64>,
    /// Groups that were slow in each of at least three runs; fewer could be chance.
    pub slow_groups: Vec<usize>,
}

impl Cell {
    fn total(&self) -> u64 {
        self.groups * self.processes
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Analysis {
    pub kind: Kind,
    /// Cell with the highest rate among those that count.
    pub best: Cell,
    /// Number of processes after which doubling gains less than a quarter; none if the largest cell still gains.
    pub knee: Option<u64>,
    /// Cell (M, N) within 5 % of the best with the fewest processes, then the fewest nodes.
    pub near_top: (u64, u64),
    /// Formula 5: best rate divided by the limit.
    pub eta: Option<f64>,
    /// Formula 6 for the best cell's N: limit divided by one process's share of its client's link.
    pub parallelism: Option<f64>,
    /// Best rate divided by that of one process alone; none if not measured.
    pub parallelism_measured: Option<f64>,
    /// Saturation of one node while several together are faster; none if not observed.
    #[serde(default)]
    pub saturation: Option<Saturation>,
    /// Difference between the fastest and the slowest group of the best cell, as a share of their mean.
    pub imbalance: f64,
    pub words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// Number of processes from which the rate no longer grows.
    pub processes: u64,
    /// Rate then, bytes per second.
    pub bytes_per_s: f64,
    pub link_share: Option<f64>,
}

impl Saturation {
    /// Returns whether the client's software binds, because its link is not full.
    pub fn is_software(&self) -> bool {
        self.link_share.is_some_and(|share| share < LINK_FULL)
    }
}

const LINK_FULL: f64 = 0.8;

/// Returns the cells of a phase, with rising M and N.
pub fn cells(runs: &[Run], kind: Kind) -> Vec<Cell> {
    let mut table: BTreeMap<(u64, u64), Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.kind == kind) {
        table.entry((run.groups, run.processes)).or_default().push(run);
    }
    table.into_iter().map(|((groups, processes), runs)| cell(groups, processes, &runs)).collect()
}

fn cell(groups: u64, processes: u64, runs: &[&Run]) -> Cell {
    let counting: Vec<&Run> = runs.iter().copied().filter(|run| run.rejected.is_none()).collect();
    let rejected = if counting.is_empty() { runs[0].rejected.clone() } else { None };
    let used = if counting.is_empty() { runs } else { &counting };
    let rates: Vec<f64> = used.iter().map(|run| run.rate).collect();
    let group =
        |number: usize| median(&used.iter().filter_map(|r| r.group_rates.get(number).copied()).collect::<Vec<_>>());
    // A table of another tool has no rates of groups.
    let told = used.iter().any(|run| !run.group_rates.is_empty());
    let group_rates = (0..groups as usize).filter(|_| told).map(group).collect();
    let slow_groups = if used.len() < 3 { Vec::new() } else { always_slow(used) };
    Cell { groups, processes, rate: median(&rates), spread: spread(&rates), rejected, group_rates, slow_groups }
}

fn always_slow(runs: &[&Run]) -> Vec<usize> {
    let slow = |run: &Run, group: usize| {
        run.group_rates.get(group).is_some_and(|rate| *rate < median(&run.group_rates) * (1.0 - SLOW_GROUP))
    };
    (0..runs[0].group_rates.len()).filter(|group| runs.iter().all(|run| slow(run, *group))).collect()
}

/// Analyses every phase with a cell that counts.
pub fn analyse(sweep: &Sweep) -> Vec<Analysis> {
    let found = sweep.kinds().into_iter().filter_map(|kind| of(kind, &cells(&sweep.runs, kind), &sweep.options.known));
    let with_traffic = found.map(|mut found| {
        let cell = (found.best.groups, found.best.processes);
        found.words.extend(best::words(sweep, found.kind, cell));
        found.words.extend(traffic::words(sweep, found.kind, cell));
        found
    });
    with_traffic.collect()
}

/// Analyses one phase's table; `None` if no cell counts.
pub fn of(kind: Kind, table: &[Cell], known: &Known) -> Option<Analysis> {
    let counting: Vec<&Cell> = table.iter().filter(|cell| cell.rejected.is_none() && cell.rate > 0.0).collect();
    let best = counting.iter().copied().max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let near = counting.iter().copied().filter(|cell| cell.rate >= best.rate * (1.0 - NEAR_TOP));
    let near = near.min_by_key(|cell| (cell.total(), cell.groups))?;
    let one = counting.iter().find(|cell| cell.total() == 1).map(|cell| cell.rate);
    let limit = known.limit(kind);
    let share = known.client_bytes_per_s.map(|link| link / best.processes as f64);
    let rates = &best.group_rates;
    let (low, high) = rates.iter().fold((f64::INFINITY, 0.0f64), |(l, h), rate| (l.min(*rate), h.max(*rate)));
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let mut analysis = Analysis {
        kind,
        best: best.clone(),
        knee: knee(&counting),
        near_top: (near.groups, near.processes),
        eta: limit.map(|limit| best.rate / limit),
        parallelism: limit.zip(share).map(|(limit, share)| limit / share),
        parallelism_measured: one.map(|one| best.rate / one),
        saturation: saturated(kind, &counting, known),
        imbalance: if mean > 0.0 { (high - low) / mean } else { 0.0 },
        words: Vec::new(),
    };
    analysis.words = words(&analysis, near, &counting, table, known);
    Some(analysis)
}

/// Returns the best rate for each total number of processes.
fn by_processes(cells: &[&Cell]) -> BTreeMap<u64, f64> {
    let mut best = BTreeMap::new();
    for cell in cells {
        let rate: &mut f64 = best.entry(cell.total()).or_insert(0.0);
        *rate = rate.max(cell.rate);
    }
    best
}

/// Returns the knee: the first number of processes from which more processes never gain enough, scaled from a doubling.
fn knee(cells: &[&Cell]) -> Option<u64> {
    let curve: Vec<(u64, f64)> = by_processes(cells).into_iter().collect();
    let wanted = |factor: f64| KNEE_GAIN.powf(factor.log2());
    let flat = |(at, (processes, rate)): (usize, &(u64, f64))| {
        let later = &curve[at + 1..];
        let stays = later.iter().all(|(more, next)| next / rate < wanted(*more as f64 / *processes as f64));
        (!later.is_empty() && stays).then_some(*processes)
    };
    curve.iter().enumerate().find_map(flat)
}

fn words(found: &Analysis, near: &Cell, counting: &[&Cell], table: &[Cell], known: &Known) -> Vec<String> {
    let rate = |value: f64| if found.kind.is_data() { format_rate(value) } else { format_operations(value) };
    let best = &found.best;
    let spread = best.spread.map_or(String::new(), |spread| format!(" +- {}", format_share(spread)));
    let mut words = vec![format!("best: {}{spread} with M={} N={}", rate(best.rate), best.groups, best.processes)];
    if near.total() < best.total() {
        let (m, n, near) = (near.groups, near.processes, rate(near.rate));
        words.push(format!("within 5 % of it already with M={m} N={n} ({near})"));
    }
    words.extend(match found.knee {
        Some(1) => Some("knee at 1 process: two gain less than a quarter".to_string()),
        Some(knee) => Some(format!("knee at {knee} processes: doubling them gains less than a quarter")),
        // A single number of processes gives no curve.
        None if by_processes(counting).len() < 2 => None,
        None => Some("no knee yet: the largest cell still gains, a larger sweep may find more".to_string()),
    });
    words.extend(found.saturation.map(|saturation| one_node(&saturation)));
    if let Some(eta) = found.eta {
        words.push(format!(
            "eta = {eta:.3}: {} of the limit is lost ({})",
            format_share((1.0 - eta).max(0.0)),
            known.source
        ));
    }
    if let Some(p) = found.parallelism {
        words.push(format!("P = {p:.1}: that many processes at their share of a client's link fill the limit"));
    }
    if let Some(p) = found.parallelism_measured {
        words.push(format!("P_meas = {p:.1}: the best is that many times one process alone"));
    }
    if best.groups > 1 && !best.group_rates.is_empty() {
        let between = format_share(found.imbalance);
        words.push(format!("the slowest and the fastest of {} groups are {between} of their mean apart", best.groups));
    }
    words.extend(slow_groups(best));
    let last = by_processes(counting).into_iter().next_back();
    // A difference within the error of the best is no loss.
    let lost = best.spread.unwrap_or(0.0).max(0.1);
    if let Some((processes, last)) = last.filter(|(_, last)| *last < best.rate * (1.0 - lost)) {
        let loss = format_share(1.0 - last / best.rate);
        words.push(format!("at {processes} processes the rate is {loss} below the best: too many hurt"));
    }
    let reasons: BTreeSet<&str> = table.iter().filter_map(|cell| cell.rejected.as_deref()).collect();
    let rejected = table.iter().filter(|cell| cell.rejected.is_some()).count();
    if let Some(reason) = reasons.first() {
        words.push(format!("{rejected} of {} cells do not count, for instance: {reason}", table.len()));
    }
    words
}

/// Returns the saturation of one node, if several nodes together are faster.
fn saturated(kind: Kind, cells: &[&Cell], known: &Known) -> Option<Saturation> {
    if !kind.is_data() {
        return None;
    }
    let alone: Vec<&&Cell> = cells.iter().filter(|cell| cell.groups == 1).collect();
    let plateau = alone.iter().map(|cell| cell.rate).fold(0.0, f64::max);
    let (first, more) = (alone.first()?, cells.iter().map(|cell| cell.rate).fold(0.0, f64::max));
    let at = alone.iter().find(|cell| cell.rate >= plateau * (1.0 - NEAR_TOP))?.processes;
    let last = alone.iter().map(|cell| cell.processes).max()?;
    if at == last || more < plateau * 1.5 || plateau < first.rate * 1.5 {
        return None;
    }
    let link_share = known.client_bytes_per_s.map(|link| plateau / link);
    Some(Saturation { processes: at, bytes_per_s: plateau, link_share })
}

fn one_node(found: &Saturation) -> String {
    let (at, rate) = (found.processes, format_rate(found.bytes_per_s));
    let head = format!("one node saturates at N={at} with {rate}");
    match found.link_share.map(format_share) {
        Some(share) if found.is_software() => {
            format!("{head}, {share} of its link: the client's software binds there, not the link")
        }
        Some(share) => format!("{head}, {share} of its link: the link binds there"),
        None => format!("{head}; several do more"),
    }
}

fn slow_groups(best: &Cell) -> Option<String> {
    let middle = median(&best.group_rates);
    let tell = |group: &usize| {
        format!("group {group} ({} below the median)", format_share(1.0 - best.group_rates[*group] / middle))
    };
    let slow: Vec<String> = best.slow_groups.iter().map(tell).collect();
    (!slow.is_empty()).then(|| format!("slow in every run: {}", slow.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's table in MB/s: rows M, columns N, both 1, 2, 4... 64.
    const PAPER: [[f64; 7]; 7] = [
        [905.6, 1878.4, 3831.2, 6731.8, 6900.8, 6944.8, 6974.4],
        [1864.0, 3811.2, 7081.6, 12694.4, 13759.2, 14424.0, 14992.0],
        [3692.2, 8013.6, 15024.8, 25159.2, 34524.0, 37726.4, 33695.2],
        [7106.9, 16326.4, 28477.6, 40768.8, 43799.2, 42072.8, 43302.4],
        [14063.3, 31775.2, 45634.4, 50011.2, 50189.6, 50108.0, 49491.2],
        [23555.6, 47838.4, 50400.0, 49600.0, 50160.0, 50943.2, 48209.6],
        [26436.2, 49270.4, 50400.0, 49840.0, 49690.4, 49760.0, 50310.4],
    ];

    fn plain(groups: u64, processes: u64, rate: f64) -> Cell {
        let group_rates = vec![rate / groups as f64; groups as usize];
        Cell { groups, processes, rate, spread: None, rejected: None, group_rates, slow_groups: Vec::new() }
    }

    fn paper() -> Vec<Cell> {
        let row = |(m, rates): (usize, &[f64; 7])| {
            rates.iter().enumerate().map(move |(n, rate)| plain(1 << m, 1 << n, rate * 1e6)).collect::<Vec<_>>()
        };
        PAPER.iter().enumerate().flat_map(row).collect()
    }

    fn known(limit: f64, link: f64) -> Known {
        let (write, read) = (Some(limit), Some(limit));
        Known {
            write_bytes_per_s: write,
            read_bytes_per_s: read,
            client_bytes_per_s: Some(link),
            source: "plan".into(),
        }
    }

    #[test]
    fn the_papers_table_says_what_the_paper_says_corrected() {
        let link = 12.5e9 * 64.0 / 66.0;
        let found = of(Kind::Write, &paper(), &known(5.0 * link, link)).unwrap();
        assert_eq!((found.best.groups, found.best.processes, found.best.rate), (32, 32, 50943.2e6));
        assert_eq!(found.near_top, (16, 8));
        assert_eq!(found.knee, Some(64));
        assert!((found.eta.unwrap() - 0.840_56).abs() < 1e-4);
        assert!((found.parallelism.unwrap() - 160.0).abs() < 1e-9);
        assert!((found.parallelism_measured.unwrap() - 56.25).abs() < 0.01);
        let words = found.words.join("\n");
        assert!(words.contains("one node saturates at N=8 with 6.974 GB/s, 57.5 % of its link"), "{words}");
        assert!(!words.contains("slow in") && !words.contains("too many hurt"), "{words}");
    }

    #[test]
    fn a_rejected_cell_is_never_the_best() {
        let mut cheat = plain(4, 4, 900e6);
        cheat.rejected = Some("a cache".to_string());
        let table = [plain(1, 1, 100e6), plain(2, 1, 190e6), cheat];
        let found = of(Kind::Read, &table, &Known::default()).unwrap();
        assert_eq!(found.best.rate, 190e6);
        assert!(found.words.join("\n").contains("1 of 3 cells do not count, for instance: a cache"));
        assert!(of(Kind::Read, &table[2..], &Known::default()).is_none());
    }

    #[test]
    fn a_slow_group_and_too_many_processes_are_named() {
        let mut uneven = plain(4, 1, 340e6);
        uneven.group_rates = vec![100e6, 101e6, 40e6, 99e6];
        uneven.slow_groups = vec![2];
        let table = [plain(1, 1, 100e6), uneven, plain(4, 8, 200e6)];
        let words = of(Kind::Write, &table, &Known::default()).unwrap().words.join("\n");
        assert!(words.contains("slow in every run: group 2 (59.8 % below the median)"), "{words}");
        assert!(words.contains("the slowest and the fastest of 4 groups are 71.8 % of their mean apart"), "{words}");
        assert!(words.contains("at 32 processes the rate is 41.2 % below"), "{words}");
    }

    #[test]
    fn a_loss_that_may_be_chance_is_not_told() {
        let table = |spread| [plain(1, 1, 100e6), Cell { spread, ..plain(2, 1, 200e6) }, plain(4, 1, 160e6)];
        let words = |spread| of(Kind::Write, &table(spread), &Known::default()).unwrap().words.join("\n");
        assert!(words(Some(0.05)).contains("at 4 processes the rate is 20.0 % below the best"));
        assert!(!words(Some(0.3)).contains("too many hurt"));
    }

    #[test]
    fn a_linear_table_has_no_knee() {
        let table: Vec<Cell> = [1, 2, 4, 8].map(|m| plain(m, 1, m as f64 * 1e8)).into();
        assert_eq!(of(Kind::Write, &table, &Known::default()).unwrap().knee, None);
    }
}
