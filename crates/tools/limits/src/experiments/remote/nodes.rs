//! The test bed of an experiment with a server: two network namespaces with a wire between them that delays requests
//! and limits the rate. `forebay serve` manages a burst buffer in one of them, and programs run in the other.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::super::bed::{Bed, wait_for_server};
use super::super::beside;
use super::super::place::Place;
use super::program::{Done, Work};
use super::wire::{self, Wire};
use crate::bounds::PATIENCE;
use crate::failure::{Failure, failed};
use crate::workload::Launcher;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
/// Ports of the server and of the plain copy program, and the ports where the wire listens for them.
const SERVER: u16 = 4711;
const TO_SERVER: u16 = 4712;
const COPIES: u16 = 4713;
const TO_COPIES: u16 = 4714;

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Like {
    /// Delay of a request, microseconds.
    pub delay_us: u64,
    /// Rate in bytes per second.
    pub bandwidth: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Side {
    pub policies: Vec<String>,
    pub windows: bool,
}

/// Counters of reads on the programs' node, and of writes acknowledged by windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fared {
    pub hits: u64,
    pub late: u64,
    pub misses: u64,
    pub acknowledged_bytes: u64,
    pub waited_us: u64,
}

impl Fared {
    fn of(report: &[u8]) -> Option<Fared> {
        let report: serde_json::Value = serde_json::from_slice(report).ok()?;
        let of = |part: &str, name: &str| report["directories"][0][part][name].as_u64().unwrap_or(0);
        let reads = |name: &str| of("counters", name);
        Some(Fared {
            hits: reads("read_hits"),
            late: reads("read_late"),
            misses: reads("read_misses"),
            acknowledged_bytes: of("windows", "acknowledged_bytes"),
            waited_us: of("windows", "waited_us"),
        })
    }

    /// Returns the share of reads counted by `so`, without the reads that `ramp` already counted.
    pub fn after(&self, ramp: &Fared, so: impl Fn(&Fared) -> u64) -> f64 {
        let all = |fared: &Fared| (fared.hits + fared.late + fared.misses) as f64;
        (so(self) as f64 - so(ramp) as f64) / (all(self) - all(ramp))
    }
}

/// Limit of the memory of all windows: all memory of the bed for them.
const WINDOWS: &str = "2GiB";

pub struct Nodes {
    _bed: Bed,
    launcher: Launcher,
    store: PathBuf,
    rings: PathBuf,
    scratch: PathBuf,
    here: Place,
}

impl Nodes {
    pub fn new(like: &Like) -> Result<Nodes, Failure> {
        let mut bed = Bed::new()?;
        let [store, buffer, scratch] = [bed.memory("store")?, bed.memory("buffer")?, bed.memory("scratch")?];
        let rings = bed.huge_memory("rings")?;
        let [here, there] = [bed.network(&scratch.join("here"))?, bed.network(&scratch.join("there"))?];
        here.script(&[format!("ip link add fb0 type veth peer name fb1 netns {}", there.file().display())])?;
        here.up("fb0", HERE)?;
        there.up("fb1", THERE)?;
        let (launcher, log) = (Launcher::own()?, scratch.join("server.log"));
        bed.serve(&there, [&store, &buffer, &log], &format!("tcp:127.0.0.1:{SERVER}"))?;
        let copies = (COPIES, scratch.join("copies"));
        fs::create_dir(&copies.1)
            .map_err(|error| failed(format_args!("cannot create {}", copies.1.display()), error))?;
        let ways = vec![((THERE, TO_SERVER).into(), SERVER), ((THERE, TO_COPIES).into(), COPIES)];
        let wire = Wire { ways, delay_us: like.delay_us, bandwidth: like.bandwidth, copies };
        let words = serde_json::to_string(&wire).map_err(Failure::defect)?;
        bed.start(there.command(launcher.program()).args(launcher.words()).arg("--wire").arg(words))?;
        let nodes = Nodes { _bed: bed, launcher, store, rings, scratch, here };
        nodes.inside(|| wire::wait_for((THERE, TO_COPIES).into(), PATIENCE))?;
        wait_for_server("the server", &log)?;
        Ok(nodes)
    }

    /// Returns the accelerated directory as the programs see it. Outside their namespace it is the global store.
    pub fn store(&self) -> &Path {
        &self.store
    }

    fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> Result<T, Failure> {
        self.here.inside(act).map_err(|error| failed("the wire", error))
    }

    /// Measures plain copies by `streams` streams to the server node and back. Returns both rates in bytes per second.
    pub fn copies(&self, streams: u64, time: Duration) -> Result<[f64; 2], Failure> {
        let at = (THERE, TO_COPIES).into();
        self.inside(|| Ok([wire::rate(at, wire::WRITE, streams, time)?, wire::rate(at, wire::READ, streams, time)?]))
    }

    /// Measures the round trip of a plain request of 8 KiB, in microseconds.
    pub fn round_trip_us(&self) -> Result<f64, Failure> {
        self.inside(|| wire::round_trip_us((THERE, TO_COPIES).into(), 200))
    }

    /// Runs the program on its node, with the files at the server. When it returns, the files are also in the global
    /// store.
    pub fn run(&self, side: &Side, work: &Work) -> Result<(Done, Fared), Failure> {
        let report = self.scratch.join("report");
        let mut command = self.here.command(beside("forebay")?);
        command.arg("run").arg("--server").arg(format!("tcp:{THERE}:{TO_SERVER}")).arg("--dir").arg(&self.store);
        command.arg("--quiet").arg("--report").arg(&report);
        for rule in &side.policies {
            command.arg("--policy").arg(rule);
        }
        if side.windows {
            command.arg(format!("--window={}", self.rings.display())).args(["--window-memory", WINDOWS]);
        } else {
            command.arg("--no-preload");
        }
        command.arg("--").arg(self.launcher.program()).args(self.launcher.words());
        let words = serde_json::to_string(work).map_err(Failure::defect)?;
        let output = command.arg("--program").arg(words).output().map_err(|error| failed("the program", error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed("the program", format_args!("{} {}", output.status, said.trim())));
        }
        let took = serde_json::from_slice(&output.stdout).map_err(|error| failed("the program's account", error))?;
        let told = fs::read(&report).map_err(|error| failed("the report of the run", error))?;
        let fared = Fared::of(&told).ok_or_else(|| failed("the report of the run", "is not understood"))?;
        if !work.reads {
            work.compare(&work.directory).map_err(|error| {
                Failure::defect(format!("{}: wrong data after the drain: {error}", work.directory.display()))
            })?;
        }
        Ok((took, fared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reads_do_not_count_and_a_report_without_windows_has_none() {
        let report = r#"{"directories":[{"counters":{"read_hits":90,"read_late":6,"read_misses":4},"windows":null}]}"#;
        let all = Fared::of(report.as_bytes()).unwrap();
        assert_eq!(all, Fared { hits: 90, late: 6, misses: 4, acknowledged_bytes: 0, waited_us: 0 });
        let ramp = Fared { hits: 2, late: 4, misses: 4, ..Fared::default() };
        assert!((all.after(&ramp, |fared| fared.hits) - 88.0 / 90.0).abs() < 1e-9);
        assert!(all.after(&all, |fared| fared.late).is_nan());
        assert_eq!(Fared::of(b"not a report"), None);
    }
}
