//! The ideal workload: real processes, a common start, new files, random data, and a record of every operation.
//!
//! A coordinator starts M group leaders, and each starts N processes. All exchange lines of JSON over pipes. A phase is
//! first prepared, untimed. Then all processes start at one instant of the monotonic clock. They work until the
//! deadline or the end of their share. fsync and close are included in the time, as in real programs.

mod block;
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
