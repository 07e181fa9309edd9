//! The system's own.

use std::io;
use std::time::Duration;

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::thread::{sleep, yield_now};
pub use std::time::Instant;

/// Starts a thread that nobody joins.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Waits by `wait`, which ends by itself after `most`.
pub fn wait(_most: Duration, wait: impl FnOnce()) {
    wait();
}
