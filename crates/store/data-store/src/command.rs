//! Commands of administrators, and what they report.

use std::path::PathBuf;
use std::sync::Arc;

use config::Policy;
use global_store::Anchor;
use serde::{Deserialize, Serialize};
use types::Identity;

use crate::file::Residency;

/// A command about one file or the whole store.
pub enum StoreCommand<'a> {
    /// Copies a whole file into the burst buffer and waits.
    StageIn(&'a Arc<dyn Anchor>, &'a Arc<Policy>),
    /// Drops a clean replica.
    Evict(&'a Identity),
    /// Pins or unpins a replica.
    Pin(&'a Identity, bool),
    /// Returns when all writes would survive a crash of the machine: in the burst buffer or, with a server, in the
    /// global store.
    SyncAll,
    /// Drops clean replicas that are not in use.
    Clean(&'a Which),
    /// Ends a conflict, a failure or an orphan.
    Resolve(&'a Identity, Keep),
    /// Brings a delegated directory to the global store, which answers from then on; does nothing for others. Named by its tree or by
    /// a file in it. Errors: `EBUSY` if something waits, or a file is open for writing.
    GiveBack(&'a Identity),
    /// Turns quiescing on or off: while on, new writes go to the global store.
    Quiesce(bool),
    /// Tells a server that nothing more will be asked about the agent with this name.
    ForgetClient(&'a [u8; 16]),
    /// Closes the store, which must not be used afterwards. Errors: `EBUSY` if calls to the global store have not
    /// returned. Then this process must end, and keeps the burst buffer until it does.
    Shutdown,
}

/// Result of a [`StoreCommand`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command was executed.
    Done,
    /// Result of [`StoreCommand::Clean`].
    Cleaned(Cleaned),
    /// Path at which [`Keep::Both`] saved the replica's data.
    Saved(PathBuf),
}

/// Which clean data is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    /// Upper bound of the last use, in seconds since 1970: only replicas last used before it are removed.
    pub used_before_s: u64,
    /// Bytes to free. No more replicas are removed than that needs, the longest unused first.
    pub bytes: u64,
    /// Whether replicas are only counted.
    pub dry_run: bool,
}

/// Replicas removed, or that would be removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaned {
    /// Number of replicas.
    pub files: u64,
    /// Bytes that the replicas took.
    pub bytes: u64,
    /// Last use of the longest unused replica that stays, in seconds since 1970. `None` if no removable replica stays.
    pub next_used_s: Option<u64>,
}

impl Cleaned {
    /// Counts one more replica.
    pub fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// A file whose dirty data did not reach the global store.
#[derive(Debug, Clone)]
pub struct Stuck {
    /// Path relative to the accelerated directory, as last known.
    pub path_hint: PathBuf,
    /// The file's identity.
    pub identity: Identity,
    /// State of the file's data.
    pub state: Residency,
    /// Whether the file was not found in the global store.
    pub orphaned: bool,
    /// Reason for people.
    pub reason: String,
    /// The errno behind the reason; `EINTR` if the caller interrupted the wait.
    pub errno: i32,
    /// Path of the replica with the data.
    pub replica: PathBuf,
}

/// The name for dirty data whose file is not in the global store, in commands and protocols.
pub const ORPHANED: &str = "orphaned";

impl Stuck {
    /// Returns the name of the state, in commands and protocols.
    pub fn state_name(&self) -> &'static str {
        if self.orphaned { ORPHANED } else { self.state.name() }
    }
}

/// Which copy of a conflict is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The replica replaces the global copy.
    BurstBuffer,
    /// The global copy stays; the replica's data is discarded.
    Global,
    /// The global copy stays. The replica is saved in `saved/` beside the burst buffer's data, and its path is
    /// returned.
    Both,
}

impl Keep {
    /// Returns the choices that `resolve` offers for a file that waits for a decision, as commands take them. An
    /// orphan's data cannot replace a global copy that does not exist. Data that is not `there` cannot be saved.
    pub fn choices(orphaned: bool, there: bool) -> &'static str {
        match (orphaned, there) {
            (_, false) => "global",
            (true, true) => "global|both",
            (false, true) => "burst-buffer|global|both",
        }
    }
}

/// Progress of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainProgress {
    /// Files staged out since the drain began.
    pub files_done: u64,
    /// Files still to be staged out.
    pub files_left: u64,
    /// Bytes of the files still to be staged out.
    pub bytes_left: u64,
}
