//! Equal writes through windows of several sizes, and equal reads with several sizes of read-ahead.

use serde::Deserialize;

use super::nodes::{Fared, Like, Nodes, Side};
use super::program::{Done, Work};
use super::{LIMIT_TIME, MADE_BY};
use crate::experiments::{Row, Run};
use crate::failure::Failure;
use crate::probe::copies_of_memory;
use crate::sweep::median;
use crate::units::{format_rate, format_seconds, format_share};

/// Bytes of a request, in sequential and in random order.
const IN_ORDER: u64 = 128 << 10;
const AT_RANDOM: u64 = 8 << 10;
/// Divisor for random requests: they write this fraction of a file, and some places more than once.
const RANDOM_SHARE: u64 = 2;
/// Relative amount by which a larger window may appear slower: two measurements of one thing differ.
const ERROR: f64 = 0.05;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    pub wire: Like,
    pub repeat: u64,
    /// Number of writers, each of a separate file.
    pub processes: u64,
    /// Size of a file in bytes.
    pub size: u64,
    /// Values of the policy `window`, the smallest first.
    pub windows: Vec<String>,
    /// Values of the policy `read_ahead`, the smallest first.
    pub read_ahead: Vec<String>,
    /// Required gain of the largest window over the smallest.
    pub gain: f64,
    pub paper: Option<f64>,
}

impl Windows {
    /// Returns the reason why the experiment is impossible, as a sentence; `None` if it is possible.
    pub fn fault(&self) -> Option<String> {
        let empty = self.windows.len() < 2 || self.repeat == 0 || self.processes == 0 || self.size < MADE_BY;
        empty.then(|| "two windows are compared, in files of at least 1 MiB: nothing would be measured".to_string())
    }

    /// Returns the approximate time in seconds: all bytes cross the wire in each cell.
    pub fn seconds(&self, quick: bool) -> f64 {
        let (repeat, ends) = if quick { (1.0, 2) } else { (self.repeat as f64, usize::MAX) };
        let cross = (self.bytes(quick) * self.processes) as f64 / self.wire.bandwidth;
        let cells = |count: usize| count.min(ends) as f64;
        repeat * cells(self.windows.len()) * (1.8 * cross + 3.0)
            + cells(self.read_ahead.len()) * (cross + 1.0)
            + cross
            + 3.0
    }

    fn bytes(&self, quick: bool) -> u64 {
        if quick { self.size / 4 } else { self.size }
    }
}

/// Results for one size, one value for each turn.
#[derive(Default)]
struct Cell {
    rates: Vec<f64>,
    reached: Vec<f64>,
    windowed: Vec<f64>,
}

impl Cell {
    fn add(&mut self, work: &Work, took: &Done, fared: &Fared) {
        let bytes = work.bytes() as f64;
        self.rates.push(bytes / took.seconds);
        self.reached.push(took.reached_s);
        self.windowed.push(fared.acknowledged_bytes as f64 / bytes);
    }
}

pub fn run(run: &Run<'_>, page: &Windows, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let nodes = Nodes::new(&page.wire)?;
    let (memory, wire) = (copies_of_memory(LIMIT_TIME), nodes.copies(page.processes, LIMIT_TIME)?);
    tell(&format!(
        "plain copies over the wire write at most {} and read at most {}; one thread copies {} of memory",
        format_rate(wire[0]),
        format_rate(wire[1]),
        format_rate(memory)
    ));
    let windows = sizes(run, &page.windows);
    let (mut rows, mut salt, mut left) = (Vec::new(), 0, Vec::new());
    for transfer in [IN_ORDER, AT_RANDOM] {
        let mut cells: Vec<Cell> = windows.iter().map(|_| Cell::default()).collect();
        for _ in 0..if run.quick { 1 } else { page.repeat } {
            for (window, cell) in windows.iter().zip(&mut cells) {
                salt += 1;
                let directory = nodes.store().join(format!("written.{salt}"));
                let work = Work { remove: std::mem::take(&mut left), ..page.work(run, directory, transfer, salt) };
                let (took, fared) = nodes.run(&side(window), &work)?;
                cell.add(&work, &took, &fared);
                left.push(work.directory);
            }
        }
        rows.extend(page.judge(run, transfer, windows, &cells, memory));
    }
    rows.extend(page.reads(run, &nodes, salt + 1, left, wire[1])?);
    Ok(rows)
}

