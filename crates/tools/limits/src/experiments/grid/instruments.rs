//! Measurements of the bed: each part alone, and each part's counters while a load runs.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slowfs::model::{Kind as Counted, Use};

use super::super::bed::{Slow, uses};
use super::super::place::Place;
use super::Grid;
use super::network::{Network, Wire};
use super::nodes::Nodes;
use crate::clock::now_ns;
use crate::diagnosis::{Load, Part, Reading};
use crate::failure::{Failure, failed};
use crate::probe::peer_rate;
use crate::sweep::Run;
use crate::workload::{Kind, Pattern, Preset, Task, phases_of};

/// Length of the measurement of a part, for each direction.
const ALONE: Duration = Duration::from_millis(500);
/// Pause between two readings of the disks' counters while a load runs.
const LOOK: Duration = Duration::from_millis(20);
const STREAMS: u64 = 2;

/// Bytes of each stream on a disk, small enough that a cheating cache still has room for a load.
const ALONE_BYTES: u64 = 8 << 20;

/// Rates of a part alone, towards the storage and back, bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gives {
    /// Rate of data.
    pub data: [f64; 2],
    /// Rate in the part's counters, including headers.
    pub counted: [f64; 2],
}

#[derive(Debug, Clone, Default)]
pub struct Alone {
    pub client_links: Vec<Gives>,
    pub io_links: Vec<Gives>,
    pub core: Gives,
    pub disks: Vec<f64>,
}

impl Alone {
    /// Measures all parts. Links of one kind are measured at the same time, because they do not affect each other.
    pub fn measure(nodes: &Nodes) -> Result<Alone, Failure> {
        let network = &nodes.network;
        let [front, back] = Network::peers();
        let clients = network.clients.iter().zip(&network.client_links).map(|(place, wire)| (place, wire, front, true));
        let io_nodes = network.io_nodes.iter().zip(&network.io_links).map(|(place, wire)| (place, wire, back, false));
        let client_links = links(clients)?;
        let io_links = links(io_nodes)?;
        let core = links([(&network.front, &network.core, back, true)].into_iter())?;
        let core = core.first().copied().unwrap_or_default();
        Ok(Alone { client_links, io_links, core, disks: disks(&nodes.disks)? })
    }

    /// Returns the sums B_c, B_s, B_net and B_d for data: the mean of both directions.
    pub fn limits(&self) -> [f64; 4] {
        let both = |gives: &Gives| gives.data.iter().sum::<f64>() / 2.0;
        let all = |links: &[Gives]| links.iter().map(both).sum::<f64>();
        [all(&self.client_links), all(&self.io_links), both(&self.core), self.disks.iter().sum()]
    }

    /// Formats the limits as a document for `forebay limits sweep --plan`.
    pub fn document(&self, grid: &Grid, processes: u64) -> String {
        let [clients, io_nodes, core, disks] = self.limits();
        let rate = |whole: f64, count: u64| format!("\"{:.6} MB/s\"", whole / count as f64 / 1e6);
        format!(
            "name = \"the bed as measured\"\n[[clients]]\ncount = {}\nprocesses = {processes}\nlink = {{ rate = {} }}\n\
             [[io_nodes]]\ncount = {}\nlink = {{ rate = {} }}\n[[switches]]\nname = \"core\"\ncount = 1\nlink = {{ rate = {} }}\n\
             [[media]]\nname = \"disk\"\ncount = {}\nread = {}\nwrite = {}\n",
            grid.clients,
            rate(clients, grid.clients),
            grid.io_nodes,
            rate(io_nodes, grid.io_nodes),
            rate(core, 1),
            grid.io_nodes,
            rate(disks, grid.io_nodes),
            rate(disks, grid.io_nodes),
        )
    }
}

type Link<'a> = (&'a Place, &'a Wire, SocketAddr, bool);

/// Measures links at the same time. `outward`: the storage lies beyond the link, seen from where it is measured.
fn links<'a>(all: impl Iterator<Item = Link<'a>>) -> Result<Vec<Gives>, Failure> {
    thread::scope(|scope| {
        let running: Vec<_> = all.map(|link| scope.spawn(move || alone(link))).collect();
        let join = |one: thread::ScopedJoinHandle<'_, _>| {
            one.join().unwrap_or_else(|_| Err(failed("a link", "a thread panicked")))
        };
        running.into_iter().map(join).collect()
    })
}

fn alone((place, wire, peer, outward): Link<'_>) -> Result<Gives, Failure> {
    let mut gives = Gives::default();
    for way in 0..2 {
        let sends = (way == 0) == outward;
        let streams = STREAMS as usize;
        let before = wire.passed()?;
        let measured = place.inside(|| {
            let began = Instant::now();
            let (to, from) = peer_rate(peer, if sends { streams } else { 0 }, if sends { 0 } else { streams }, ALONE)?;
            Ok((to + from, began.elapsed().as_secs_f64()))
        });
        let (rate, seconds) = measured.map_err(|error| failed("a network", error))?;
        let after = wire.passed()?;
        gives.data[way] = rate;
        gives.counted[way] = (after[way] - before[way]) as f64 / seconds;
    }
    Ok(gives)
}

