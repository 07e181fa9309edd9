//! The node's side of names through a server, for nodes that do not see the global store. The node's kernel uses FUSE
//! as with any file system. Its messages travel unchanged, and the crate `relay-server` answers them.
//!
//! [`Relay`] reads `/dev/fuse`, sends requests and returns answers.
//!
//! # Invariants
//!
//! 1. A request that changes anything is executed at most once, however often it is sent. If a server that is gone
//!    may have executed it, the caller gets `EIO`, and it is not repeated.
//! 2. A number of a node or an open file never gets a second meaning. After the server has forgotten a kernel, the
//!    kernel's numbers get their old meaning back or are `ESTALE`.
//! 3. Lookups and handles of an answer that the kernel never received are taken back.
//! 4. A request that what its caller may do decides carries the caller's groups: the server does not see the caller.
//! 5. While a program of a node believes it holds a lock, nobody else can have had that lock; otherwise the file is
//!    `ESTALE` on that node.
//! 6. Every wait ends: of requests that change nothing after `io_timeout`, of all requests with the death of their
//!    caller.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod changes;
mod deferred;
pub mod limits;
mod manner;
mod open;
mod parked;
mod relay;

pub use relay::Relay;
