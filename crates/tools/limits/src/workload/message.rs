//! Messages between coordinator, group leaders and processes: one JSON value per line.

use std::io::{BufRead, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::pattern::{Kind, Pattern};
use crate::bounds::LINE_MAX;
use crate::counters::Counters;
use crate::failure::Failure;

/// Work of a cell, equal for all its processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    pub pattern: Pattern,
    /// Directory of the cell, initially empty.
    pub directory: PathBuf,
    /// Directories over which files are distributed, including the first one; empty if there is only one.
    #[serde(default)]
    pub across: Vec<PathBuf>,
    pub processes: u64,
    /// Number of processes in all groups.
    pub ranks: u64,
    pub seed: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Command {
    /// First message to a group leader: start the processes.
    Lead { group: u64, task: Task },
    /// First message to a process.
    Work {
        /// Number of the process in the cell, from 0.
        rank: u64,
        task: Task,
    },
    /// Prepare a phase; untimed.
    Prepare {
        kind: Kind,
        /// Number of files or transfers that every process has created before.
        common: u64,
    },
    /// Request for the clock. Sent to group leaders, which may be on other hosts.
    Clock,
    /// Request for the host's counters. Sent to group leaders and observing processes.
    Look,
    Go {
        /// Common start on the machine's monotonic clock, nanoseconds.
        at_ns: u64,
        /// Common deadline on that clock, nanoseconds.
        until_ns: u64,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The last command, other than Go, is done.
    Ready {
        /// Share of the data to be read that is in this machine's page cache, if the file system reports it.
        resident: Option<f64>,
    },
    /// Reply with the host's monotonic clock.
    Clock {
        /// Nanoseconds since an origin that each host chooses.
        now_ns: u64,
    },
    Seen {
        /// Counters of the host, or of the network namespace.
        counters: Counters,
    },
    Done {
        samples: Vec<Sample>,
        /// Processes that did not answer, with the reasons.
        lost: Vec<String>,
    },
    /// The sender cannot continue.
    Failed { what: String },
}

impl Command {
    /// Returns the command with times for a receiver whose clock is `ahead_ns` ahead of ours.
    pub fn shifted(&self, ahead_ns: i64) -> Command {
        match self {
            Command::Go { at_ns, until_ns } => Command::Go {
                at_ns: at_ns.saturating_add_signed(ahead_ns),
                until_ns: until_ns.saturating_add_signed(ahead_ns),
            },
            other => other.clone(),
        }
    }
}

impl Sample {
    /// Converts the times of a sender whose clock is `ahead_ns` ahead of ours.
    pub fn in_our_time(mut self, ahead_ns: i64) -> Sample {
        self.started_ns = self.started_ns.saturating_add_signed(-ahead_ns);
        self.ended_ns = self.ended_ns.saturating_add_signed(-ahead_ns);
        self
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub rank: u64,
    /// Number of operations: reads, writes, creates...
    pub operations: u64,
    /// Number of data bytes moved.
    pub bytes: u64,
    /// Monotonic clock at the first operation, nanoseconds.
    pub started_ns: u64,
    /// Monotonic clock after the last close, nanoseconds.
    pub ended_ns: u64,
    /// Processor time used, nanoseconds.
    pub cpu_ns: u64,
    /// Whether the process completed its share before the deadline.
    pub exhausted: bool,
    pub latencies: Histogram,
    /// Number of files whose `stat` showed another size than was written, because attributes lag behind.
    #[serde(default)]
    pub odd: u64,
    /// Reason for an early end.
    pub error: Option<String>,
}

pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(message).map_err(Failure::defect)?;
    line.push(b'\n');
    to.write_all(&line).and_then(|()| to.flush()).map_err(Failure::unavailable)
}

/// Receives one message; `None` at the end of the stream.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>, Failure> {
    let mut line = Vec::new();
    let read = from.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line);
    read.map_err(Failure::unavailable)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(Failure::unavailable("a message was cut off"));
    }
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|error| Failure::defect(format!("a message is not understood: {error}")))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_message_arrives_whole_or_not_at_all() {
        let mut sent = Vec::new();
        send(&mut sent, &Reply::Ready { resident: Some(0.5) }).unwrap();
        let whole = receive::<Reply>(&mut Cursor::new(&sent)).unwrap();
        assert!(matches!(whole, Some(Reply::Ready { resident: Some(_) })));
        assert!(receive::<Reply>(&mut Cursor::new(&sent[..5])).unwrap_err().message.contains("cut off"));
        assert!(receive::<Reply>(&mut Cursor::new(b"{}\n")).unwrap_err().message.contains("not understood"));
        assert!(receive::<Reply>(&mut Cursor::new(b"")).unwrap().is_none());
    }
}
