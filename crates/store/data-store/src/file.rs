//! State of a file in a store, and notes about changes of one.

use global_store::Anchor;
use types::{Fingerprint, Timestamp};

/// Where a file's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Residency {
    /// Only in the global store.
    #[default]
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

/// State of a file's replica. Of what is unknown, the fields hold the careful answer, as the default does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Where the data is.
    pub residency: Residency,
    /// Whether the replica holds, or may hold, bytes that the global copy lacks.
    pub dirty: bool,
    /// Whether such bytes are known to be lost: the replica is missing or damaged.
    pub lost: bool,
    /// Whether somebody has the file open, or may have.
    pub open: bool,
    /// Whether the replica is pinned.
    pub pinned: bool,
    /// Whether the global copy should be looked at before its attributes or names are changed.
    pub wants_look: bool,
}

impl Default for FileState {
    fn default() -> FileState {
        let (dirty, open) = (true, true);
        FileState { residency: Residency::Absent, dirty, open, lost: false, pinned: false, wants_look: false }
    }
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

/// Something that happened to a file, or is about to.
#[derive(Clone, Copy)]
pub enum FileChange<'a> {
    /// The global copy was looked at, and had this fingerprint.
    Seen(&'a Fingerprint),
    /// Attributes or names were changed through us since this time of the file system's clock.
    Attributes(Timestamp),
    /// Names or attributes were changed through us just now.
    Names(&'a dyn Anchor),
    /// The last name is about to be removed through us.
    Removing,
    /// The last name was removed through us.
    Unlinked,
    /// Other nodes may have changed the file: what was read ahead is dropped.
    Elsewhere,
}
