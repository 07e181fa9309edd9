//! The control socket: how the command line talks to a running agent.
//!
//! A Unix socket in the burst buffer, mode 0600, for root and the agent's own user. One request a line, as JSON; the
//! answer is any number of [`Reply::Progress`], [`Reply::Item`] and [`Reply::Alive`] lines and then one [`Reply::Done`]
//! or [`Reply::Failed`]. A line comes at least every [`limits::CONTROL_BEAT`](crate::limits::CONTROL_BEAT). Hanging up interrupts what is under way. Paths are relative to the accelerated directory.

mod client;
mod commands;
mod listener;
mod paths;
mod staging;
mod stall;

use std::path::{Path, PathBuf};

use config::PolicySet;
use file_cache::{Stuck, Which};
use serde::{Deserialize, Serialize};

pub use crate::xattr::CONTROL;
pub use client::ControlClient;
pub use commands::Say;
pub use file_cache::Keep;
pub use listener::{Commanded, ControlListener};
pub use stall::Stall;

/// The socket's name in the burst buffer.
pub const SOCKET: &str = "agent.sock";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Nothing: is somebody there? The result is the agent's process id.
    Ping,
    /// The state of the file cache; the result is [`file_cache::Status`] as JSON.
    Status,
    /// Stages out everything dirty, or a file, or what is below a directory; stuck files come as items.
    Drain {
        /// What; all without.
        path: Option<PathBuf>,
        /// Answer when it is done, not when it has begun.
        wait: bool,
        /// Of a drain of everything: end it, and tell what is left, when it has come no further for so many milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patience_ms: Option<u64>,
    },
    /// Moves files' data. Failures come as items, and with [`Verb::State`] every file; the result is [`Counts`].
    Stage {
        /// Which way.
        verb: Verb,
        /// What.
        paths: Vec<PathBuf>,
        /// Everything below directories too.
        recursive: bool,
        /// Answer when it is done, not when it has begun.
        wait: bool,
    },
    /// Drops clean data that nobody uses; the result is [`file_cache::Cleaned`].
    Clean {
        /// Which.
        which: Which,
    },
    /// From now on new opens for writing go to the global store.
    Quiesce,
    /// New opens for writing go to the burst buffer again.
    Resume,
    /// Ends a conflict, a failure or an orphan; the result is the path of a saved replica or null.
    Resolve {
        /// Which file, by path or, for an orphan, by identity in hex.
        file: String,
        /// Which copy stays.
        keep: Keep,
    },
    /// The rules that hold for a path; the result is a set of all keys.
    PolicyGet {
        /// File or directory.
        path: PathBuf,
    },
    /// Adds rules to a directory.
    PolicySet {
        /// Directory.
        path: PathBuf,
        /// Its new rules.
        rules: PolicySet,
    },
    /// Forgets rules of a directory: these keys, or all.
    PolicyUnset {
        /// Directory.
        path: PathBuf,
        /// Which; none means all.
        keys: Vec<String>,
    },
    /// All directories with rules of their own; the result maps paths to sets.
    PolicyList,
    /// The agent is to unmount and end.
    Shutdown {
        /// Although data may stay in the burst buffer.
        force: bool,
    },
}

/// Which way data is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Into the burst buffer.
    In,
    /// Out to the global store.
    Out,
    /// Dropped from the burst buffer, if clean.
    Evict,
    /// Kept in the burst buffer; staged in first.
    Pin,
    /// No longer kept.
    Unpin,
    /// Told only.
    State,
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// How far it is.
    Progress {
        /// Files done.
        files_done: u64,
        /// Files known to be left; more may be found.
        files_left: u64,
        /// Bytes of these.
        bytes_left: u64,
    },
    /// One file.
    Item(Item),
    /// Nothing new: the agent lives and works.
    Alive,
    /// The end: it was done, or with `wait: false` begun.
    Done {
        /// What the request promises; null if nothing.
        result: serde_json::Value,
    },
    /// The end: it was not done.
    Failed {
        /// Why, as an errno.
        errno: i32,
        /// Why, in words.
        message: String,
    },
}

/// What became of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its path.
    pub path: PathBuf,
    /// Where its data is: `absent`, `fetching`, `clean`, `dirty`, `queued`, `draining`, `conflict`, `failed` or `orphaned`.
    pub state: String,
    /// Told of a file that is kept in the burst buffer, with [`Verb::State`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// In hex, of an orphan: it has no path any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Why it was not done.
    pub error: Option<String>,
    /// Where the dirty data is that could not be staged out.
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

/// A short way to a socket whose own path may be longer than a socket's address can be.
fn short_path(directory: &impl std::os::fd::AsRawFd, name: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name)
}

#[cfg(test)]
mod tests;
