//! The client of a server: a data store whose data is read and written over the network.
//!
//! The server may be unreachable for a while, or be a new process. Reads and queries wait for it for `io_timeout` and
//! then fail with `ETIMEDOUT`. Changes of data wait until the server is back or the program is interrupted. A handle
//! that the server no longer knows is reopened under its number, and the request is sent again. Invariant: a write is
//! reported done only after the server's answer.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod ahead;
mod asked;
mod buffers;
mod convert;
mod drains;
mod earned;
pub mod fault;
mod fetches;
mod handle;
mod kept;
mod later;
pub mod limits;
mod opened;
mod opening;
mod pace;
mod scatter;
mod shared;
mod store;
mod width;
mod written;

pub use drains::Drainer;
pub use store::RemoteStore;
pub use written::Written;
