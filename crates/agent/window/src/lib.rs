//! The window: the node's memory tier for one open file, a write queue that is its own journal and a read queue.
//!
//! The agent serves windows where it is told to; programs hold the half in [`client`]. The detector says what to stage in first; the read
//! queue has no user yet.
//!
//! * [`ring`]: records of bytes in shared memory; appending one is acknowledging the write. [`layout`] has the bytes.
//! * [`sequence`]: the order of a file's writes over the rings of several programs; [`drained`]: how much of them is done.
//! * [`plan`]: which bytes to drain next, superseded ones dropped, neighbours merged, files in turn.
//! * [`recover`]: what is left after a kill, replayed.
//! * [`life`], [`gift`]: entries of a program's table, which calls look at without a lock, and what one thread fetches for all.
//! * [`attach`]: what programs and the agent say to each other; [`client`]: the half that lives in programs.
//! * [`read_queue`], [`detector`]: blocks fetched ahead, and what to fetch next.
//!
//! Time, threads, the burst buffer and the directory of rings belong to the caller.

pub mod attach;
#[cfg(not(loom))]
pub mod client;
pub mod clock;
pub mod detector;
pub mod drained;
pub mod environment;
pub mod gift;
pub mod layout;
pub mod life;
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
