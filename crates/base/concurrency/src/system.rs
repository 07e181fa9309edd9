//! Implementation by `parking_lot` and the standard library.

use std::io;
use std::time::Duration;

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::thread::{sleep, yield_now};
pub use std::time::Instant;

/// Starts a thread that is never joined. Errors: the system has no more threads.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Calls `wait`, which must end by itself after at most `_most`.
pub fn wait(_most: Duration, wait: impl FnOnce()) {
    wait();
}
