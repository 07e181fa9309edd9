//! What an operator sees.

use serde::Serialize;

/// The file cache's state at one moment. Counters start at zero when the cache is opened.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    /// Replicas known, whatever their state.
    pub files: u64,
    /// Of these: equal to their global copies.
    pub clean: u64,
    /// With data that the global copy lacks.
    pub dirty: u64,
    /// Of the dirty ones: not open, waiting for their stage-out.
    pub queued: u64,
    /// Being staged out.
    pub draining: u64,
    /// Being staged in.
    pub fetching: u64,
    /// Whose global copy changed under a dirty replica.
    pub conflict: u64,
    /// Whose stage-out cannot finish.
    pub failed: u64,
    /// Dirty, and not found in the global store.
    pub orphaned: u64,
    /// Open files.
    pub open: u64,
    /// Open descriptions.
    pub handles: u64,
    /// Bytes of replicas that wait for their stage-out (their sizes, holes included).
    pub dirty_bytes: u64,
    /// Bytes of the burst buffer's file system.
    pub total_bytes: u64,
    /// Of these, free.
    pub free_bytes: u64,
    /// Opens that found a complete replica.
    pub hits: u64,
    /// Opens that did not.
    pub misses: u64,
    /// Opens served from the global store.
    pub through: u64,
    /// Bytes copied up.
    pub staged_in_bytes: u64,
    /// Files copied up.
    pub staged_in_files: u64,
    /// Microseconds spent copying up, summed over threads.
    pub staged_in_us: u64,
    /// Bytes copied down.
    pub staged_out_bytes: u64,
    /// Files copied down, unchanged ones included.
    pub staged_out_files: u64,
    /// Microseconds spent copying down, summed over threads.
    pub staged_out_us: u64,
    /// Stage-outs that failed and will be tried again.
    pub errors: u64,
    /// Replicas evicted.
    pub evicted: u64,
    /// Files that continued through because the burst buffer was full.
    pub spilled: u64,
    /// Writes of programs past the agent that found no space: counted from free space seen as zero.
    pub full: u64,
    /// Whether new writes go to the global store.
    pub quiesced: bool,
    /// Whether replicas carry their identity, so that a lost catalogue can be rebuilt.
    pub xattrs: bool,
    /// What needs somebody's attention; at most 1,000.
    pub stuck: Vec<StuckStatus>,
}

/// A file whose data cannot reach the global store.
#[derive(Debug, Clone, Serialize)]
pub struct StuckStatus {
    /// Path relative to the accelerated directory, as last known.
    pub path: String,
    /// Identity in hex.
    pub identity: String,
    /// `dirty`, `draining`, `conflict`, `failed` or `orphaned`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// What to do.
    pub remedy: String,
    /// Where the data is.
    pub replica: String,
}
