//! The server: a file cache with a door to the network. Agents of many nodes keep the names, which they see in the global
//! store as it does; it has the data of their files.
//!
//! # Invariants
//!
//! 1. What was answered is in the file cache: a server that is killed and started again has it.
//! 2. A handle is a client's own: no client reaches another one's.
//! 3. Whatever a client asks for is bounded: handles, jobs, bytes of an answer.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod boot_verifier;
mod convert;
mod departed;
pub mod fault;
mod files;
mod handles;
mod jobs;
pub mod limits;
mod policies;
mod service;
mod versions;

pub use boot_verifier::BootVerifier;
pub use service::Files;
