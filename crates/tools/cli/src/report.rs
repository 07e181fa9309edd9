//! What a run did: bytes and seconds per tier, hit rates, what was waited for, what is stuck.

use std::path::{Path, PathBuf};
use std::time::Duration;

use file_cache::{Status, Stuck};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::drain::word;
use crate::exit::{Failure, say};
use crate::holders::Holder;

/// One run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The command's exit status, 128 + n for a signal.
    pub command_status: u8,
    /// Wall-clock seconds from the start of the command to its end.
    pub command_s: f64,
    /// Seconds spent waiting for processes that it left behind.
    pub linger_s: f64,
    /// Those that still held files when the wait ended, as text.
    pub left_behind: Vec<String>,
    /// Seconds of draining after that.
    pub drain_s: f64,
    /// What happened in each accelerated directory.
    pub directories: Vec<Directory>,
}

/// One accelerated directory of a run.
#[derive(Debug, Serialize)]
pub struct Directory {
    /// Its path.
    pub dir: PathBuf,
    /// Where its replicas are.
    pub burst_buffer: PathBuf,
    /// Bytes staged out over the command's seconds: what the command saw, bytes/s.
    pub perceived_bytes_per_s: f64,
    /// Bytes staged out over the seconds that stage-outs took, summed over threads, bytes/s.
    pub drained_bytes_per_s: f64,
    /// Share of opens that found a complete replica, 0 to 1; absent without opens.
    pub hit_rate: Option<f64>,
    /// Counters of the file cache.
    pub counters: Status,
    /// What did not reach the global store.
    pub stuck: Vec<StuckFile>,
}

/// A file whose data is only in the burst buffer.
#[derive(Debug, Serialize)]
pub struct StuckFile {
    /// As last known.
    pub path: PathBuf,
    /// Where it stands.
    pub state: String,
    /// Why.
    pub reason: String,
    /// Where the data is.
    pub replica: PathBuf,
}

impl Directory {
    /// From the cache's counters after the drain.
    pub fn new(dir: &Path, burst_buffer: &Path, counters: Status, stuck: &[Stuck], command: Duration) -> Directory {
        let out = counters.staged_out_bytes as f64;
        let opens = counters.hits + counters.misses;
        let stuck = stuck.iter().map(|one| StuckFile {
            path: dir.join(&one.path_hint),
            state: if one.orphaned { "orphaned".to_string() } else { word(one.state).to_string() },
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
        }
    }

    fn line(&self) -> Option<String> {
        let c = &self.counters;
        let mut parts = Vec::new();
        if c.staged_out_files > 0 {
            let (bytes, rate) = (HumanBytes(c.staged_out_bytes), HumanBytes(self.drained_bytes_per_s as u64));
            parts.push(format!("staged out {bytes} in {} copies at {rate}/s", c.staged_out_files));
        }
        if c.staged_in_files > 0 {
            parts.push(format!("staged in {} of {} files", HumanBytes(c.staged_in_bytes), c.staged_in_files));
        }
        if c.spilled + c.through > 0 {
            parts.push(format!("{} opens and {} spilled files went to the global store", c.through, c.spilled));
        }
        (!parts.is_empty()).then(|| format!("{}: {}", self.dir.display(), parts.join("; ")))
    }
}

fn rate(bytes: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes / seconds } else { 0.0 }
}

impl Report {
    /// Tells in words what happened, if anything did.
    pub fn tell(&self) {
        for line in self.directories.iter().filter_map(Directory::line) {
            say!("forebay: {line}");
        }
    }

    /// Writes it as JSON.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other);
        let written = text.and_then(|text| std::fs::write(file, text + "\n"));
        written.map_err(|e| Failure::io(format_args!("write the report {}", file.display()), &e))
    }

    /// Records who was left behind.
    pub fn left(holders: &[Holder]) -> Vec<String> {
        holders.iter().map(ToString::to_string).collect()
    }
}
