//! The window: the node's memory tier for one open file, a write queue that is its own journal and a read queue.
//!
//! **Nothing uses this crate yet.** It is the library with its proofs; the door through which programs will append to a
//! ring (a preload library) and the agent's drain engine are changes of their own. Until then no write of a program
//! travels through a window.
//!
//! * [`ring`]: records of bytes in shared memory; appending one is acknowledging the write. [`layout`] has the bytes.
//! * [`sequence`]: the order of a file's writes over the rings of several programs.
//! * [`plan`]: which bytes to drain next, superseded ones dropped, neighbours merged, files in turn.
//! * [`recover`]: what is left after a kill, replayed.
//! * [`attach`]: what programs and the agent say to each other; [`client`]: the half that lives in programs.
//! * [`read_queue`], [`detector`]: blocks fetched ahead, and what to fetch next.
//!
//! Time, threads, the burst buffer and the directory of rings belong to the caller.

pub mod attach;
#[cfg(not(loom))]
pub mod client;
pub mod detector;
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
pub mod ring;
pub mod sequence;
mod sync;

#[cfg(not(loom))]
pub use mapping::{Mapping, Medium};
pub use memory::Memory;
