//! Locks, threads and time on the scheduler of `shuttle`.
//!
//! Time is a simulated number. Each look at the clock advances it a little. A sleep, or a wait that is bounded in time,
//! advances it by its full length, as if all other threads had been stopped meanwhile. So bounded waits end early as
//! well as late.

use std::cell::Cell;
use std::io;
use std::ops::{Add, AddAssign, Deref, DerefMut, Sub};
use std::time::{Duration, SystemTime};

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync as inner;

use crate::simulated::{self, Waiters};

/// Simulated time that one look at the clock takes.
const LOOK: Duration = Duration::from_micros(10);
/// Time of day at which a scenario begins, since 1970.
const FIRST_DAY: Duration = Duration::from_secs(1_000_000_000);
/// Attempts of a bounded wait for a lock before the wait times out.
const TRIES: u32 = 3;
/// Bytes of a thread's stack; draining needs deep stacks.
pub(crate) const STACK_BYTES: usize = 1 << 20;
/// Depth of `PctScheduler`, used for the second half of the orders: the number of points at which a thread is held up
/// for long.
const DEPTH: usize = 3;

thread_local! {
    /// Simulated time of the scenario that runs on this system thread.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn pass(time: Duration) -> Duration {
    if simulated::is_on() {
        return simulated::now(time);
    }
    NOW.replace(NOW.get().saturating_add(time)).saturating_add(time)
}

/// Runs a scenario in `orders` orders of its threads: half of them random, half with some thread held up for long.
///
/// # Panics
///
/// If the scenario panics, if all its threads wait for each other, or if it does not end. The message contains what is
/// needed to reproduce the order.
pub fn explore(orders: usize, story: impl Fn() + Send + Sync + 'static) {
    let story = std::sync::Arc::new(move || {
        NOW.set(Duration::ZERO);
        story();
    });
    let settings = || {
        let mut settings = shuttle::Config::new();
        settings.stack_size = STACK_BYTES;
        settings
    };
    let again = std::sync::Arc::clone(&story);
    shuttle::Runner::new(RandomScheduler::new(orders / 2), settings()).run(move || story());
    shuttle::Runner::new(PctScheduler::new(DEPTH, orders / 2), settings()).run(move || again());
}

/// Fills `bytes` with numbers chosen by the scheduler.
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    shuttle::rand::thread_rng().fill(bytes);
    Ok(())
}

/// Returns a random number below `bound`, chosen by the scheduler.
pub fn below(bound: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..bound)
}

/// A moment of simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the current simulated time.
    pub fn now() -> Instant {
        Instant(pass(LOOK))
    }

    /// Returns the simulated time from `earlier` to this moment; zero if `earlier` is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        *self - earlier
    }

    /// Returns the moment `time` before this one; `None` if the scenario had not begun.
    pub fn checked_sub(&self, time: Duration) -> Option<Instant> {
        self.0.checked_sub(time).map(Instant)
    }

    /// Returns the simulated time since this moment.
    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        self.0 += time;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Lets the scheduler run other threads.
pub fn yield_now() {
    shuttle::thread::yield_now();
}

/// Lets the scheduler run other threads, and advances the simulated time by `time`.
pub fn sleep(time: Duration) {
    if simulated::is_on() {
        return simulated::sleep(time);
    }
    yield_now();
    pass(time);
}

/// Waits between two of [`TRIES`] attempts to get a lock within `time`.
fn pause(time: Duration) {
    sleep(time / TRIES);
}

/// Sleeps for `most`, the case that no wake-up arrives. `_wait` is not called.
pub fn wait(most: Duration, _wait: impl FnOnce()) {
    sleep(most);
}

/// Returns the simulated time of day.
pub fn wall_clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + FIRST_DAY + pass(LOOK)
}

/// Sleeps for `most`, the case that nobody wakes the thread.
pub fn park_timeout(most: Duration) {
    sleep(most);
}

/// A handle by which a thread is joined or woken.
pub type JoinHandle<T> = shuttle::thread::JoinHandle<T>;

/// Starts a thread and returns the handle by which it is joined.
pub fn spawn_joined<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    shuttle::thread::Builder::new().name(name.into()).spawn(run)
}

