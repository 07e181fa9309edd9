//! Names through a server, for nodes that do not see the global store. The node's kernel uses FUSE as with any file
//! system. Its messages travel unchanged, and a door over the server's agent answers them.
//!
//! [`Relay`] is the node's side: it reads `/dev/fuse`, sends requests and returns answers. [`Names`] is the server's
//! side.
//!
//! # Invariants
//!
//! 1. A request that changes anything is executed at most once, however often it is sent. If a server that is gone
//!    may have executed it, the caller gets `EIO`, and it is not repeated.
//! 2. A number of a node or an open file never gets a second meaning. After the server has forgotten a kernel, the
//!    kernel's numbers get their old meaning back or are `ESTALE`.
//! 3. Lookups and handles of an answer that the kernel never received are taken back.
//! 4. The server never looks up a process id of another machine: requests carry their caller's groups.
//! 5. While a program of a node believes it holds a lock, nobody else can have had that lock; otherwise the file is
//!    `ESTALE` on that node.
//! 6. Every wait ends: of requests that change nothing after `io_timeout`, of all requests with the death of their
//!    caller.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod changes;
mod deferred;
mod events;
mod held;
pub mod limits;
mod locked;
mod manner;
mod names;
mod node;
mod open;
mod parked;
mod recovery_records;
mod relay;

pub use names::{ClientSession, Names};
pub use recovery_records::RecoveryRecords;
pub use relay::Relay;
