//! The store that is promised: how long each operation takes, in a time of its own.
//!
//! Nothing here sleeps or looks at a clock: callers say when an operation begins, in nanoseconds from any origin and never
//! going back, and are told when it ends. The mount waits until then; a simulation jumps there. So both obey the same law,
//! and the same operations at the same times always take the same time.
//!
//! An operation passes what is configured, in this order: half a round trip, the lock protocol, then side by side the
//! stream's cap, its client's processor and link, the core network, the servers' links and the targets, then the other half
//! of the round trip. Side by side means that the slowest counts, as in a pipeline of many small pieces.
//!
//! M1. What a resource has passed until its `free` time never exceeds its rate, but for `burst`.
//! M2. A target has one arm: its operations follow each other.
//! M3. Two grants of a file overlap only if both are for reading, or of one client.

mod bed;
mod disk;
mod locks;
mod pipe;
mod random;
mod spec;
mod statistics;
mod stripe;

pub use bed::{Bed, Operation, Transfer};
pub use random::{share, splitmix};
pub use spec::{Protocol, Spec};
pub use statistics::{Kind, Use};

/// Nanoseconds since the bed's origin.
pub type Ns = u64;

/// What a client is told apart by.
pub type ClientId = u64;

/// What a file is told apart by.
pub type FileId = u64;
