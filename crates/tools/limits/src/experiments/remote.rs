//! Programs on a node whose burst buffer is behind a wire: without windows and read-ahead, and with both, in
//! alternating turns.
//!
//! X4. A case whose plain streams take more than half of the wire is rejected: a full wire leaves nothing to gain.

mod nodes;
mod program;
mod windows;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use self::nodes::{Fared, Nodes, Side};
use super::book::Bars;
use super::{Row, Run};
use crate::bounds::LIMIT_SLACK;
use crate::failure::Failure;
use crate::probe::copies_of_memory;
use crate::sweep::median;
use crate::units::{format_rate, format_seconds, format_share};
use crate::workload::Kind;

pub use nodes::Like;
pub use program::Work;
pub use windows::{Windows, run as run_windows};
pub use wire::{Wire, serve as serve_wire};

const LIMIT_TIME: Duration = Duration::from_millis(500);
/// Largest share of the wire that plain streams may take.
const PLAIN_SHARE: f64 = 0.5;
/// Bytes of a request of the program that creates the files to be read: the largest that is sent as a whole.
const MADE_BY: u64 = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remote {
    pub wire: Like,
    pub repeat: u64,
    pub case: Vec<Case>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub processes: Vec<u64>,
    /// Bytes of a request.
    pub transfer: u64,
    /// Bytes of each process's file.
    pub size: u64,
    /// Number of requests of each process; default: as many as fit into its file.
    pub requests: Option<u64>,
    #[serde(default)]
    pub random: bool,
    pub phases: Vec<Kind>,
    /// Numbers of requests and of microseconds: after so many requests the program computes for so long.
    pub pause: Option<(u64, u64)>,
    #[serde(default)]
    pub policies: Vec<String>,
    /// Number of reads of each process before reads count for the share of hits.
    #[serde(default)]
    pub ramp: u64,
    #[serde(default)]
    pub bar: Bars,
    #[serde(default)]
    pub paper: Bars,
}

impl Case {
    fn requests(&self, quick: bool) -> u64 {
        let all = self.requests.unwrap_or(self.size / self.transfer);
        if quick { (all / 4).max(1) } else { all }
    }

    fn counts(&self, quick: bool) -> &[u64] {
        if quick { &self.processes[..1] } else { &self.processes }
    }
}

impl Remote {
    /// Returns the reason why the experiment is impossible, as a sentence; `None` if it is possible.
    pub fn fault(&self) -> Option<String> {
        let wrong = |case: &&Case| case.transfer == 0 || case.size < case.transfer || case.requests(false) <= case.ramp;
        if let Some(case) = self.case.iter().find(wrong) {
            return Some(format!(
                "`{}`: a file holds at least one transfer, and more is read than the ramp",
                case.name
            ));
        }
        let empty = |case: &Case| case.processes.is_empty() || case.processes.contains(&0) || case.phases.is_empty();
        let empty = self.case.is_empty() || self.repeat == 0 || self.case.iter().any(empty);
        empty.then(|| "a list is empty or a count is 0: nothing would be measured".to_string())
    }

    /// Returns the approximate time in seconds. On two processors a plain request takes its delay and about twice that;
    /// the other side takes less. Each run of a program has a start and a drain.
    pub fn seconds(&self, quick: bool) -> f64 {
        let repeat = if quick { 1.0 } else { self.repeat as f64 };
        let mut seconds = 8.0;
        for case in &self.case {
            for processes in case.counts(quick) {
                let all = (case.requests(quick) * processes * case.transfer) as f64;
                let plain = (case.requests(quick) as f64 * 2.2 * self.wire.delay_us as f64 / 1e6).max(all / 250e6);
                let pauses = case.pause.map_or(0.0, |(each, us)| (case.requests(quick) / each * us) as f64 / 1e6);
                seconds += case.phases.len() as f64 * repeat * (plain + 2.0 * pauses + 1.2 + all / 200e6);
            }
        }
        seconds
    }
}

struct Limits {
    /// Rates of plain copies for each number of streams: written and read, bytes per second.
    copies: BTreeMap<u64, [f64; 2]>,
    /// Highest of these rates.
    most: [f64; 2],
    /// Rate of one thread that copies memory, bytes per second.
    memory: f64,
}

/// Results of one side, one value for each turn.
#[derive(Default)]
struct Turns {
    rates: Vec<f64>,
    /// Rates including pauses: the load of the wire.
    carried: Vec<f64>,
    reached_s: Vec<f64>,
    hits: Vec<f64>,
    late: Vec<f64>,
    foreseen: Vec<f64>,
    windowed: Vec<f64>,
    busy: Vec<f64>,
}

