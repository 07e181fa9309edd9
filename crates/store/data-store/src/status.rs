//! Status for operators.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// State of a store at one moment. Counters start at zero when the store is opened.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Status {
    /// Number of replicas known, whatever their state.
    pub files: u64,
    /// Clean replicas: equal to their global copies.
    pub clean: u64,
    /// Pinned replicas.
    #[serde(default)]
    pub pinned: u64,
    /// Dirty files that can be staged out, including those that are being staged out. Conflicts and failures are not
    /// counted.
    pub dirty: u64,
    /// Dirty files that are not open and wait for their stage-out.
    pub queued: u64,
    /// Dirty files that are being staged out.
    pub draining: u64,
    /// Files that are being staged in.
    pub fetching: u64,
    /// Files in conflict: the global copy changed under a dirty replica.
    pub conflict: u64,
    /// Files whose stage-out cannot finish.
    pub failed: u64,
    /// Dirty files that were not found in the global store.
    pub orphaned: u64,
    /// Removed files whose synced data is kept until the global store's medium has their removal. Counted in `files`.
    #[serde(default)]
    pub removed: u64,
    /// Delegated directory trees.
    #[serde(default)]
    pub delegated_trees: u64,
    /// Files and directories of delegated trees of which the global store lacks changes. Counted in `dirty`.
    #[serde(default)]
    pub waiting_names: u64,
    /// Small files of delegated trees that lie many to a file. Counted in `files`.
    #[serde(default)]
    pub packed_files: u64,
    /// Number of open files.
    pub open: u64,
    /// Number of open file descriptions.
    pub handles: u64,
    /// Bytes of replicas that wait for their stage-out (their sizes, holes included).
    pub dirty_bytes: u64,
    /// Bytes of the burst buffer's file system.
    pub total_bytes: u64,
    /// Free bytes of that file system.
    pub free_bytes: u64,
    /// Opens that found a complete replica.
    pub hits: u64,
    /// Opens that did not.
    pub misses: u64,
    /// Opens served from the global store.
    pub through: u64,
    /// Reads of files being staged in that found their bytes in the burst buffer.
    pub read_hits: u64,
    /// Reads of such files that waited for bytes already being fetched.
    pub read_late: u64,
    /// Reads of such files that had to request bytes.
    pub read_misses: u64,
    /// Bytes staged in.
    pub staged_in_bytes: u64,
    /// Files staged in.
    pub staged_in_files: u64,
    /// Microseconds in which at least one file was staged in.
    pub staged_in_us: u64,
    /// Bytes staged out.
    pub staged_out_bytes: u64,
    /// Files staged out, unchanged ones included.
    pub staged_out_files: u64,
    /// Microseconds in which at least one stage-out was under way.
    pub staged_out_us: u64,
    /// Stage-outs that failed and will be tried again.
    pub errors: u64,
    /// The last failed stage-out: the file's path as last known, and the reason.
    #[serde(default)]
    pub failure: Option<(String, String)>,
    /// Replicas evicted.
    pub evicted: u64,
    /// Files that moved to the global store because the burst buffer was full.
    pub spilled: u64,
    /// Writes of programs without the agent that found no space: counted when free space was seen as zero.
    pub full: u64,
    /// Whether new writes go to the global store.
    pub quiesced: bool,
    /// Whether replicas can carry identity attributes, so that a lost catalogue can be rebuilt.
    pub xattrs: bool,
    /// Dirty files whose identity attribute is missing or out of date, because the file system refused it. It is tried
    /// again. A catalogue that is lost before that is rebuilt without these files.
    #[serde(default)]
    pub without_identity_attribute: u64,
    /// Files that need attention, at most 1,000.
    pub stuck: Vec<StuckStatus>,
}

/// A file whose data cannot reach the global store, or the catalogue when it takes no changes (without an identity).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StuckStatus {
    /// Path relative to the accelerated directory, as last known.
    pub path: String,
    /// Identity in hex.
    pub identity: String,
    /// `dirty`, `draining`, `conflict`, `failed` or `orphaned`.
    pub state: String,
    /// Reason for people.
    pub reason: String,
    /// Advice for the operator. `PATH` and `IDENTITY` in it stand for those of the file.
    pub remedy: String,
    /// Path of the replica with the data.
    pub replica: String,
}

/// How much a status covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusScope {
    /// Everything, which may require reading all records. With a server: of all that it serves.
    All,
    /// All that does not depend on the number of replicas: `files`, `clean` and `pinned` may stay 0.
    Activity,
    /// All that this process knows without asking a server.
    Node,
}

/// Status of a store, and of the server in between.
#[derive(Debug)]
pub struct StoreStatus {
    /// The counters, or why the server did not tell them.
    pub counters: io::Result<Status>,
    /// State of the server; `None` without one.
    pub server: Option<ServerState>,
}

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Address at which the server listens.
    pub address: String,
    /// Time for which the server has not answered. `None`: the last request was answered, or none was sent.
    pub away: Option<Duration>,
}
