//! The control socket: how the command line talks to a running agent.
//!
//! A Unix socket in the burst buffer, mode 0600, for root and the agent's own user. A request is one line of JSON. The
//! answer is any number of [`Reply::Progress`], [`Reply::Item`] and [`Reply::Alive`] lines, then one [`Reply::Done`] or
//! [`Reply::Failed`]. A line comes at least every [`limits::CONTROL_BEAT`](crate::limits::CONTROL_BEAT). Hanging up
//! interrupts the command. Paths are relative to the accelerated directory.

mod client;
mod commands;
mod listener;
mod paths;
mod staging;
mod stall;

use std::path::{Path, PathBuf};

use config::PolicySet;
use data_store::{Stuck, Which};
use serde::{Deserialize, Serialize};

pub use crate::xattr::CONTROL;
pub use client::ControlClient;
pub use commands::Say;
pub use data_store::Keep;
pub use listener::{Commanded, ControlListener};
pub use stall::Stall;

/// The socket's name in the burst buffer.
pub const SOCKET: &str = "agent.sock";

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Checks that the agent runs; the result is its process id.
    Ping,
    /// The state of the file cache; the result is [`data_store::Status`] as JSON.
    Status,
    /// Stages out everything dirty, one file, or all files below a directory; stuck files come as items.
    Drain {
        /// The file or directory; everything if absent.
        path: Option<PathBuf>,
        /// Whether to answer when the drain is done, not when it has begun.
        wait: bool,
        /// Of a drain of everything: milliseconds without progress after which the drain ends and reports what is left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patience_ms: Option<u64>,
    },
    /// Brings a delegated directory to the global store, which answers from then on. Fails with `EBUSY` if something waits, or a file
    /// is open for writing.
    GiveBack {
        /// Name of the directory's tree, in hex, as its mark tells.
        tree: String,
    },
    /// Moves files' data. Failures come as items; with [`Verb::State`], every file does. The result is [`Counts`].
    Stage {
        /// Action to take.
        verb: Verb,
        /// Files and directories.
        paths: Vec<PathBuf>,
        /// Whether to include everything below directories.
        recursive: bool,
        /// Whether to answer when staging is done, not when it has begun.
        wait: bool,
    },
    /// Drops clean data that is not in use; the result is [`data_store::Cleaned`].
    Clean {
        /// Selection of files.
        which: Which,
    },
    /// Makes new opens for writing go to the global store.
    Quiesce,
    /// Makes new opens for writing go to the burst buffer again.
    Resume,
    /// Ends a conflict, a failure or an orphan; the result is the path of a saved replica or null.
    Resolve {
        /// Path of the file or, for an orphan, its identity in hex.
        file: String,
        /// Copy to keep.
        keep: Keep,
    },
    /// Returns the rules that hold for a path; the result is a set of all keys.
    PolicyGet {
        /// File or directory.
        path: PathBuf,
    },
    /// Adds rules to a directory.
    PolicySet {
        /// Directory.
        path: PathBuf,
        /// Rules to add.
        rules: PolicySet,
    },
    /// Removes rules of a directory: the given keys, or all.
    PolicyUnset {
        /// Directory.
        path: PathBuf,
        /// Keys to remove; empty means all.
        keys: Vec<String>,
    },
    /// Lists all directories with rules of their own; the result maps paths to sets.
    PolicyList,
    /// Makes the agent unmount and end.
    Shutdown {
        /// Whether to end even if data stays in the burst buffer.
        force: bool,
    },
}

/// Action of a staging command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Stages in, to the burst buffer.
    In,
    /// Stages out, to the global store.
    Out,
    /// Drops the replica, if clean.
    Evict,
    /// Stages in and pins.
    Pin,
    /// Unpins.
    Unpin,
    /// Only reports the state.
    State,
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// Progress so far.
    Progress {
        /// Files done.
        files_done: u64,
        /// Files known to be left; more may be found.
        files_left: u64,
        /// Bytes of the files known to be left.
        bytes_left: u64,
    },
    /// Outcome of one file.
    Item(Item),
    /// Nothing new; the agent is alive and working.
    Alive,
    /// Last line: the request was executed or, with `wait: false`, begun.
    Done {
        /// Result of the request; null if it has none.
        result: serde_json::Value,
    },
    /// Last line: the request failed.
    Failed {
        /// Errno.
        errno: i32,
        /// Reason in words.
        message: String,
    },
}

/// Outcome or state of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Path of the file.
    pub path: PathBuf,
    /// State of the replica: `absent`, `fetching`, `clean`, `dirty`, `queued`, `draining`, `conflict`, `failed` or
    /// `orphaned`.
    pub state: String,
    /// Whether the file is pinned; reported with [`Verb::State`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Identity in hex; only of an orphan, which has no path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Reason of the failure.
    pub error: Option<String>,
    /// Path of the dirty data that could not be staged out.
    pub replica: Option<PathBuf>,
}

/// The result of staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Files done.
    pub done: u64,
    /// Files that failed.
    pub failed: u64,
}

pub(crate) fn stuck_item(stuck: &Stuck) -> Item {
    Item {
        path: stuck.path_hint.clone(),
        state: stuck.state_name().into(),
        identity: stuck.orphaned.then(|| stuck.identity.to_string()),
        error: Some(stuck.reason.clone()),
        replica: Some(stuck.replica.clone()),
        ..Item::default()
    }
}

/// Returns a short path of a socket whose own path may exceed the length of a socket address.
fn short_path(directory: &impl std::os::fd::AsRawFd, name: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

#[cfg(test)]
mod tests;
