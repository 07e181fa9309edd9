//! M nodes x N processes on separate clients and I/O nodes, over wires with rate limits, through Forebay.
//!
//! Measures each part alone, runs the sweep and compares its table with that limit. Bottlenecks are then planted in
//! wires and disks and must be named from measurements.

mod instruments;
mod network;
mod nodes;

use std::fs;

use serde::Deserialize;
use slowfs::model::share;

use self::instruments::{Alone, Record, load};
use self::nodes::{Disk, Nodes};
use super::place::Place;
use super::{Row, Run};
use crate::bounds::LIMIT_SLACK;
use crate::diagnosis::{Observed, diagnose};
use crate::failure::{Failure, failed};
use crate::results::{Results, Stage};
use crate::sweep::{Analysis, Sweep, analyse, render};
use crate::units::{format_rate, format_share};
use crate::workload::{Kind, Launcher};

/// Bytes that a planted cache acknowledges on each disk: more than any load writes there.
const CHEAT: u64 = 64 << 20;
/// Bytes of a transfer of a planted load. Small, so that transfers in progress at the end do not matter.
const PLANTED_TRANSFER: u64 = 128 << 10;
/// Attempts of a load in which no part was full, since such a load shows no bottleneck.
const TRIES: u32 = 3;
/// Processes of each client under a planted load.
const PLANTED_PROCESSES: u64 = 4;

/// Bed, grid and bar. Rates in bytes per second, for one part and one direction, including headers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    pub clients: u64,
    pub client_link: f64,
    pub core: f64,
    pub io_nodes: u64,
    pub io_link: f64,
    pub disk: f64,
    /// Values of M and N.
    pub groups: Vec<u64>,
    pub processes: Vec<u64>,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Length of a phase, and of a planted load; seconds.
    pub seconds: f64,
    pub planted_seconds: f64,
    pub repeat: u64,
    /// Required share of the bed's measured limit.
    pub eta: f64,
    pub paper: Option<f64>,
    pub plants: Vec<Bottleneck>,
    /// Seed of the plants' strengths, 1.3 to 4.
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// Nothing: the control.
    Nothing,
    ClientLinks,
    Core,
    IoLinks,
    /// A slower link of one I/O node.
    SlowNode,
    Disks,
    /// Slower disks behind a cache that acknowledges writes.
    Cache,
}

impl Bottleneck {
    /// Returns the name that a correct verdict contains.
    fn culprit(self, number: usize) -> Option<String> {
        Some(match self {
            Bottleneck::Nothing => return None,
            Bottleneck::ClientLinks => "the clients' links".to_string(),
            Bottleneck::Core => "the core network".to_string(),
            Bottleneck::IoLinks => "the servers' links".to_string(),
            Bottleneck::SlowNode => format!("the link of server {number}"),
            Bottleneck::Disks => "the disks".to_string(),
            Bottleneck::Cache => "a cache that answers in place of the storage".to_string(),
        })
    }

    /// Returns whether the bottleneck needs a separate bed, because disks are created with the bed.
    fn is_of_disks(self) -> bool {
        matches!(self, Bottleneck::Disks | Bottleneck::Cache)
    }
}

impl Grid {
    /// Returns the reason why the experiment is impossible, as a sentence; `None` if it is possible.
    pub fn fault(&self) -> Option<String> {
        let most = self.groups.iter().max().copied().unwrap_or(0);
        if most > self.clients {
            return Some(format!("M={most} needs as many clients"));
        }
        let counts = [self.clients, self.io_nodes, self.repeat, self.transfer];
        let empty = self.groups.is_empty() || self.processes.is_empty() || counts.contains(&0);
        let rates = [self.client_link, self.core, self.io_link, self.disk, self.seconds, self.planted_seconds];
        let wrong =
            empty || rates.iter().any(|rate| *rate <= 0.0) || self.groups.contains(&0) || self.processes.contains(&0);
        (wrong || self.clients > 64 || self.io_nodes > 64)
            .then(|| "a list is empty, or a count or rate is 0: nothing would be measured".to_string())
    }

