//! Names through a server, for nodes that do not see the global store. The node's kernel asks as it asks any file system; its
//! messages travel as they are, and a door over the server's agent answers them.
//!
//! [`Relay`] is the node's side: it reads `/dev/fuse`, sends, and hands answers back. [`Names`] is the server's.
//!
//! # Invariants
//!
//! 1. A request that changes anything is done at most once, however often it is sent; what may have been done by a server that
//!    is gone is told as `EIO`, never repeated.
//! 2. A number of a node or an open file means one thing for ever: after the server's memory of a kernel was lost, its numbers
//!    mean again what they meant, or are `ESTALE`.
//! 3. What an answer gave and the kernel never got is taken back.
//! 4. No process id of another machine is looked up: the groups of callers come with their requests.
//! 5. What a program of a node believes to have locked nobody else can have locked meanwhile, or the file is `ESTALE` there.
//! 6. Every wait ends: what changes nothing by `io_timeout`, everything by the death of its caller.

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
