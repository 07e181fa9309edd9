//! Window: a node's memory tier for one open file. A window is a write queue that is its own journal, and a read queue.
//!
//! The agent serves windows; programs use the part in [`client`]. The detector decides what to stage in first. The read
//! queue has no user yet.
//! queue has no user yet.
//!
//! - [`ring`]: records of bytes in shared memory. Appending a record acknowledges the write. [`layout`] defines the
//!   bytes.
//! - [`sequence`]: the order of a file's writes over the rings of several programs. [`drained`]: which of them have
//!   been applied.
//! - [`plan`]: which bytes to apply next. Superseded bytes are dropped, neighbours merged, files served in turn.
//! - [`recover`]: replays the records that are left after a kill.
//! - [`entry_use`], [`gift`]: entries of a program's table that calls read without a lock, and values that one thread
//!   fetches for all.
//! - [`attach`]: messages between programs and the agent. [`client`]: the part that runs in programs.
//! - [`read_queue`], [`detector`]: blocks fetched ahead, and which blocks to fetch next.
//!
//! Time, threads, the burst buffer and the directory of rings are the caller's.

pub mod attach;
#[cfg(not(loom))]
pub mod client;
pub mod clock;
pub mod detector;
pub mod drained;
pub mod entry_use;
pub mod environment;
pub mod gift;
pub mod layout;
pub mod limits;
#[cfg(not(loom))]
mod mapping;
pub mod memory;
#[cfg(not(loom))]
pub mod persist;
pub mod plan;
pub mod read_queue;
pub mod recover;
#[cfg(any(not(loom), test))]
mod region;
pub mod ring;
pub mod sequence;
#[cfg(not(loom))]
mod summed_copy;
mod sync;

#[cfg(not(loom))]
pub use mapping::{Gather, Mapping, WindowMedium};
pub use memory::Memory;