    /// Returns the approximate time in seconds: three for starting each bed, measuring each part, and start and end of
    /// cells.
    pub fn seconds(&self, quick: bool) -> f64 {
        let (groups, processes, repeat) = self.cells(quick);
        let cells = groups.iter().flat_map(|m| processes.iter().map(move |n| m * n));
        let swept: f64 = cells.map(|ranks| 2.0 * self.seconds + 0.6 + ranks as f64 * 0.008).sum();
        let plants = self.plants(quick);
        let beds = 1 + plants.iter().filter(|plant| plant.is_of_disks()).count();
        swept * repeat as f64 + beds as f64 * 4.0 + plants.len() as f64 * (self.planted_seconds + 4.5)
    }

    fn cells(&self, quick: bool) -> (Vec<u64>, Vec<u64>, u64) {
        if !quick {
            return (self.groups.clone(), self.processes.clone(), self.repeat);
        }
        (self.groups.iter().max().copied().into_iter().collect(), vec![PLANTED_PROCESSES], 1)
    }

    /// Returns the plants. A short run has only those without a second bed, and one slow node.
    fn plants(&self, quick: bool) -> Vec<Bottleneck> {
        let wanted = |plant: &Bottleneck| {
            !quick || matches!(plant, Bottleneck::Nothing | Bottleneck::Core | Bottleneck::SlowNode)
        };
        self.plants.iter().copied().filter(wanted).collect()
    }

    fn as_planned(&self) -> Disk {
        Disk { rate: self.disk, cheat: 0 }
    }

    /// Returns the smallest total rate of all kinds of parts.
    fn whole(&self) -> f64 {
        let [clients, io_nodes] = [self.clients, self.io_nodes].map(|count| count as f64);
        [clients * self.client_link, self.core, io_nodes * self.io_link, io_nodes * self.disk]
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }
}

pub fn run(run: &Run<'_>, grid: &Grid, tell: &mut dyn FnMut(&str)) -> Result<Vec<Row>, Failure> {
    let nodes = Nodes::new(grid, grid.as_planned())?;
    let alone = Alone::measure(&nodes)?;
    let [b_c, b_s, b_net, b_d] = alone.limits().map(format_rate);
    tell(&format!(
        "{} clients and {} I/O nodes; measured alone: B_c = {b_c}, B_s = {b_s}, B_net = {b_net}, B_d = {b_d}",
        grid.clients, grid.io_nodes
    ));
    let (groups, processes, repeat) = grid.cells(run.quick);
    let most = processes.iter().max().copied().unwrap_or(1);
    let limits = nodes.scratch.join("bed.toml");
    fs::write(&limits, alone.document(grid, most)).map_err(|error| failed("the bed's document", error))?;
    let (transfer, plan) = (grid.transfer.to_string(), limits.display().to_string());
    let words = ["--read", "--transfer", &transfer, "--plan", &plan].map(String::from);
    let cells = Cells { groups, processes, seconds: grid.seconds, repeat };
    let sweep = swept(&nodes, "grid", &cells, &words)?;
    render(&sweep).lines().for_each(&mut *tell);
    if let Some(hole) = sweep.holes.first() {
        return Err(Failure::unavailable(format!("M={} N={} is missing: {}", hole.groups, hole.processes, hole.why)));
    }
    let found = analyse(&sweep);
    let mut rows = Vec::new();
    for kind in [Kind::Write, Kind::Read] {
        let found = found.iter().find(|found| found.kind == kind);
        let found = found.ok_or_else(|| Failure::unavailable(format!("no cell counts of {kind}")))?;
        rows.extend(judge(run, grid, found));
    }
    let (mut beds, plants) = (Some((nodes, alone)), grid.plants(run.quick));
    for (number, plant) in plants.iter().filter(|plant| !plant.is_of_disks()).enumerate() {
        if let Some((nodes, _)) = &beds {
            rows.push(planted(run, grid, nodes, *plant, number, None, tell)?);
        }
    }
    for (number, plant) in plants.iter().filter(|plant| plant.is_of_disks()).enumerate() {
        drop(beds.take());
        let strength = strength(grid, 100 + number);
        let rate = grid.whole() / grid.io_nodes as f64 / strength;
        let nodes = Nodes::new(grid, Disk { rate, cheat: if *plant == Bottleneck::Cache { CHEAT } else { 0 } })?;
        rows.push(planted(run, grid, &nodes, *plant, 100 + number, Some(strength), tell)?);
    }
    Ok(rows)
}