/// Measures the write rate of the disks: bytes moved divided by busy time.
fn disks(disks: &[Slow]) -> Result<Vec<f64>, Failure> {
    let one = |disk: &Slow| -> io::Result<f64> {
        let directory = disk.shown.join("alone");
        std::fs::create_dir(&directory)?;
        let pattern = Pattern { direct: true, size_max: ALONE_BYTES, ..Pattern::preset(Preset::Stream) };
        let (processes, ranks) = (STREAMS, STREAMS);
        let task = Task { pattern, directory: directory.clone(), across: Vec::new(), processes, ranks, seed: 9 };
        let before = target(disk)?;
        phases_of(&task, &[Kind::Write], ALONE)?;
        let grown = target(disk)?.since(&[before]);
        std::fs::remove_dir_all(directory)?;
        Ok(grown.bytes as f64 / (grown.busy as f64 / 1e9))
    };
    thread::scope(|scope| {
        let running: Vec<_> = disks.iter().map(|disk| scope.spawn(move || one(disk))).collect();
        let join =
            |one: thread::ScopedJoinHandle<'_, _>| one.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        running.into_iter().map(join).collect::<io::Result<Vec<_>>>().map_err(|error| failed("a disk", error))
    })
}

fn target(disk: &Slow) -> io::Result<Use> {
    let all = uses(&disk.shown).unwrap_or_default();
    all.into_iter().find(|told| told.kind == Counted::Target).ok_or_else(|| io::Error::other("it tells nothing"))
}

/// Counters while a load runs: the core's growth, and the disks' counters over time. A disk's activity before and after
/// the load is not part of the load, for example writing back a cache.
pub struct Record {
    core: u64,
    disks: Vec<(u64, Vec<Use>)>,
}

impl Record {
    /// Records the counters while `act` runs.
    pub fn of<T>(nodes: &Nodes, act: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Record), Failure> {
        let core = || Ok::<u64, Failure>(nodes.network.core.passed()?[0]);
        let before = core()?;
        let is_over = AtomicBool::new(false);
        let (outcome, disks) = thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut seen = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    seen.push((now_ns(), nodes.disks.iter().map(target).collect::<io::Result<Vec<_>>>()?));
                    thread::sleep(LOOK);
                }
                Ok::<_, io::Error>(seen)
            });
            let outcome = act();
            is_over.store(true, Ordering::Release);
            (outcome, looking.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
        });
        let disks = disks.map_err(|error| failed("a disk", error))?;
        Ok((outcome?, Record { core: core()?.saturating_sub(before), disks }))
    }

    /// Returns the most bytes that a disk moved in any interval of the load's length.
    fn moved(&self, number: usize, seconds: f64) -> f64 {
        let length = (seconds * 1e9) as u64;
        let most = self.disks.iter().map(|(at, now)| {
            let within = self.disks.iter().find(|(then, _)| at.saturating_sub(*then) <= length);
            within.map_or(0, |(_, then)| now[number].bytes.saturating_sub(then[number].bytes))
        });
        most.max().unwrap_or(0) as f64
    }
}

/// Returns the activity of each part while data was written. A part that moved more than it did alone was disturbed in
/// that measurement; its rate is then raised to what it moved.
pub fn load(grid: &Grid, alone: &Alone, run: &Run, record: &Record) -> Load {
    let reading = |part, number, planned: f64, gives: f64, moved: f64| {
        let gives = gives.max(moved / run.seconds);
        Reading { part, number, planned, gives, busy: moved / (gives * run.seconds).max(1.0), moved }
    };
    let mut readings = Vec::new();
    for (number, (seen, gives)) in run.clients.iter().zip(&alone.client_links).enumerate() {
        let sent = seen.sent_bytes as f64;
        readings.push(reading(Part::ClientLink, number, grid.client_link, gives.counted[0], sent));
    }
    for (number, (seen, gives)) in run.io_nodes.iter().zip(&alone.io_links).enumerate() {
        let received = seen.received_bytes as f64;
        readings.push(reading(Part::ServerLink, number, grid.io_link, gives.counted[0], received));
    }
    readings.push(reading(Part::Core, 0, grid.core, alone.core.counted[0], record.core as f64));
    for (number, gives) in alone.disks.iter().enumerate() {
        readings.push(reading(Part::Target, number, grid.disk, *gives, record.moved(number, run.seconds)));
    }
    Load { rate: run.rate, acknowledged: run.amount as f64, readings }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::plan::Plan;

    #[test]
    fn what_was_measured_is_a_document_whose_limit_is_the_least_of_the_parts() {
        let link = |rate: f64| Gives { data: [rate * 1.01, rate * 0.99], counted: [rate * 1.05; 2] };
        let alone = Alone {
            client_links: vec![link(4e6); 8],
            io_links: vec![link(6e6); 4],
            core: link(28e6),
            disks: vec![7.5e6; 4],
        };
        let grid = super::super::tests::grid();
        let cluster = Cluster::parse(&alone.document(&grid, 4), std::path::Path::new("bed.toml")).unwrap();
        let plan = Plan::of(&cluster, &[]).unwrap();
        assert!((plan.write().minimum_bytes_per_s / 24e6 - 1.0).abs() < 1e-3);
        assert!((plan.client_link_bytes_per_s / 4e6 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_a_disk_does_before_and_after_a_load_is_not_the_loads() {
        let told = |bytes| Use { kind: Counted::Target, number: 0, operations: 0, bytes, busy: 0, waited: 0 };
        // One second each: the disk always moves 100 per second, for 10 seconds, of which the load takes 4.
        let disks = (0..=10).map(|second| (second * 1_000_000_000, vec![told(second * 100)])).collect();
        assert_eq!(Record { core: 0, disks }.moved(0, 4.0), 400.0);
    }
}
