//! What coordinator, group leaders and processes say to each other: one JSON value a line.

use std::io::{BufRead, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::pattern::{Kind, Pattern};
use crate::bounds::LINE_MAX;
use crate::counters::Counters;
use crate::failure::Failure;

/// A cell's work, the same for all its processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// What to do.
    pub pattern: Pattern,
    /// The cell's own empty directory.
    pub directory: PathBuf,
    /// Such directories, the first one included, that files are dealt out to in turn; empty where there is one.
    #[serde(default)]
    pub across: Vec<PathBuf>,
    /// Processes of a group.
    pub processes: u64,
    /// Processes of all groups.
    pub ranks: u64,
    /// For the random data.
    pub seed: u64,
}

/// From above to below.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Command {
    /// First word to a group leader: start your processes.
    Lead {
        /// Number of the group.
        group: u64,
        /// What its processes do.
        task: Task,
    },
    /// First word to a process.
    Work {
        /// Number of the process among all.
        rank: u64,
        /// What it does.
        task: Task,
    },
    /// Get ready for a phase; untimed.
    Prepare {
        /// Which phase.
        kind: Kind,
        /// Files or transfers that every process made before.
        common: u64,
    },
    /// What does your clock show? Asked of group leaders, which may be on other hosts.
    Clock,
    /// What do your host's counters show? Asked of group leaders and of those that only look on.
    Look,
    /// Run it.
    Go {
        /// Common start on the machine's monotonic clock, nanoseconds.
        at_ns: u64,
        /// Common deadline.
        until_ns: u64,
    },
}

/// From below to above.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The last command but Go is done.
    Ready {
        /// Share of the data to be read that this machine's page cache holds, if the file system tells.
        resident: Option<f64>,
    },
    /// The monotonic clock there.
    Clock {
        /// Nanoseconds since an origin of that host's own.
        now_ns: u64,
    },
    /// The counters there.
    Seen {
        /// Of the host, or of the network namespace.
        counters: Counters,
    },
    /// A phase is over.
    Done {
        /// One for each process that answered.
        samples: Vec<Sample>,
        /// Who did not, and why.
        lost: Vec<String>,
    },
    /// It cannot go on.
    Failed {
        /// Who and why.
        what: String,
    },
}

impl Command {
    /// As somebody must hear it whose clock is `ahead_ns` ahead of ours.
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
    /// Told by somebody whose clock is `ahead_ns` ahead of ours, in our time.
    pub fn in_our_time(mut self, ahead_ns: i64) -> Sample {
        self.started_ns = self.started_ns.saturating_add_signed(-ahead_ns);
        self.ended_ns = self.ended_ns.saturating_add_signed(-ahead_ns);
        self
    }
}

/// What one process did in one phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who.
    pub rank: u64,
    /// Reads, writes, creates...
    pub operations: u64,
    /// Bytes of data moved.
    pub bytes: u64,
    /// Monotonic clock at its first operation, nanoseconds.
    pub started_ns: u64,
    /// Monotonic clock after its last close.
    pub ended_ns: u64,
    /// Processor time it used, nanoseconds.
    pub cpu_ns: u64,
    /// Whether its share ended before the deadline did.
    pub exhausted: bool,
    /// Latencies of its operations.
    pub latencies: Histogram,
    /// Files that showed another size than was written: attributes that lag behind.
    #[serde(default)]
    pub odd: u64,
    /// Why it ended early.
    pub error: Option<String>,
}

/// Sends one message.
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(message).map_err(|error| Failure::defect(error.to_string()))?;
    line.push(b'\n');
    to.write_all(&line).and_then(|()| to.flush()).map_err(|error| Failure::unavailable(error.to_string()))
}

/// Takes one message; none at the end of the stream.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>, Failure> {
    let mut line = Vec::new();
    let read = from.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line);
    read.map_err(|error| Failure::unavailable(error.to_string()))?;
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