fn judge(run: &Run<'_>, grid: &Grid, found: &Analysis) -> Vec<Row> {
    let (kind, best) = (found.kind, &found.best);
    let knee = found.knee.map_or("no knee".to_string(), |knee| format!("knee at {knee} processes"));
    let (m, n) = found.near_top;
    let what = format!(
        "{} with M={} N={}; {knee}; M={m} N={n} within 5 %",
        format_rate(best.rate),
        best.groups,
        best.processes
    );
    let eta = found.eta.unwrap_or(f64::NAN);
    let mut rows = vec![Row::new(run, format!("{kind}, eta"), eta, "x").judged(Some(grid.eta), grid.paper, what)];
    if eta > 1.0 + LIMIT_SLACK {
        rows[0].rejected = Some("above the bed's limit: a cache, or a limit measured too low".to_string());
    }
    if let Some(parallelism) = found.parallelism {
        let what = "processes at their share of a client's link that fill the limit".to_string();
        rows.push(Row::new(run, format!("{kind}, P"), parallelism, "").judged(None, None, what));
    }
    if let Some(parallelism) = found.parallelism_measured {
        let what = "the best over one process alone".to_string();
        rows.push(Row::new(run, format!("{kind}, P_meas"), parallelism, "").judged(None, None, what));
    }
    let what = "of their mean lie between the slowest and the fastest client of the best cell".to_string();
    rows.push(Row::new(run, format!("{kind}, imbalance"), found.imbalance, "x").judged(None, None, what));
    rows
}

struct Cells {
    groups: Vec<u64>,
    processes: Vec<u64>,
    seconds: f64,
    repeat: u64,
}

/// Runs `forebay limits sweep` on the first client, with groups on the clients, and observes the I/O nodes.
fn swept(nodes: &Nodes, name: &str, cells: &Cells, words: &[String]) -> Result<Sweep, Failure> {
    let launcher = Launcher::own()?;
    let results = nodes.scratch.join(format!("{name}.json"));
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let hosts = |places: &[Place]| places.iter().map(Place::host).collect::<Vec<_>>().join(",");
    let mut command = nodes.network.clients[0].command(launcher.program());
    command
        .args(launcher.stage("sweep"))
        .arg("--target")
        .arg(&nodes.target)
        .arg("--across")
        .arg(nodes.across.join(","));
    command.args(["--hosts", &hosts(&nodes.network.clients), "--io-nodes", &hosts(&nodes.network.io_nodes)]);
    command.args(["-M", &list(&cells.groups), "-N", &list(&cells.processes), "--repeat", &cells.repeat.to_string()]);
    command.args([
        "--time",
        &format!("{:.0}ms", cells.seconds * 1e3),
        "--pattern",
        "stream",
        "--direct",
        "--size",
        "64MiB",
    ]);
    command.args(["--warm-up", "0", "--quiet"]).args(words).arg("-o").arg(&results);
    let said = command.output().map_err(|error| failed("the sweep", error))?;
    match Results::load(&results) {
        Ok(Results { stage: Stage::Sweep(sweep), .. }) => Ok(sweep),
        _ => Err(failed("the sweep", String::from_utf8_lossy(&said.stderr).trim())),
    }
}

/// Returns the strength of a plant, 1.3 to 4, from the seed.
fn strength(grid: &Grid, number: usize) -> f64 {
    1.3 + share(grid.seed.wrapping_mul(1_000_003).wrapping_add(number as u64)) * 2.7
}

