//! The file cache: keeps replicas of files in the burst buffer, and decides which files have one.
//!
//! The cache copies data from the global store (*stage in*) and to it (*stage out*), and evicts replicas. It survives
//! crashes by the steps W0..W8 and P0..P4 (`fault.rs` names each). It is a synchronous library without a network:
//! callers supply the global store's [`Anchor`]s, and policies. State lies in `burst_buffer`, `residency` and `cache`,
//! below the modules that act on it.
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

mod burst_buffer;
mod cache;
mod check;
mod clean;
mod clock;
mod errors;
mod eviction;
pub mod fault;
mod global_copy;
mod handle;
mod housekeeping;
pub mod limits;
mod medium;
mod note;
mod open;
mod read_partial;
mod recovery;
mod removal;
mod residency;
mod resolve;
mod seam;
mod settings;
mod stage_in;
mod stage_out;
mod status;
#[cfg(test)]
mod world;

pub use burst_buffer::replica::{holds_unsaved_data, last_version, with_identity_attribute};
pub use burst_buffer::superblock::{check_owner, first_after_crash, is_damaged, keep_private, lock, remake, store_of};
pub use check::CheckReport;
pub use clean::IdlePlace;
pub use clock::Clock;
pub use recovery::may_go_with_crash;
pub use resolve::save_as;
pub use seam::FileCache;
pub use settings::{Neighbours, OpenError, Settings, Space, SpaceProbe};