struct Bench<'a> {
    run: &'a Run<'a>,
    page: &'a Remote,
    nodes: Nodes,
    limits: Limits,
    /// Number that marks the data of the last run that wrote.
    salt: u64,
    /// Directories that the next run removes.
    left: Vec<PathBuf>,
}

pub fn run(run: &Run<'_>, page: &Remote, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let nodes = Nodes::new(&page.wire)?;
    let counts = page.case.iter().flat_map(|case| case.counts(run.quick)).copied().chain([4]);
    let limits = limits(&nodes, counts)?;
    tell(&format!(
        "the wire delays a request by {} us; a plain question of 8 KiB takes {:.0} us, plain copies write at most {} and read at most {}",
        page.wire.delay_us,
        nodes.round_trip_us()?,
        format_rate(limits.most[0]),
        format_rate(limits.most[1])
    ));
    let mut bench = Bench { run, page, nodes, limits, salt: 0, left: Vec::new() };
    let mut rows = Vec::new();
    for case in &page.case {
        for processes in case.counts(run.quick).iter().copied() {
            for kind in case.phases.iter().copied() {
                rows.extend(bench.phase(case, processes, kind)?);
            }
        }
    }
    Ok(rows)
}

fn limits(nodes: &Nodes, counts: impl Iterator<Item = u64>) -> Result<Limits, Failure> {
    let mut limits = Limits { copies: BTreeMap::new(), most: [0.0; 2], memory: copies_of_memory(LIMIT_TIME) };
    for streams in counts {
        if limits.copies.contains_key(&streams) {
            continue;
        }
        let found = nodes.copies(streams, LIMIT_TIME)?;
        limits.copies.insert(streams, found);
        limits.most = [0, 1].map(|way: usize| limits.most[way].max(found[way]));
    }
    Ok(limits)
}