/// Starts a thread that is never joined. All threads of a scenario have stacks of one size: `_stack_bytes` is ignored.
pub fn spawn_with_stack(name: &str, _stack_bytes: usize, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    spawn(name, run)
}

/// Starts a thread that is never joined.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    shuttle::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// A mutex with the interface of `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// Access to the value of a locked [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a inner::Mutex<T>,
    /// `None` only while the guard's thread waits or has the mutex unlocked.
    held: Option<inner::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex that contains `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }

    /// Waits for the mutex and locks it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, held: Some(self.0.lock().unwrap()) }
    }

    /// Locks the mutex if it is free; otherwise returns `None`.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard { mutex: &self.0, held: Some(guard) })
    }

    /// Locks the mutex if it becomes free within a few attempts. Otherwise advances the time by `time` and returns
    /// `None`.
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        for _ in 0..TRIES {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            pause(time);
        }
        None
    }

    /// Returns whether the mutex is locked.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Returns the value of a mutex that nobody else can lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }

    /// Consumes the mutex and returns its value without locking.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap()
    }
}

impl<T> MutexGuard<'_, T> {
    /// Unlocks the mutex and lets the scheduler choose the next thread.
    pub fn unlock_fair(guard: Self) {
        drop(guard);
        yield_now();
    }

    /// Unlocks the mutex while `run` runs, and locks it again.
    pub fn unlocked<R>(guard: &mut Self, run: impl FnOnce() -> R) -> R {
        guard.held = None;
        let result = run();
        guard.held = Some(guard.mutex.lock().unwrap());
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().unwrap()
    }
}

/// A condition variable with the interface of `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar {
    scheduled: inner::Condvar,
    simulated: Waiters,
}

/// Result of a bounded wait.
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait ended because its time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Creates a condition variable that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { scheduled: inner::Condvar::new(), simulated: Waiters::new() }
    }

    /// Unlocks the mutex and waits for a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if simulated::is_on() {
            self.wait_simulated(guard, None);
            return;
        }
        guard.held = guard.held.take().map(|guard| self.scheduled.wait(guard).unwrap());
    }

    fn wait_simulated<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Instant>) -> WaitTimeoutResult {
        let mutex = guard.mutex;
        let is_notified = self.simulated.wait(until.map(|until| until.0), || guard.held = None);
        guard.held = Some(mutex.lock().unwrap());
        WaitTimeoutResult(!is_notified)
    }

    /// Waits for a notification. Times out only if `until` had passed before the call, or at its time in a simulation.
    ///
    /// A scenario that depends on the timeout of a lost notification therefore never ends, and the test fails.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        if Instant::now() >= until {
            return WaitTimeoutResult(true);
        }
        if simulated::is_on() {
            return self.wait_simulated(guard, Some(until));
        }
        self.wait(guard);
        WaitTimeoutResult(false)
    }

    /// Waits for a notification. Times out only if `time` is zero or so short that a look at the clock takes longer.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        let until = Instant::now() + time;
        self.wait_until(guard, until)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        if simulated::is_on() { self.simulated.notify(1) } else { self.scheduled.notify_one() }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if simulated::is_on() { self.simulated.notify(usize::MAX) } else { self.scheduled.notify_all() }
    }
}

/// A reader-writer lock with the interface of `parking_lot::RwLock`.
#[derive(Debug, Default)]
pub struct RwLock<T>(inner::RwLock<T>);

pub use inner::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    /// Creates an unlocked lock that contains `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }

    /// Waits for shared access to the value.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    /// Waits for exclusive access to the value.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }

    /// Takes shared access if nobody has exclusive access; otherwise returns `None`.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    /// Takes exclusive access if the lock is free; otherwise returns `None`.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }

    /// Takes exclusive access if the lock becomes free within a few attempts. Otherwise advances the time by `time` and
    /// returns `None`.
    pub fn try_write_for(&self, time: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        for _ in 0..TRIES {
            if let Some(guard) = self.try_write() {
                return Some(guard);
            }
            pause(time);
        }
        None
    }
}
