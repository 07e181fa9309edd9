//! The catalogue: one record per replica, the only durable truth that is ours.
//!
//! Two implementations of [`Catalogue`]: [`fjall`](https://docs.rs/fjall) on disk and one in memory for tests and
//! models.

mod disk;
mod layout;
pub mod limits;
mod memory;

use std::path::PathBuf;

use types::{Epoch, Fingerprint, Identity, Timestamp, Version};

pub use disk::FjallCatalogue;
pub use memory::MemoryCatalogue;

/// The durable part of a replica's residency. `ABSENT` is the lack of a record; `FETCHING` is not recorded (a replica
/// file without a record is garbage); `QUEUED` is `Dirty` without a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The same bytes as the global copy whose fingerprint is `base`.
    Clean,
    /// Holds bytes that the global copy lacks, or may: recorded before the first such byte is accepted.
    Dirty,
    /// A stage-out has begun to change the global copy.
    Draining,
    /// The global copy changed under a dirty replica. Both are kept until `resolve`.
    Conflict,
    /// Stage-out cannot finish; `reason` says why.
    Failed,
}

/// What is known of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it stands.
    pub state: State,
    /// The replica's file.
    pub version: Version,
    /// Orders its committed changes.
    pub epoch: Epoch,
    /// The global copy's fingerprint when the replica was last equal to it, or when the first dirt was accepted.
    pub base: Fingerprint,
    /// Whether block checksums recorded while it was clean may be used to find what changed.
    pub was_clean: bool,
    /// A later content may have the fingerprint `base` as well: it was taken before the clock of the global store moved on.
    pub racy: bool,
    /// CRC-64/NVME of the content that `base` is of, if that is known and has at most one block.
    pub sum: Option<u64>,
    /// The time of change that programs see as long as the global copy has that of `base`, where our own bookkeeping moved it.
    pub shown: Option<Timestamp>,
    /// Never evicted, never expired.
    pub pinned: bool,
    /// Dirty, and its file is not found in the global store.
    pub orphaned: bool,
    /// Its last name is about to be taken away through us, or it has none yet: if its file is then not in the global
    /// store, nobody misses the data.
    pub removing: bool,
    /// What the replica holds may have been told to survive a crash of the machine, and the replica is on the medium: if
    /// it is missing after one, data was lost.
    pub synced: bool,
    /// Length of a dirty replica at the last sync that found it longer than before, or what it was cut to since; 0: not known.
    pub synced_len: u64,
    /// The replica was changed while no agent ran: nobody may use it before somebody says what is to be kept.
    pub damaged: bool,
    /// Path relative to the accelerated directory when the record was written: a hint.
    pub hint: PathBuf,
    /// Last use, in seconds since 1970, for expiry and eviction after a restart.
    pub used_s: u64,
    /// Why it is `Failed` or `Conflict`; empty otherwise.
    pub reason: String,
}

/// How long a commit must hold once it has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It survives the death of the process.
    Process,
    /// It survives the death of the machine, and so does every commit before it.
    Machine,
}

/// One change of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a record.
    Put(Identity, Record),
    /// Removes a record; removing none is no error.
    Remove(Identity),
}

impl Change {
    /// Whose record it changes.
    pub fn identity(&self) -> &Identity {
        match self {
            Change::Put(identity, _) | Change::Remove(identity) => identity,
        }
    }
}

/// Why the catalogue could not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be opened or created.
    #[error("cannot open the catalogue {path}: {reason}")]
    Open {
        /// Where.
        path: PathBuf,
        /// What the store said.
        reason: String,
    },
    /// It was written by another version of Forebay.
    #[error("the catalogue {path} has format {found}, this program knows {known}: use the version that wrote it")]
    Format {
        /// Where.
        path: PathBuf,
        /// The format on disk.
        found: String,
        /// Ours.
        known: u32,
    },
    /// Bytes on disk that are no record.
    #[error("a damaged catalogue record for {identity}: {reason}")]
    Damaged {
        /// Whose record, in hex.
        identity: String,
        /// What is wrong.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("the catalogue cannot {step}: {reason}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the store said.
        reason: String,
    },
}

impl Error {
    /// True if another program should read it; false if it is damaged, or cannot be reached.
    pub fn is_of_another_version(&self) -> bool {
        matches!(self, Error::Format { found, .. } if found.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// A crash-safe map from identity to record. Every method may be called from any thread.
pub trait Catalogue: Send + Sync {
    /// The record of a file.
    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error>;
    /// Whether there may be a record of a file whose identity begins so.
    fn may_have(&self, _start: &[u8]) -> Result<bool, Error> {
        Ok(true)
    }
    /// Applies all changes or none. Commits that run at once share one write and one sync.
    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error>;
    /// Calls `each` for every record that is not `Clean`, without reading the clean ones.
    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error>;
    /// Calls `each` for every record until it says `false`. Damaged records go to `damaged`.
    fn scan(&self, each: &mut dyn FnMut(Identity, Record) -> bool, damaged: &mut dyn FnMut(Error))
    -> Result<(), Error>;
    /// Why changes are refused now, if they are.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// Whether commits may be made that take room in the burst buffer. If not, what is left is for those that free some; and where even
    /// these are refused, that is for want of room.
    fn has_room(&self) -> bool {
        true
    }
    /// Bytes of commits that the next opening would have to read again, about.
    fn replay_bytes(&self) -> u64 {
        0
    }
    /// Spares the next opening that. Everybody waits for it some milliseconds; nothing is done while somebody scans, or
    /// there is little room for it. An error leaves all as it was, or changes refused until a commit mends it.
    fn condense(&self) -> Result<(), Error> {
        Ok(())
    }
    /// The end of its use: `condense`, if that is worth it, and nothing can be read or changed any more. An error means
    /// that the next opening takes longer.
    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
