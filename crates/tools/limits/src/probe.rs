//! Stage 2: measures each component alone, without other load, and compares it with the documented rate.

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

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crossing::serve as serve_crossing;
pub use memory::by_one as copies_of_memory;
pub use peer::{rate as peer_rate, serve as serve_peer};
pub use preload::serve as serve_calls;
pub use show::{component, render, value};

use crate::cluster::Cluster;
use crate::counters::Behind;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::sweep::Scratch;
use crate::units::format_seconds;
use crate::workload::Launcher;

/// Prefix of a finding about a requested part that is missing.
const MISSING: &str = "missing: ";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    BytesPerSecond,
    OperationsPerSecond,
    /// Nanoseconds of one operation, the median.
    Nanoseconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    Memory,
    Processor,
    /// TCP of this machine to itself.
    Network,
    Peer,
    /// Requests through FUSE, and calls through the preload library.
    Crossing,
    /// The device itself; `directory` is its path.
    Device,
    Media,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    pub component: Component,
    /// Directory of a medium; none for other components.
    pub directory: Option<PathBuf>,
    /// Operation that was measured: `write 1 MiB, fsync, 1 stream`.
    pub what: String,
    pub value: f64,
    pub unit: Unit,
}

impl Measurement {
    /// Creates the measurement of a component that is no directory.
    fn new(component: Component, what: impl Into<String>, value: f64, unit: Unit) -> Measurement {
        Measurement { component, directory: None, what: what.into(), value, unit }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    pub field: String,
    /// Documented rate, bytes per second.
    pub promised_bytes_per_s: f64,
    /// Measured rate, bytes per second.
    pub measured_bytes_per_s: f64,
    pub finding: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    pub directory: PathBuf,
    pub behind: Behind,
    /// Best sequential write rate, durable at the end, bytes per second.
    pub write_bytes_per_s: f64,
    /// Best sequential read rate past the page cache, bytes per second.
    pub read_bytes_per_s: f64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Probe {
    /// Options of the run; none in files of earlier versions.
    #[serde(default)]
    pub options: Option<Options>,
    /// Names of the parts that are not measured, because they failed or are still to come.
    #[serde(default)]
    pub left: Vec<String>,
    /// Directory in use; left behind if the run was killed.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
    pub measurements: Vec<Measurement>,
    /// Best rates of the directories, which are limits for `sweep`.
    pub media: Vec<Medium>,
    pub promises: Vec<Promise>,
    /// Differences between the document and this machine, in words.
    #[serde(default)]
    pub differences: Vec<String>,
    /// Observations in words, including parts that could not be measured.
    pub findings: Vec<String>,
}

/// Options of a run. A run continues an earlier one only if all options are equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub media: Vec<PathBuf>,
    /// Devices to be measured; they are only read.
    pub devices: Vec<PathBuf>,
    /// Hosts where `forebay limits peer` runs.
    pub peers: Vec<String>,
    /// Length of each measurement.
    pub seconds: f64,
    /// Most bytes that the measurement of a directory writes at a time.
    pub size_max: u64,
}

impl Options {
    /// Returns the plan of the run in words, for `--dry-run`.
    pub fn estimate(&self) -> String {
        /// Number of measurements of `time` for memory, checksums, network, FUSE and the preload library.
        const ALWAYS: f64 = 2.0 + 2.0 + 3.0 + 3.0 + 1.0;
        /// Number of measurements for a peer: a round trip, one and four streams in each direction, and all at once.
        const PEER: f64 = 6.0;
        let parts = ALWAYS + self.media.len() as f64 * media::MEASUREMENTS + self.peers.len() as f64 * PEER;
        let parts = parts + self.devices.len() as f64 * device::MEASUREMENTS;
        let seconds = self.seconds * parts;
        let media = self.media.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(", ");
        let media = if media.is_empty() { "no directory (--media DIR)".to_string() } else { media };
        format!("memory, checksums, network, FUSE, preload library; {media}\nabout {}", format_seconds(seconds))
    }

    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::Memory, Part::Checksums, Part::Network, Part::Crossing, Part::Preload];
        parts.extend(self.media.iter().cloned().map(Part::Medium));
        parts.extend(self.devices.iter().cloned().map(Part::Device));
        parts.extend(self.peers.iter().cloned().map(Part::Peer));
        // A part that is named twice is measured once.
        let mut names = BTreeSet::new();
        parts.retain(|part| names.insert(part.name()));
        parts
    }
}

/// Unit of measuring and saving: a finished part is kept even if others fail.
enum Part {
    Memory,
    Checksums,
    Network,
    Crossing,
    Preload,
    Medium(PathBuf),
    Device(PathBuf),
    Peer(String),
}

impl Part {
    fn name(&self) -> String {
        match self {
            Part::Memory => "memory".to_string(),
            Part::Checksums => "checksums".to_string(),
            Part::Network => "network".to_string(),
            Part::Crossing => "FUSE".to_string(),
            Part::Preload => "preload library".to_string(),
            Part::Medium(path) => format!("medium {}", path.display()),
            Part::Device(path) => format!("device {}", path.display()),
            Part::Peer(peer) => format!("peer {peer}"),
        }
    }
}

#[derive(Default)]
struct Found {
    measurements: Vec<Measurement>,
    findings: Vec<String>,
    medium: Option<Medium>,
}

impl Found {
    fn new((measurements, findings): (Vec<Measurement>, Vec<String>)) -> Found {
        Found { measurements, findings, medium: None }
    }