impl Bench<'_> {
    /// Measures both sides in each turn; the order alternates.
    fn phase(&mut self, case: &Case, processes: u64, kind: Kind) -> Result<Vec<Row>, Failure> {
        let plain = Side { policies: vec!["read_ahead=off".to_string()], windows: false };
        let fast = Side { policies: case.policies.clone(), windows: true };
        let mut work = self.work(case, processes);
        if kind == Kind::Read {
            work = self.made(&fast, &work)?;
        }
        let (mut before, mut after) = (Turns::default(), Turns::default());
        for turn in 0..if self.run.quick { 1 } else { self.page.repeat } {
            let mut sides = [(&plain, &mut before), (&fast, &mut after)];
            if turn % 2 == 1 {
                sides.reverse();
            }
            for (side, turns) in sides {
                self.turn(case, side, &mut work, turns)?;
            }
        }
        if kind == Kind::Read {
            self.left.push(work.directory.clone());
        }
        Ok(self.judge(case, &work, &before, &after))
    }

    fn work(&self, case: &Case, processes: u64) -> Work {
        Work {
            directory: self.nodes.store().join(format!("{}-{processes}", case.name.replace(' ', "-"))),
            processes,
            transfer: case.transfer,
            requests: case.requests(self.run.quick),
            size: case.size,
            random: case.random,
            reads: false,
            sync: true,
            pause: case.pause,
            salt: 0,
            remove: Vec::new(),
        }
    }

    /// Writes complete files for reading, and returns the work of reading them.
    fn made(&mut self, side: &Side, work: &Work) -> Result<Work, Failure> {
        self.salt += 1;
        let (directory, remove) = (work.directory.with_extension("whole"), std::mem::take(&mut self.left));
        let transfer = MADE_BY.min(work.size);
        let requests = if work.random { work.size } else { (work.requests * work.transfer).min(work.size) } / transfer;
        let whole =
            Work { directory, remove, transfer, requests, random: false, pause: None, salt: self.salt, ..work.clone() };
        self.nodes.run(side, &whole)?;
        Ok(Work { directory: whole.directory, salt: self.salt, reads: true, ..work.clone() })
    }

    fn turn(&mut self, case: &Case, side: &Side, work: &mut Work, turns: &mut Turns) -> Result<(), Failure> {
        work.remove = std::mem::take(&mut self.left);
        if !work.reads {
            self.salt += 1;
            work.salt = self.salt;
            work.directory.set_extension(self.salt.to_string());
        }
        let (took, fared) = self.nodes.run(side, work)?;
        let ramp = match work.reads && side.windows {
            true => self.nodes.run(side, &Work { requests: case.ramp, remove: Vec::new(), ..work.clone() })?.1,
            false => Fared::default(),
        };
        turns.rates.push(work.bytes() as f64 / took.seconds);
        turns.carried.push(work.bytes() as f64 / (took.seconds + took.paused_s));
        turns.reached_s.push(took.reached_s);
        turns.hits.push(fared.after(&ramp, |fared| fared.hits));
        turns.late.push(fared.after(&ramp, |fared| fared.late));
        turns.foreseen.push(fared.after(&ramp, |fared| fared.hits + fared.late));
        turns.windowed.push(fared.acknowledged_bytes as f64 / work.bytes() as f64);
        turns.busy.push(took.busy);
        if !work.reads {
            self.left.push(work.directory.clone());
        }
        Ok(())
    }

    fn judge(&self, case: &Case, work: &Work, plain: &Turns, fast: &Turns) -> Vec<Row> {
        let way = usize::from(work.reads);
        let (slow, quick) = (median(&plain.rates), median(&fast.rates));
        let native = self.limits.copies.get(&work.processes).map_or(f64::NAN, |found| found[way]);
        let most = self.limits.most[way];
        let word = if work.reads { "read" } else { "write" };
        let plural = if work.processes == 1 { "process" } else { "processes" };
        let name = |what: &str| format!("{}, {word}, {} {plural}, {what}", case.name, work.processes);
        let row = |what: &str, value: f64, bar, paper, words: String| {
            Row::new(self.run, name(what), value, "x").judged(bar, paper, words)
        };
        let gains = |bars: &Bars| if work.reads { bars.read_gain } else { bars.write_gain };
        let each: Vec<f64> = fast.rates.iter().zip(&plain.rates).map(|(fast, plain)| fast / plain).collect();
        let spread = each.iter().map(|gain| format!("{gain:.2}")).collect::<Vec<_>>().join(", ");
        let busy = [plain, fast].map(|side| format_share(median(&side.busy)));
        let what = format!(
            "{} against {}, processors {} busy against {}; turns: {spread}",
            format_rate(quick),
            format_rate(slow),
            busy[1],
            busy[0]
        );
        let mut rows = vec![row("gain", median(&each), gains(&case.bar), gains(&case.paper), what)];
        let what = format!("of what {} plain streams copy over the wire: {}", work.processes, format_rate(native));
        rows.push(row("tier efficiency", quick / native, case.bar.efficiency, case.paper.efficiency, what));
        let what = format!("of the wire's {}", format_rate(most));
        let (carried, plainly) = (median(&fast.carried), median(&plain.carried));
        rows.push(row("eta", carried / most, case.bar.eta, case.paper.eta, what));
        let memory = self.limits.memory;
        let of_memory = |what: String| {
            let what = format!("of one thread's {}{what}", format_rate(memory));
            row("share of a memory copy", quick / memory, None, None, what)
        };
        if work.reads {
            rows.push(of_memory(String::new()));
            let what = format!(
                "of the reads after the first {} of each process; {} waited for what was on its way, the others asked themselves",
                case.ramp,
                format_share(median(&fast.late))
            );
            rows.push(row("hits", median(&fast.hits), case.bar.hits, case.paper.hits, what));
            let what =
                "of them were served by what had been asked for before they came, found or waited for".to_owned();
            rows.push(row("foreseen", median(&fast.foreseen), case.bar.foreseen, case.paper.foreseen, what));
        } else {
            let reached = median(&fast.reached_s);
            rows.push(of_memory(format!(
                "; {} of the bytes were acknowledged by windows, all had reached the burst buffer after {}",
                format_share(median(&fast.windowed)),
                format_seconds(reached)
            )));
        }
        let rejected = rejected(carried, most, plainly, self.page.wire.bandwidth);
        rows.iter_mut().for_each(|row| row.rejected = rejected.clone().or(row.rejected.take()));
        rows
    }
}

/// Returns the reason why figures are rejected (X2, X4), if there is one.
fn rejected(fast: f64, most: f64, plain: f64, wire: f64) -> Option<String> {
    if fast > most * (1.0 + 3.0 * LIMIT_SLACK) {
        let (fast, most) = (format_rate(fast), format_rate(most));
        return Some(format!("{fast} is above the {most} that the wire gave: a cache, or a limit measured too low"));
    }
    (plain > wire * PLAIN_SHARE).then(|| {
        let (plain, wire) = (format_rate(plain), format_rate(wire));
        format!("plain streams reach {plain}, more than half of the wire's {wire}: it needs more")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_wire_cannot_give_and_what_fills_it_does_not_count() {
        assert_eq!(rejected(500e6, 590e6, 200e6, 600e6), None);
        assert!(rejected(700e6, 590e6, 200e6, 600e6).unwrap().contains("above the 590.0 MB/s"));
        assert!(rejected(500e6, 590e6, 301e6, 600e6).unwrap().contains("more than half"));
    }
}