/// Returns all sizes; in a short run the two largest.
fn sizes<'a>(run: &Run<'_>, all: &'a [String]) -> &'a [String] {
    if run.quick { &all[all.len().saturating_sub(2)..] } else { all }
}

fn side(window: &str) -> Side {
    Side { policies: vec![format!("window={window}"), "close=lazy".to_string()], windows: true }
}

impl Windows {
    fn work(&self, run: &Run<'_>, directory: std::path::PathBuf, transfer: u64, salt: u64) -> Work {
        let (size, random) = (self.bytes(run.quick), transfer == AT_RANDOM);
        let requests = size / transfer / if random { RANDOM_SHARE } else { 1 };
        let (processes, remove) = (self.processes, Vec::new());
        let (reads, sync, pause) = (false, false, None);
        Work { directory, processes, transfer, requests, size, random, reads, sync, pause, salt, remove }
    }

    fn judge(&self, run: &Run<'_>, transfer: u64, windows: &[String], cells: &[Cell], memory: f64) -> Vec<Row> {
        let name = if transfer == AT_RANDOM { "random 8 KiB" } else { "128 KiB" };
        let rates: Vec<f64> = cells.iter().map(|cell| median(&cell.rates)).collect();
        let reached: Vec<f64> = cells.iter().map(|cell| median(&cell.reached)).collect();
        let mut rows = Vec::new();
        for (number, (window, cell)) in windows.iter().zip(cells).enumerate() {
            let what = format!(
                "{} of one thread's memory copy, {} of the bytes acknowledged by windows; at the burst buffer after {}",
                format_share(rates[number] / memory),
                format_share(median(&cell.windowed)),
                format_seconds(reached[number])
            );
            let case = format!("write {name}, window {window}, to the last close");
            rows.push(Row::new(run, case, rates[number] / 1e6, "MB/s").judged(None, None, what));
        }
        let last = rates.len() - 1;
        let what = format!(
            "{} against {}; with the final drain {:.2} x: {} against {}",
            format_rate(rates[last]),
            format_rate(rates[0]),
            reached[0] / reached[last],
            format_seconds(reached[last]),
            format_seconds(reached[0])
        );
        // A short run compares other sizes.
        let is_asked = transfer == IN_ORDER && !run.quick;
        let (bar, paper) = (is_asked.then_some(self.gain), self.paper.filter(|_| is_asked));
        let case = format!("write {name}, window {} over {}", windows[last], windows[0]);
        rows.push(Row::new(run, case, rates[last] / rates[0], "x").judged(bar, paper, what));
        let rises = rates.windows(2).map(|two| two[1] / two[0]).fold(f64::INFINITY, f64::min);
        let what = "least of what a window gains over the next smaller one".to_string();
        rows.push(Row::new(run, format!("write {name}, monotone"), rises, "x").judged(Some(1.0 - ERROR), None, what));
        rows
    }

    fn reads(
        &self,
        run: &Run<'_>,
        nodes: &Nodes,
        salt: u64,
        remove: Vec<std::path::PathBuf>,
        wire: f64,
    ) -> Result<Vec<Row>, Failure> {
        let made = self.work(run, nodes.store().join("read"), IN_ORDER, salt);
        nodes.run(&side("16MiB"), &Work { remove, ..made.clone() })?;
        let mut rows = Vec::new();
        for ahead in sizes(run, &self.read_ahead) {
            let side = Side { policies: vec![format!("read_ahead={ahead}")], windows: false };
            let (took, fared) = nodes.run(&side, &Work { reads: true, ..made.clone() })?;
            let rate = made.bytes() as f64 / took.seconds;
            let what = format!(
                "{} of what plain copies read; {} of the reads found their bytes, {} waited for what was on its way",
                format_share(rate / wire),
                format_share(fared.after(&Fared::default(), |fared| fared.hits)),
                format_share(fared.after(&Fared::default(), |fared| fared.late))
            );
            let case = format!("read 128 KiB, {ahead} read ahead");
            rows.push(Row::new(run, case, rate / 1e6, "MB/s").judged(None, None, what));
        }
        Ok(rows)
    }
}
