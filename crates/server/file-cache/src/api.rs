//! The words of the surface.

use std::path::PathBuf;
use std::sync::Arc;

use config::Policy;
use serde::{Deserialize, Serialize};
use types::{ByteRange, Identity, Timestamp};

/// How a read of a file that is being staged in found its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fared {
    /// In the burst buffer.
    Hit,
    /// On their way.
    Late,
    /// Some had to be asked for.
    Miss,
}

/// How a file is opened.
#[derive(Debug, Clone)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Each write goes to the end, also one that the kernel makes past us, and no mapping can: `O_WRONLY` with `O_APPEND`.
    pub appends: bool,
    /// `O_TRUNC`: the content goes.
    pub truncate: bool,
    /// The caller created the file just now, empty.
    pub created: bool,
    /// `O_SYNC` or `O_DSYNC`: what a crash of the machine needs to know is durable before the open is answered, because
    /// passthrough writes tell us nothing.
    pub sync: bool,
    /// The rules of its directory.
    pub policy: Arc<Policy>,
}

/// What `stat` must say of a file instead of the global copy's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overlay {
    /// The replica is ahead of the global copy. Else the time of change alone is to be told.
    pub ahead: bool,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks that the replica takes.
    pub blocks: u64,
    /// Last write.
    pub mtime: Timestamp,
    /// Last change, as long as the global copy's is `below`. When that moved, it is the later of the two if the replica is ahead, and
    /// else the global copy's.
    pub ctime: Timestamp,
    /// The global copy's time of change as we left it; `None`: we move it just now, and it tells nothing.
    pub below: Option<Timestamp>,
}

/// What a `utimens` does to the time of the last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMtime {
    /// Leaves it.
    Keep,
    /// Sets it to the moment of the call.
    Now,
    /// Sets it.
    To(Timestamp),
}

/// Where a file's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Residency {
    /// Only in the global store.
    Absent,
    /// Being copied up.
    Fetching,
    /// In both, equal.
    Clean,
    /// Ahead of the global copy and open for writing, or mapped.
    Dirty,
    /// Ahead, and waiting for its stage-out.
    Queued,
    /// Being copied down.
    Draining,
    /// Both changed.
    Conflict,
    /// Its stage-out cannot finish.
    Failed,
}

impl Residency {
    /// The word for it, in commands and protocols.
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

/// Dirty data that did not reach the global store.
#[derive(Debug, Clone)]
pub struct Stuck {
    /// Path relative to the accelerated directory, as last known.
    pub path_hint: PathBuf,
    /// Whose.
    pub identity: Identity,
    /// Where it stands.
    pub state: Residency,
    /// Not found in the global store.
    pub orphaned: bool,
    /// Why.
    pub reason: String,
    /// The errno behind it; `EINTR` when the caller interrupted the wait.
    pub errno: i32,
    /// Where the data is.
    pub replica: PathBuf,
}

/// The word for dirty data whose file is not in the global store, in commands and protocols.
pub const ORPHANED: &str = "orphaned";

impl Stuck {
    /// The word for where it stands, in commands and protocols.
    pub fn state_name(&self) -> &'static str {
        if self.orphaned { ORPHANED } else { self.state.name() }
    }
}

/// Which copy of a conflict stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// The replica replaces the global copy.
    BurstBuffer,
    /// The global copy stays; the replica's data goes.
    Global,
    /// The global copy stays; the replica is saved beside the burst buffer's data in `saved/` and its path is returned.
    Both,
}

impl Keep {
    /// What can be asked for of a file that waits for a decision, as commands take it: nothing of an orphan goes where no file is, and
    /// nothing is saved of data that is not `there`.
    pub fn choices(orphaned: bool, there: bool) -> &'static str {
        match (orphaned, there) {
            (_, false) => "global",
            (true, true) => "global|both",
            (false, true) => "burst-buffer|global|both",
        }
    }
}

/// How far a drain has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainProgress {
    /// Files staged out since the drain began.
    pub files_done: u64,
    /// Files still to go.
    pub files_left: u64,
    /// Bytes of the files still to go.
    pub bytes_left: u64,
}

/// What `seek` looks for.
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
    /// Bytes written: all of the data, but for an append that found no more room.
    pub written: usize,
    /// Where they begin: the end of the file for an append.
    pub offset: u64,
}

/// Hears of bytes of a file that were changed, and by handles with which mark.
pub type TellChange = Box<dyn Fn(&Identity, ByteRange, u64) + Send + Sync>;
