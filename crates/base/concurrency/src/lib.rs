//! Locks, threads, time and randomness: those of the system or, with the feature `shuttle`, those of the crate
//! `scheduler`, which runs a test's threads in many orders.
//!
//! Code that uses only these primitives can be tested as a scenario of a few threads. With the feature they work only
//! inside `explore` or `simulate`.

#[cfg(not(feature = "shuttle"))]
mod system;
#[cfg(not(feature = "shuttle"))]
pub use system::{
    Condvar, Instant, JoinHandle, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, park_timeout,
    random_bytes, sleep, spawn, spawn_joined, spawn_with_stack, wait, wall_clock, yield_now,
};

#[cfg(feature = "shuttle")]
pub use scheduler::{
    Condvar, Instant, JoinHandle, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, below, explore,
    park_timeout, random_bytes, simulate, sleep, spawn, spawn_joined, spawn_with_stack, wait, wall_clock, yield_now,
};
