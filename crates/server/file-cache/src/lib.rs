//! The file cache: keeps replicas of files in the burst buffer, and decides which files have one.
//!
//! The cache copies data from the global store (*stage in*) and to it (*stage out*), and evicts replicas. It survives
//! crashes by the steps W0..W8 and P0..P4 (`fault.rs` names each). It is a synchronous library without a network:
//! callers supply the global store's [`Anchor`]s, and policies.
//!
//! # Invariants
//!
//! 1. A replica that holds bytes the global copy lacks has a record that says so, from before the first such byte.
//! 2. Dirty data is never evicted. Its record is dropped only by unlink, `resolve` or a verified copy.
//! 3. A record says `Clean` only after the global copy was read to have exactly the size and time that we left, while
//!    nobody could write the replica.
//! 4. A handle sees one version of the data: a replica is never rewritten with other content under it.
//! 5. No version number is used twice.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod announce;
mod api;
mod budget;
mod cache;
mod check;
mod clean;
mod clock;
mod conclude;
mod content;
mod copy;
mod damage;
mod doubt;
mod drain;
mod errors;
mod eviction;
mod extents;
pub mod fault;
mod fetches;

mod finish;
mod handle;
mod identity_attribute;
mod identity_attributes;
mod intent;
mod last_access;
mod lease;
pub mod limits;
mod marks;
mod medium;
mod noting;
mod open;
mod outcome;
mod pace;
mod pass;
mod publish;
mod read_partial;
mod recovery;
mod refusal;
mod release;
mod removal;
mod replica;
mod residency;
mod resolve;
mod search;
mod settings;
mod space;
mod spare;
mod stage_in;
mod stage_out;
mod status;
mod sums;
mod superblock;
mod surface;
mod sync_all;
mod times;
mod void;
mod withdrawal;
#[cfg(test)]
mod world;

pub use api::{
    Cleaned, DrainProgress, Fared, Keep, ORPHANED, OpenHow, Overlay, Residency, SeekFor, SetMtime, Stuck, TellChange,
    Which, WriteResult,
};
pub use check::CheckReport;
pub use clean::IdlePlace;
pub use clock::Clock;
pub use doubt::now_of_files;
pub use handle::{Backdating, FileHandle, WriteBehind};
pub use read_partial::{FindMissing, Foresee};
pub use replica::{holds_unsaved_data, last_version, with_identity_attribute};
pub use residency::File;
pub use resolve::save_as;
pub use search::may_go_with_crash;
pub use settings::{Neighbours, OpenError, Settings, Space, SpaceProbe};
pub use status::{Status, StuckStatus};
pub use superblock::{check_owner, first_after_crash, is_damaged, keep_private, lock, remake, store_of};
pub use surface::FileCache;

pub use global_store::Anchor;
