//! Report of a run: bytes and seconds per tier, hit rates, waits and stuck files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::WindowStatus;
use data_store::{Status, Stuck};
use indicatif::HumanBytes;
use serde::Serialize;
use types::Shown;

use crate::count::files;
use crate::drain::plain;
use crate::exit::{Failure, say};

/// Shortest wait that is reported, seconds: the end of a namespace alone takes a part of it.
const TOLD_WAIT_S: f64 = 0.5;

#[derive(Debug, Serialize)]
pub struct Report {
    /// The command's exit status, 128 + n for a signal.
    pub command_status: u8,
    /// Wall-clock seconds from the start of the command to its end.
    pub command_s: f64,
    /// Seconds spent waiting for processes that the command left behind.
    pub linger_s: f64,
    /// Processes that still held files when the wait ended, as text.
    pub left_behind: Vec<String>,
    /// Seconds of draining after that, while nothing else was done.
    pub drain_s: f64,
    pub directories: Vec<Directory>,
}

#[derive(Debug, Serialize)]
pub struct Directory {
    pub dir: PathBuf,
    pub burst_buffer: PathBuf,
    /// Bytes staged out divided by the command's seconds, bytes/s: the rate as the command saw it.
    pub perceived_bytes_per_s: f64,
    /// Bytes staged out divided by the seconds in which at least one was being staged out, bytes/s.
    pub drained_bytes_per_s: f64,
    /// Share of opens that found a complete replica, 0 to 1; absent without opens.
    pub hit_rate: Option<f64>,
    pub counters: Status,
    /// Counters of windows; absent if none were served.
    pub windows: Option<WindowStatus>,
    /// Names made, removed or moved while nothing was delegated; absent if there were few, or if new directories were.
    pub undelegated: Option<u64>,
    /// Files that did not reach the global store.
    pub stuck: Vec<StuckFile>,
}

/// A file whose data is only in the burst buffer.
#[derive(Debug, Serialize)]
pub struct StuckFile {
    /// Path as last known.
    pub path: PathBuf,
    pub state: String,
    pub reason: String,
    pub replica: PathBuf,
}

impl Directory {
    /// Creates the report from the cache's counters after the drain.
    pub fn new(dir: &Path, burst_buffer: &Path, counters: Status, stuck: &[Stuck], command: Duration) -> Directory {
        let out = counters.staged_out_bytes as f64;
        let opens = counters.hits + counters.misses;
        let stuck = stuck.iter().map(|one| StuckFile {
            path: dir.join(&one.path_hint),
            state: one.state_name().to_string(),
            reason: one.reason.clone(),
            replica: one.replica.clone(),
        });
        Directory {
            dir: dir.to_path_buf(),
            burst_buffer: burst_buffer.to_path_buf(),
            perceived_bytes_per_s: rate(out, command.as_secs_f64()),
            drained_bytes_per_s: rate(out, counters.staged_out_us as f64 / 1e6),
            hit_rate: (opens > 0).then(|| counters.hits as f64 / opens as f64),
            stuck: stuck.collect(),
            counters,
            windows: None,
            undelegated: None,
        }
    }

    fn line(&self) -> Option<String> {
        let c = &self.counters;
        let mut parts = Vec::new();
        let copied = |way: &str, bytes: u64, what: String, us: u64| {
            let (seconds, speed) = (us as f64 / 1e6, HumanBytes(rate(bytes as f64, us as f64 / 1e6) as u64));
            format!("staged {way} {} in {what} at {speed}/s ({seconds:.1} s)", HumanBytes(bytes))
        };
        if c.staged_out_files > 0 {
            let copies = if c.staged_out_files == 1 { "copy" } else { "copies" };
            let what = format!("{} {copies}", c.staged_out_files);
            parts.push(copied("out", c.staged_out_bytes, what, c.staged_out_us));
            parts.push(format!("perceived as {}/s", HumanBytes(self.perceived_bytes_per_s as u64)));
        }
        if c.staged_in_files > 0 {
            parts.push(copied("in", c.staged_in_bytes, files(c.staged_in_files), c.staged_in_us));
        }
        if let Some(rate) = self.hit_rate.filter(|_| c.hits > 0) {
            parts.push(format!("{:.0} % of {} opens found their data here", rate * 100.0, c.hits + c.misses));
        }
        if c.spilled + c.through > 0 {
            parts.push(format!("{} opens and {} spilled files went to the global store", c.through, c.spilled));
        }
        if let Some(windows) = self.windows.filter(|windows| windows.attached > 0) {
            let (bytes, waited) = (HumanBytes(windows.acknowledged_bytes), windows.waited_us as f64 / 1e6);
            let ended = if windows.revoked > 0 { format!(", {} ended early", windows.revoked) } else { String::new() };
            parts.push(format!(
                "{} windows took {bytes}{ended}; programs waited {waited:.1} s for them",
                windows.attached
            ));
        }
        parts.extend(self.windows.iter().flat_map(crate::window::troubles));
        if let Some(names) = self.undelegated {
            parts.push(format!(
                "{names} names were made, removed or moved in the global store one by one: --policy delegate=new answers them from memory"
            ));
        }
        if c.errors > 0 {
            parts.push(format!("{} stage-outs failed and were tried again{}", c.errors, last_failure(c)));
        }
        (!parts.is_empty()).then(|| format!("{}: {}", self.dir.shown(), parts.join("; ")))
    }
}

fn last_failure(counters: &Status) -> String {
    let last = counters.failure.as_ref();
    last.map_or(String::new(), |(path, reason)| format!(", the last that of {path}: {}", plain(reason)))
}

/// Fails if a report cannot be written because its directory is missing.
pub fn can_write(file: &Path) -> Result<(), Failure> {
    let failed = |e: &std::io::Error| Failure::io(format_args!("write the report {}", file.shown()), e);
    if file.is_dir() {
        return Err(failed(&std::io::ErrorKind::IsADirectory.into()));
    }
    let parent = file.parent().unwrap_or(Path::new("/"));
    std::fs::metadata(parent.join(".")).map(drop).map_err(|e| failed(&e))
}

/// Returns bytes/s; 0 if no time has passed.
pub fn rate(bytes: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes / seconds } else { 0.0 }
}

impl Report {
    /// Prints the report in words, if there is anything to report.
    pub fn tell(&self) {
        for line in self.directories.iter().filter_map(Directory::line) {
            say!("forebay: {line}");
        }
        let waits = [(self.linger_s, "for processes that it left behind"), (self.drain_s, "for the drain")];
        let told = waits.iter().filter(|(seconds, _)| *seconds >= TOLD_WAIT_S);
        let waits: Vec<String> = told.map(|(seconds, what)| format!("{seconds:.1} s {what}")).collect();
        if !waits.is_empty() {
            say!("forebay: the command took {:.1} s; waited {}", self.command_s, waits.join(" and "));
        }
    }

    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other);
        let written = text.and_then(|text| std::fs::write(file, text + "\n"));
        written.map_err(|e| Failure::io(format_args!("write the report {}", file.shown()), &e))
    }
}
