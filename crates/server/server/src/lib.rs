//! The server: makes a file cache available over the network. Agents of many nodes resolve the names, in the global
//! store that the server sees as well. The server holds the data of their files.
//!
//! # Invariants
//!
//! 1. Whatever was acknowledged is in the file cache: a server that is killed and started again still has it.
//! 2. A handle belongs to one client: no client reaches another client's handle.
//! 3. Everything that a client can request is bounded: handles, jobs, bytes of an answer.

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
