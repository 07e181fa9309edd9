//! Locks, threads and time: the system's, or, with the feature `shuttle`, those of a scheduler that runs a test's threads in many orders.
//!
//! What takes these and no others can be told as a story of a few threads, and the story be run in thousands of orders, each of which can be
//! had again. With the feature only what runs inside of [`explore`] may use them. Not seen are orders between two uses of them, as of
//! atomics: for these there is `loom` (crate `window`).

#[cfg(not(feature = "shuttle"))]
mod system;
#[cfg(not(feature = "shuttle"))]
pub use system::{
    Condvar, Instant, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, sleep, spawn, wait, yield_now,
};

#[cfg(feature = "shuttle")]
mod scheduled;
#[cfg(feature = "shuttle")]
pub use scheduled::{
    Condvar, Instant, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, below, explore, sleep, spawn, wait,
    yield_now,
};
