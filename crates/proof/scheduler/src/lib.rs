//! Locks, threads and time of a scheduler that a test drives. Code gets them from `concurrency`, with its feature `shuttle`.
//!
//! A scenario of a few threads is run in thousands of thread orders, each of which can be reproduced. The primitives work
//! only inside `explore` or `simulate`. The first runs a scenario in many orders, with bounded waits that end early or
//! late. The second runs it in one, with a clock that goes on only while all threads wait.
//!
//! Orders between two uses of these primitives are not explored, for example those of atomics. For atomics there is
//! `loom` (crate `window`).

mod primitives;
mod simulated;

pub use primitives::{
    Condvar, Instant, JoinHandle, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
    below, explore, park_timeout, random_bytes, sleep, spawn, spawn_joined, spawn_with_stack, wait, wall_clock,
    yield_now,
};
pub use simulated::simulate;
