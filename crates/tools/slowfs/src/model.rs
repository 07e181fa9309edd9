//! The model of the store: how long each operation takes, in simulated time.
//!
//! The model never sleeps and uses no clock. Callers pass the start of each operation, in nanoseconds since any origin
//! and never decreasing, and receive its end. The mount waits until then; a simulation jumps there. Both therefore
//! follow the same rules. Equal operations at equal times always take equal times.
//!
//! An operation passes the configured parts in this order: half a round trip, the lock protocol, the data path, the
//! other half of the round trip. The data path consists of the stream's limit, the client's processor and link, the
//! core network, the servers' links and the targets. These work in parallel, as in a pipeline of many small pieces, so
//! the slowest of them counts.
//!
//! M1. The bytes that a resource has passed until its `free` time never exceed its rate, except for `burst`.
//! M2. A target has one arm: its operations follow each other.
//! M3. Two grants of a file overlap only if both are for reading or belong to one client.

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

/// Nanoseconds since the model's origin.
pub type Ns = u64;

pub type ClientId = u64;

pub type FileId = u64;
