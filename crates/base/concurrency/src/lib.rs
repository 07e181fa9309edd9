//! Locks, threads and time: those of the system or, with the feature `shuttle`, those of a scheduler that runs a test's
//! threads in many orders.
//!
//! Code that uses only these primitives can be tested as a scenario of a few threads. The scenario is run in thousands
//! of thread orders, each of which can be reproduced. With the feature enabled, the primitives work only inside
//! `explore` or `simulate`. The first runs a scenario in many orders, with bounded waits that end early or late. The second
//! runs it in one, with a clock that goes on only while all threads wait.
//!
//! Orders between two uses of these primitives are not explored, for example those of atomics. For atomics there is
//! `loom` (crate `window`).

#[cfg(not(feature = "shuttle"))]
mod system;
#[cfg(not(feature = "shuttle"))]
pub use system::{
    Condvar, Instant, JoinHandle, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, park_timeout,
    random_bytes, sleep, spawn, spawn_joined, spawn_with_stack, wait, wall_clock, yield_now,
};

#[cfg(feature = "shuttle")]
mod scheduled;
#[cfg(feature = "shuttle")]
mod simulated;
#[cfg(feature = "shuttle")]
pub use scheduled::{
    Condvar, Instant, JoinHandle, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, below, explore,
    park_timeout, random_bytes, sleep, spawn, spawn_joined, spawn_with_stack, wait, wall_clock, yield_now,
};
#[cfg(feature = "shuttle")]
pub use simulated::simulate;
