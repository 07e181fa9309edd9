//! Implementation by `parking_lot` and the standard library.
//!
//! Aliases and functions stand here, not re-exports. Clippy takes a re-export for the raw item, which `clippy.toml`
//! forbids on the data path.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

/// A mutex without poisoning.
pub type Mutex<T> = parking_lot::Mutex<T>;
/// Access to the value of a locked [`Mutex`].
pub type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
/// A condition variable for a [`Mutex`].
pub type Condvar = parking_lot::Condvar;
/// A lock of many readers or one writer, without poisoning.
pub type RwLock<T> = parking_lot::RwLock<T>;
/// Access to the value of a [`RwLock`] that is locked for reading.
pub type RwLockReadGuard<'a, T> = parking_lot::RwLockReadGuard<'a, T>;
/// Access to the value of a [`RwLock`] that is locked for writing.
pub type RwLockWriteGuard<'a, T> = parking_lot::RwLockWriteGuard<'a, T>;
/// A moment of a clock that never goes back.
pub type Instant = std::time::Instant;
/// A handle by which a thread is joined or woken.
pub type JoinHandle<T> = std::thread::JoinHandle<T>;

/// Returns the time of day, which somebody may set back.
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Fills `bytes` with random numbers that nobody can guess.
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// Blocks the thread for `time`.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Blocks the thread until its handle wakes it, for `most` at most.
pub fn park_timeout(most: Duration) {
    std::thread::park_timeout(most);
}

/// Lets the system run other threads.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Starts a thread that is never joined. Errors: the system has no more threads.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    spawn_joined(name, run).map(drop)
}

/// Starts a thread that is never joined, with a stack of `stack_bytes`. Errors: the system has no more threads.
pub fn spawn_with_stack(name: &str, stack_bytes: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).stack_size(stack_bytes).spawn(run).map(drop)
}

/// Starts a thread and returns the handle by which it is joined. Errors: the system has no more threads.
pub fn spawn_joined<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}

/// Calls `wait`, which must end by itself after at most `_most`.
pub fn wait(_most: Duration, wait: impl FnOnce()) {
    wait();
}