    /// Turns the failure of a part that was not explicitly requested into a finding.
    fn or_note(found: Result<Vec<Measurement>, impl std::fmt::Display>, what: &str) -> Found {
        match found {
            Ok(measurements) => Found::new((measurements, Vec::new())),
            Err(why) => Found::new((Vec::new(), vec![format!("{what}: {why}")])),
        }
    }
}

impl Probe {
    pub fn new(options: Options) -> Probe {
        let left = options.parts().iter().map(Part::name).collect();
        Probe { left, options: Some(options), ..Probe::default() }
    }

    /// Continues from the results of an earlier run; `None` if it had other options. Failed parts are measured again.
    pub fn resume(mut self, options: &Options) -> Option<Probe> {
        if self.options.as_ref() != Some(options) {
            return None;
        }
        self.findings.retain(|finding| !finding.starts_with(MISSING));
        if let Some(scratch) = self.scratch.take() {
            options.media.iter().for_each(|medium| Scratch::clear(&scratch, medium));
        }
        Some(self)
    }

    /// Returns findings about requested parts that could not be measured.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().map(String::as_str).filter(|finding| finding.starts_with(MISSING))
    }

    /// Returns whether all requested parts were measured.
    pub fn is_whole(&self) -> bool {
        self.left.is_empty() && self.missing().next().is_none()
    }

    /// Measures all remaining parts, until interrupted. A part that cannot be measured becomes a finding, and the
    /// others are kept. `save` is called after each part, `progress` before.
    pub fn run(
        &mut self,
        options: &Options,
        launcher: &Launcher,
        interrupt: &Interrupt,
        save: &mut dyn FnMut(&Probe) -> Result<(), Failure>,
        progress: &mut dyn FnMut(u64, u64, &str),
    ) -> Result<(), Failure> {
        // Detect an unwritable file before anything is measured.
        save(self)?;
        let parts = options.parts();
        for (number, part) in parts.iter().enumerate() {
            let name = part.name();
            if !self.left.contains(&name) {
                continue;
            }
            progress(number as u64, parts.len() as u64, &name);
            let found = self.part(part, options, launcher, interrupt, save);
            self.scratch = None;
            if interrupt.came() {
                // Child programs received the signal too, so their results do not describe the machine.
                break;
            }
            match found {
                Ok(found) => {
                    self.left.retain(|left| *left != name);
                    self.add(found);
                }
                Err(failure) => self.findings.push(format!("{MISSING}{failure}")),
            }
            save(self)?;
        }
        Ok(())
    }

    fn part(
        &mut self,
        part: &Part,
        options: &Options,
        launcher: &Launcher,
        interrupt: &Interrupt,
        save: &mut dyn FnMut(&Probe) -> Result<(), Failure>,
    ) -> Result<Found, Failure> {
        let time = options.time();
        let mut found = Found::default();
        match part {
            Part::Memory => found.measurements = memory::measure(time),
            Part::Checksums => found.measurements = checksum::measure(time),
            Part::Network => {
                found = Found::or_note(network::measure(time), "the network could not be measured");
                let (more, notes) = tools::to_itself(time);
                found.measurements.extend(more);
                found.findings.extend(notes);
            }
            Part::Crossing => {
                found = Found::or_note(crossing::measure(launcher, time), "the cost of FUSE was not measured");
            }
            Part::Preload => {
                let cost = preload::measure(launcher, time);
                found = Found::or_note(cost, "the cost of the preload library was not measured");
            }
            Part::Medium(directory) => {
                let scratch = Scratch::make(directory)?;
                self.scratch = Some(scratch.path().to_path_buf());
                save(self)?;
                found = media::measure(directory, scratch.path(), options, interrupt)?;
            }
            Part::Device(path) => found = Found::new(device::measure(path, time)?),
            Part::Peer(peer) => found = Found::new(wire(peer, time)?),
        }
        Ok(found)
    }

    fn add(&mut self, found: Found) {
        self.measurements.extend(found.measurements);
        self.findings.extend(found.findings);
        self.media.extend(found.medium);
    }

    pub fn compare(&mut self, cluster: &Cluster) {
        self.promises.clear();
        self.differences.clear();
        promise::compare(self, cluster);
    }

    /// Returns the best rate of a component, bytes per second.
    fn best(&self, component: Component) -> Option<f64> {
        let rates = self.measurements.iter().filter(|m| m.component == component && m.unit == Unit::BytesPerSecond);
        rates.map(|measurement| measurement.value).reduce(f64::max)
    }
}

/// Reads what a child process measured and printed as JSON. Errors: the last line that a failed child said.
fn printed<T: DeserializeOwned>(output: &Output) -> Result<T, String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("the measurement failed").to_string());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("its result is not understood: {error}"))
}

/// Measures the wire to another host, by `forebay limits peer` there or by iperf3. Errors: neither answers; the other
/// parts are kept.
fn wire(peer: &str, time: Duration) -> Result<(Vec<Measurement>, Vec<String>), Failure> {
    let failure = match peer::measure(peer, time) {
        Ok(found) => return Ok(found),
        Err(failure) => failure,
    };
    match tools::to_peer(peer, time) {
        Some(Ok(found)) => Ok((found, Vec::new())),
        Some(Err(why)) => Err(Failure::unavailable(format!("{failure}; nor does iperf3 -s answer there: {why}"))),
        None => Err(failure),
    }
}