/// Runs one load with a planted bottleneck and judges it. `made_with` is the strength that the bed was created with, if
/// any.
fn planted(
    run: &Run<'_>,
    grid: &Grid,
    nodes: &Nodes,
    plant: Bottleneck,
    number: usize,
    made_with: Option<f64>,
    tell: &mut dyn FnMut(&str),
) -> Result<Row, Failure> {
    let strength = made_with.unwrap_or_else(|| strength(grid, number));
    let slow = (share(grid.seed.wrapping_add(77)) * grid.io_nodes as f64) as usize;
    let network = &nodes.network;
    // Rate needed by the whole, divided by the strength.
    let less = grid.whole() / strength;
    let (wires, plan, share) = match plant {
        Bottleneck::ClientLinks => (&network.client_links[..], grid.client_link, less / grid.clients as f64),
        Bottleneck::Core => (std::slice::from_ref(&network.core), grid.core, less),
        Bottleneck::IoLinks => (&network.io_links[..], grid.io_link, less / grid.io_nodes as f64),
        Bottleneck::SlowNode => (&network.io_links[slow..=slow], grid.io_link, less / grid.io_nodes as f64),
        Bottleneck::Nothing | Bottleneck::Disks | Bottleneck::Cache => (&[][..], 0.0, 0.0),
    };
    wires.iter().try_for_each(|wire| wire.cap(share))?;
    let mut seen = observed(grid, nodes, &format!("planted{number}"));
    for again in 1..TRIES {
        if !seen.as_ref().is_ok_and(|seen| diagnose(seen).binds.is_none()) {
            break;
        }
        seen = observed(grid, nodes, &format!("planted{number}.{again}"));
    }
    // Restore the plan for the next plant.
    wires.iter().try_for_each(|wire| wire.cap(plan))?;
    let observed = seen?;
    let verdict = diagnose(&observed);
    let (named, culprit) = (verdict.alarm.map(|culprit| culprit.to_string()), plant.culprit(slow));
    let case = match &culprit {
        Some(culprit) => format!("planted: {culprit}, x {strength:.2}"),
        None => "nothing planted".to_string(),
    };
    tell(&format!("{case}: {}; {}", format_rate(observed.own_files.rate), verdict.words.join("; ")));
    let busiest = observed.own_files.readings.iter().map(|reading| reading.busy).fold(0.0, f64::max);
    let said =
        format!("named: {}; the busiest part {} busy", named.as_deref().unwrap_or("no alarm"), format_share(busiest));
    Ok(Row::new(run, case, f64::from(u8::from(named == culprit)), "right").judged(Some(1.0), None, said))
}

fn observed(grid: &Grid, nodes: &Nodes, name: &str) -> Result<Observed, Failure> {
    let alone = Alone::measure(nodes)?;
    let cells = Cells {
        groups: vec![grid.clients],
        processes: vec![PLANTED_PROCESSES],
        seconds: grid.planted_seconds,
        repeat: 1,
    };
    let words = ["--transfer".to_string(), PLANTED_TRANSFER.to_string()];
    let (sweep, record) = Record::of(nodes, || swept(nodes, name, &cells, &words))?;
    let run = sweep.runs.iter().find(|run| run.kind == Kind::Write);
    let run = run.ok_or_else(|| failed("the load", sweep.holes.first().map_or("no result", |hole| &hole.why)))?;
    Ok(Observed { own_files: load(grid, &alone, run, &record), ..Observed::default() })
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use super::super::{Book, Experiment};
    use super::*;

    /// Reads the parameters from the book.
    pub fn grid() -> Grid {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments/E4-1-nodes.toml");
        match Book::read(&path).unwrap().experiment {
            Experiment::Grid(grid) => grid,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn strengths_are_between_1_3_and_4_and_every_plant_makes_its_part_bind() {
        let grid = grid();
        for number in 0..200 {
            assert!((1.3..4.0).contains(&strength(&grid, number)));
        }
        // Even the weakest plant leaves less than any other part gives.
        assert!(grid.whole() / 1.3 < 0.9 * grid.whole());
        for plant in [
            Bottleneck::Core,
            Bottleneck::SlowNode,
            Bottleneck::Cache,
            Bottleneck::Disks,
            Bottleneck::ClientLinks,
            Bottleneck::IoLinks,
        ] {
            assert!(grid.plants.contains(&plant) && plant.culprit(0).is_some(), "{plant:?}");
        }
        assert!(grid.plants.contains(&Bottleneck::Nothing) && grid.clients >= 8 && (2..=5).contains(&grid.io_nodes));
    }

    #[test]
    fn more_groups_than_clients_and_nothing_to_measure_are_refused() {
        assert!(grid().fault().is_none());
        assert!(Grid { groups: vec![9], ..grid() }.fault().unwrap().contains("M=9"));
        assert!(Grid { disk: 0.0, ..grid() }.fault().is_some());
        assert!(Grid { processes: vec![0], ..grid() }.fault().is_some());
    }
}
