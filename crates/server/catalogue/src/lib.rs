//! Catalogue: one record per replica. The records are Forebay's only durable state of its own.
//!
//! [`Catalogue`] is implemented with [`fjall`](https://docs.rs/fjall) on disk; a model in memory is for tests.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod disk;
mod layout;
pub mod limits;

use std::path::PathBuf;

use types::{Epoch, Fingerprint, Identity, Timestamp, Version};

pub use disk::FjallCatalogue;

/// Durable part of a replica's residency. No record stands for `ABSENT`. `FETCHING` is not recorded, because a replica
/// file without a record is garbage. `QUEUED` is `Dirty` without a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The replica has the bytes of the global copy whose fingerprint is `base`.
    Clean,
    /// The replica holds, or may hold, bytes that the global copy lacks. Recorded before the first such byte is
    /// accepted.
    Dirty,
    /// A stage-out has begun to change the global copy.
    Draining,
    /// The global copy changed while the replica was dirty. Both are kept until `resolve`.
    Conflict,
    /// A stage-out cannot finish; `reason` says why.
    Failed,
}

/// Record of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Durable state of the replica.
    pub state: State,
    /// Version number of the replica's file.
    pub version: Version,
    /// Counter that orders the committed changes of the replica.
    pub epoch: Epoch,
    /// Fingerprint of the global copy when the replica was last equal to it, or when the first dirty write was
    /// accepted.
    pub base: Fingerprint,
    /// Whether block checksums recorded while the replica was clean may be used to find changed blocks.
    pub was_clean: bool,
    /// Whether a later content of the global copy may also have the fingerprint `base`. True if the fingerprint was
    /// taken before the clock of the global store moved on.
    pub racy: bool,
    /// CRC-64/NVME of the content with fingerprint `base`. `None` if not known or if the content is longer than one
    /// block.
    pub sum: Option<u64>,
    /// Change time that programs see as long as the global copy's change time is that of `base`. `Some` if our own
    /// bookkeeping changed the global copy's.
    pub shown: Option<Timestamp>,
    /// Whether the replica is never evicted and never expires.
    pub pinned: bool,
    /// Whether the replica is dirty and its file was not found in the global store.
    pub orphaned: bool,
    /// Whether the file's last name is about to be removed through the agent, or the file has no name yet. If the file
    /// is then not found in the global store, its data may be discarded.
    pub removing: bool,
    /// Whether the replica is on the medium and a program may have been told that its data survives a crash of the
    /// machine. If such a replica is missing after a crash, data was lost.
    pub synced: bool,
    /// Length in bytes of a dirty replica at the last sync that found it longer than before, or the length it was
    /// truncated to since. 0: not known.
    pub synced_len: u64,
    /// Whether the replica was changed while no agent ran. Nobody may use it until a user decides which data to keep.
    pub damaged: bool,
    /// Path relative to the accelerated directory when the record was written. Only a hint.
    pub hint: PathBuf,
    /// Time of last use, in seconds since 1970. Used for expiry and eviction after a restart.
    pub used_s: u64,
    /// Reason for `Failed` or `Conflict`; empty in other states.
    pub reason: String,
}

/// Crash that a commit must survive once it has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The commit survives the death of the process.
    Process,
    /// The commit and all commits before it survive the death of the machine.
    Machine,
}

/// One change of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a record.
    Put(Identity, Record),
    /// Removes a record. Removing a record that does not exist is no error.
    Remove(Identity),
}

impl Change {
    /// Returns the identity whose record is changed.
    pub fn identity(&self) -> &Identity {
        match self {
            Change::Put(identity, _) | Change::Remove(identity) => identity,
        }
    }
}

/// Failure of a catalogue operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Opening or creating the catalogue failed.
    #[error("cannot open the catalogue {path}: {reason}")]
    Open {
        /// Directory of the catalogue.
        path: PathBuf,
        /// Reason given by the database or the operating system.
        reason: String,
    },
    /// Another version of Forebay wrote the catalogue.
    #[error("the catalogue {path} has format {found}, this program knows {known}: use the version that wrote it")]
    Format {
        /// Directory of the catalogue.
        path: PathBuf,
        /// Format found on disk.
        found: String,
        /// Format that this program knows.
        known: u32,
    },
    /// Bytes on disk are not a valid record.
    #[error("a damaged catalogue record for {identity}: {reason}")]
    Damaged {
        /// Identity of the record's file, in hex.
        identity: String,
        /// Defect that was found.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("the catalogue cannot {step}: {reason}")]
    Io {
        /// Step that failed.
        step: &'static str,
        /// Reason given by the database.
        reason: String,
    },
}

impl Error {
    /// Returns true if another version of the program can read the catalogue, false if it is damaged or unreachable.
    pub fn is_of_another_version(&self) -> bool {
        matches!(self, Error::Format { found, .. } if found.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// Crash-safe map from identity to record. Every method may be called from any thread.
pub trait Catalogue: Send + Sync {
    /// Returns the record of a file, or `None` if there is none.
    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error>;
    /// Returns whether there may be a record of a file whose identity begins with `_start`.
    fn may_have(&self, _start: &[u8]) -> Result<bool, Error> {
        Ok(true)
    }
    /// Applies all changes or none. Concurrent commits share one write and one sync.
    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error>;
    /// Calls `each` for every record that is not `Clean`, without reading the clean ones.
    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error>;
    /// Calls `each` for every record until it returns `false`, and `damaged` for every damaged record.
    fn scan(&self, each: &mut dyn FnMut(Identity, Record) -> bool, damaged: &mut dyn FnMut(Error))
    -> Result<(), Error>;
    /// Returns why changes are refused now; `None` if they are accepted.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// Returns whether there is room for commits that take space in the burst buffer. If not, the remaining room is for
    /// commits that free space. If those are refused too, the burst buffer is full.
    fn has_room(&self) -> bool {
        true
    }
    /// Returns about how many bytes of commits the next opening would read again.
    fn replay_bytes(&self) -> u64 {
        0
    }
    /// Writes all commits to tables, so that the next opening reads none of them again. All other calls wait for some
    /// milliseconds. Does nothing while a scan runs, or if there is little free space. After an error, nothing has
    /// changed or changes are refused until a commit repairs the database.
    fn condense(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Ends the use of the catalogue; nothing can be read or changed afterwards. Does the work of `condense` first if
    /// it is worth it. An error means that the next opening takes longer.
    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
