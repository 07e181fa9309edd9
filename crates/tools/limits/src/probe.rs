//! Stage 2: each component alone, with nothing else in its way, against what its document promises.

mod checksum;
mod crossing;
mod device;
mod media;
mod memory;
mod network;
mod peer;
mod preload;
mod promise;
mod show;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crossing::serve as serve_crossing;
pub use peer::serve as serve_peer;
pub use preload::serve as serve_calls;
pub use show::{component, render, value};

use crate::cluster::Cluster;
use crate::counters::Behind;
use crate::units::format_seconds;
use crate::workload::Launcher;

/// How the finding begins that tells what was asked for and is not there.
const MISSING: &str = "missing: ";

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes a second.
    BytesPerSecond,
    /// Operations a second.
    OperationsPerSecond,
    /// Nanoseconds of one operation, the median.
    Nanoseconds,
}

/// Which component was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Copying memory.
    Memory,
    /// Checksums.
    Processor,
    /// This machine's TCP, to itself.
    Network,
    /// The wire to another host.
    Peer,
    /// Requests through FUSE, calls through the preload library.
    Crossing,
    /// A device itself; `directory` is its path.
    Device,
    /// A directory's file system and device.
    Media,
}

/// One number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Which component.
    pub component: Component,
    /// The directory of a medium; none for others.
    pub directory: Option<PathBuf>,
    /// What was done: `write 1 MiB, fsync, 1 stream`.
    pub what: String,
    /// The number.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
}

/// A document's promise beside the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// The document's field.
    pub field: String,
    /// What it promises, bytes a second.
    pub promised_bytes_per_s: f64,
    /// What was measured, bytes a second.
    pub measured_bytes_per_s: f64,
    /// In words, if they differ.
    pub finding: Option<String>,
}

/// A directory that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    /// The directory.
    pub directory: PathBuf,
    /// What stands behind it.
    pub behind: Behind,
    /// Best sequential write, durable at the end, bytes a second.
    pub write_bytes_per_s: f64,
    /// Best sequential read past the page cache, bytes a second.
    pub read_bytes_per_s: f64,
}

/// What `probe` finds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Probe {
    /// Every number.
    pub measurements: Vec<Measurement>,
    /// The directories' best rates: limits for `sweep`.
    pub media: Vec<Medium>,
    /// Comparison with the document, if there is one.
    pub promises: Vec<Promise>,
    /// What deserves attention, in words; also what could not be measured.
    pub findings: Vec<String>,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories of media.
    pub media: Vec<PathBuf>,
    /// Devices, which are only read.
    pub devices: Vec<PathBuf>,
    /// Hosts where `forebay limits peer` runs.
    pub peers: Vec<String>,
    /// Length of each measurement.
    pub time: Duration,
    /// How to start another process of this program.
    pub launcher: Launcher,
    /// Most bytes that a medium's measurement writes at one time.
    pub size_max: u64,
}

impl Options {
    /// What would be done, for `--dry-run`.
    pub fn estimate(&self) -> String {
        /// Memory, checksums, network, FUSE and the preload library: how many measurements of `time` each.
        const ALWAYS: f64 = 2.0 + 2.0 + 3.0 + 3.0 + 1.0;
        /// A round trip, one and four streams each way, and all at once.
        const PEER: f64 = 6.0;
        let parts = ALWAYS + self.media.len() as f64 * media::MEASUREMENTS + self.peers.len() as f64 * PEER;
        let parts = parts + self.devices.len() as f64 * device::MEASUREMENTS;
        let seconds = self.time.as_secs_f64() * parts;
        let media = self.media.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(", ");
        let media = if media.is_empty() { "no directory (--media DIR)".to_string() } else { media };
        format!("memory, checksums, network, FUSE, preload library; {media}\nabout {}", format_seconds(seconds))
    }
}

impl Probe {
    /// Whether everything that was asked for is there.
    pub fn is_whole(&self) -> bool {
        !self.findings.iter().any(|finding| finding.starts_with(MISSING))
    }

    /// Measures everything; what cannot be measured is told, and the rest is kept. `progress` is told of each part that begins.
    pub fn run(options: &Options, cluster: Option<&Cluster>, progress: &mut dyn FnMut(u64, u64, &str)) -> Probe {
        let mut probe = Probe::default();
        let all = 4 + (options.media.len() + options.devices.len() + options.peers.len()) as u64;
        progress(0, all, "memory");
        probe.measurements.extend(memory::measure(options.time));
        progress(1, all, "checksums");
        probe.measurements.extend(checksum::measure(options.time));
        progress(2, all, "network");
        match network::measure(options.time) {
            Ok(found) => probe.measurements.extend(found),
            Err(error) => probe.findings.push(format!("the network could not be measured: {error}")),
        }
        probe.add(tools::to_itself(options.time));
        progress(3, all, "FUSE");
        match crossing::measure(&options.launcher, options.time) {
            Ok(found) => probe.measurements.extend(found),
            Err(why) => probe.findings.push(format!("the cost of FUSE was not measured: {why}")),
        }
        match preload::measure(&options.launcher, options.time) {
            Ok(found) => probe.measurements.extend(found),
            Err(why) => probe.findings.push(format!("the cost of the preload library was not measured: {why}")),
        }
        for (number, directory) in options.media.iter().enumerate() {
            progress(4 + number as u64, all, &directory.display().to_string());
            match media::measure(directory, options) {
                Ok(found) => {
                    probe.findings.extend(found.findings);
                    probe.measurements.extend(found.measurements);
                    probe.media.push(found.medium);
                }
                Err(failure) => probe.findings.push(format!("{MISSING}{failure}")),
            }
        }
        for (number, path) in options.devices.iter().enumerate() {
            progress(4 + (options.media.len() + number) as u64, all, &path.display().to_string());
            match device::measure(path, options.time) {
                Ok(found) => probe.add(found),
                Err(failure) => probe.findings.push(format!("{MISSING}{failure}")),
            }
        }
        for (number, peer) in options.peers.iter().enumerate() {
            progress(4 + (options.media.len() + options.devices.len() + number) as u64, all, peer);
            probe.add(wire(peer, options.time));
        }
        if let Some(cluster) = cluster {
            promise::compare(&mut probe, cluster);
        }
        probe
    }

    fn add(&mut self, (measurements, findings): (Vec<Measurement>, Vec<String>)) {
        self.measurements.extend(measurements);
        self.findings.extend(findings);
    }

    /// The best rate of a component, bytes a second.
    fn best(&self, component: Component) -> Option<f64> {
        let rates = self.measurements.iter().filter(|m| m.component == component && m.unit == Unit::BytesPerSecond);
        rates.map(|measurement| measurement.value).reduce(f64::max)
    }
}

/// The wire to another host, by our own peer there or by iperf3. A host that does not answer is a hole: the rest is kept.
fn wire(peer: &str, time: Duration) -> (Vec<Measurement>, Vec<String>) {
    let failure = match peer::measure(peer, time) {
        Ok(found) => return found,
        Err(failure) => failure,
    };
    match tools::to_peer(peer, time) {
        Some(Ok(found)) => (found, Vec::new()),
        Some(Err(why)) => (Vec::new(), vec![format!("{MISSING}{failure}; nor does iperf3 -s answer there: {why}")]),
        None => (Vec::new(), vec![format!("{MISSING}{failure}")]),
    }
}
