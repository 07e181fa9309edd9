//! The server's side of names through a server: a door like this machine's answers the messages of other machines'
//! kernels.
//!
//! [`NameService`] is a service beside the one for data. The node's side is the crate `relay`, whose invariants both keep
//! together. [`RecoveryRecords`] says who may claim locks after a restart.
//!
//! # Invariants
//!
//! 1. A number of a node or an open file never gets a second meaning. A number that nobody has claimed is `ESTALE`.
//! 2. Lookups and handles of an answer that the kernel never received are taken back.
//! 3. A process id of another machine is never looked up: requests carry their caller's groups.
//! 4. Nobody gets a lock that a node may still claim.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod about;
mod events;
pub mod limits;
mod names;
mod node;
mod recovery_records;

pub use names::{ClientSession, NameService};
pub use recovery_records::{LockHold, Locker, Name, RecoveryRecords};
