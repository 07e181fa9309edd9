//! The ideal workload: real processes, a common start, new files, random data, and an account of every operation.
//!
//! A coordinator starts M group leaders, each starts N processes; all speak the same lines of JSON over pipes. A phase is
//! prepared (untimed), then everybody starts at one instant of the monotonic clock and works until the deadline or the
//! end of its share; fsync and close count, as they do for programs.

mod block;
mod clock;
mod fleet;
mod histogram;
mod host;
mod layout;
mod message;
mod pattern;
mod phase;
mod process;
mod processor;
mod threads;
mod tree;

pub use block::Block;
#[cfg(test)]
pub use block::mix;
pub use clock::{cpu_ns, now_ns, wait_until};
pub use fleet::{Fleet, Launcher};
pub use histogram::Histogram;
pub use host::{Host, is_here};
pub use layout::Places;
#[cfg(test)]
pub use message::send;
pub use message::{Command, Reply, Sample, Task};
pub use pattern::{Kind, Layout, Pattern, Preset, ReadAhead, Sync};
pub use process::serve;
pub use threads::{phases_of, together};
pub use tree::{Names, data_file, small_file};
