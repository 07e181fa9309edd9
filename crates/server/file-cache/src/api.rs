//! Types of the file cache's interface.

use std::path::PathBuf;
use std::sync::Arc;

use config::Policy;
use serde::{Deserialize, Serialize};
use types::{ByteRange, Identity, Timestamp};

/// How a read of a file that is being staged in found its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fared {
    /// All bytes were in the burst buffer.
    Hit,
    /// The bytes were being fetched already.
    Late,
    /// Some bytes had to be requested.
    Miss,
}

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct OpenHow {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// `O_WRONLY` with `O_APPEND`: each write goes to the end, also one that the kernel makes without the agent. No
    /// shared mapping is possible.
    pub appends: bool,
    /// `O_TRUNC`: the content is discarded.
    pub truncate: bool,
    /// The caller created the file just now, empty.
    pub created: bool,
    /// `O_SYNC` or `O_DSYNC`. Records that recovery needs after a crash of the machine are durable before the open is
    /// answered, because the agent does not see passthrough writes.
    pub sync: bool,
    /// The policy of the file's directory.
    pub policy: Arc<Policy>,
}

/// Attributes that `stat` must report for a file instead of the global copy's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overlay {
    /// Whether the replica is ahead of the global copy. If false, only the change time differs.
    pub ahead: bool,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space of the replica, in 512-byte blocks.
    pub blocks: u64,
    /// Time of the last write.
    pub mtime: Timestamp,
    /// Change time that programs see, valid while the global copy's change time is `below`. If that has moved, the
    /// later of the two counts if the replica is ahead; otherwise the global copy's counts.
    pub ctime: Timestamp,
    /// Change time with which we left the global copy. `None`: we are changing it just now, so it says nothing.
    pub below: Option<Timestamp>,
}

/// Effect of a `utimens` on the modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMtime {
    /// The time stays unchanged.
    Keep,
    /// The time is set to the moment of the call.
    Now,
    /// The time is set to the given value.
    To(Timestamp),
}

/// Where a file's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Only in the global store.
    Absent,
    /// Being staged in.
    Fetching,
    /// In both places, with equal bytes.
    Clean,
    /// Ahead of the global copy, and open for writing or mapped.
    Dirty,
    /// Ahead of the global copy, and waiting for its stage-out.
    Queued,
    /// Being staged out.
    Draining,
    /// Conflict: both copies changed.
    Conflict,
    /// The stage-out of the file cannot finish.
    Failed,
}

impl Residency {
    /// Returns the name of the state, as in commands and protocols.
    pub fn name(self) -> &'static str {
        match self {
            Residency::Absent => "absent",
            Residency::Fetching => "fetching",
            Residency::Clean => "clean",
            Residency::Dirty => "dirty",
            Residency::Queued => "queued",
            Residency::Draining => "draining",
            Residency::Conflict => "conflict",
            Residency::Failed => "failed",
        }
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

/// Target of a `seek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekFor {
    /// `SEEK_DATA`
    Data,
    /// `SEEK_HOLE`
    Hole,
}

/// Where a write went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Number of bytes written. That is all of the data, except for an append that found no more room.
    pub written: usize,
    /// Offset of the first byte: the former end of the file for an append.
    pub offset: u64,
}

/// Callback for changed bytes of a file. Gets the file, the range and the mark of the handle that changed it.
pub type TellChange = Box<dyn Fn(&Identity, ByteRange, u64) + Send + Sync>;

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
