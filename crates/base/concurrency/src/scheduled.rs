//! The same, as a scheduler has them.
//!
//! Time is a number of the story. It moves on a little whenever somebody looks at it, and whoever sleeps, or waits for a bounded time, moves it on by
//! all of that, as if everybody else had been kept from running meanwhile: so what is bounded by time ends early as well as late.

use std::cell::Cell;
use std::io;
use std::ops::{Add, AddAssign, Deref, DerefMut, Sub};
use std::time::Duration;

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync as inner;

/// What a look at the time takes.
const LOOK: Duration = Duration::from_micros(10);
/// How often a bounded wait for a lock looks before its time is over.
const TRIES: u32 = 3;
/// Bytes of a thread's stack: drains are deep.
const STACK_BYTES: usize = 1 << 20;
/// Threads that are held up at some point for long, in the second half of the orders: `PctScheduler`'s depth.
const DEPTH: usize = 3;

thread_local! {
    /// Of the story that this thread of the system runs.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn pass(time: Duration) -> Duration {
    NOW.replace(NOW.get().saturating_add(time)).saturating_add(time)
}

/// Runs a story in so many orders of its threads, half of them at random, half with some thread held up for long. Panics with what is needed
/// to have the order again if one fails, if all its threads wait for each other, or if it does not end.
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

/// A number below `bound` that the story draws.
pub fn below(bound: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..bound)
}

/// A moment of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// This moment.
    pub fn now() -> Instant {
        Instant(pass(LOOK))
    }

    /// Time since then.
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

/// Others may run.
pub fn yield_now() {
    shuttle::thread::yield_now();
}

/// Others may run, and so much time is over.
pub fn sleep(time: Duration) {
    yield_now();
    pass(time);
}

/// The same: nobody wakes it.
pub fn wait(most: Duration, _wait: impl FnOnce()) {
    sleep(most);
}

/// Starts a thread that nobody joins.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    shuttle::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// As `parking_lot`'s.
#[derive(Debug, Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// What a lock gives.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<inner::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// With that in it.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }

    /// Waits for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }

    /// If it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    /// If it becomes free soon.
    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        for _ in 0..TRIES {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            yield_now();
        }
        pass(time);
        None
    }

    /// Whether somebody has it.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Without a lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap()
    }
}

impl<T> MutexGuard<'_, T> {
    /// Gives it to whoever waits, which the scheduler decides.
    pub fn unlock_fair(guard: Self) {
        drop(guard);
        yield_now();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

/// As `parking_lot`'s.
#[derive(Debug, Default)]
pub struct Condvar(inner::Condvar);

/// How a bounded wait ended.
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Its time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().map(|guard| self.0.wait(guard).unwrap());
    }

    /// The same. Its time is over only if that was so before: a notification that is lost is a story that does not end.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        if Instant::now() >= until {
            return WaitTimeoutResult(true);
        }
        self.wait(guard);
        WaitTimeoutResult(false)
    }

    /// Wakes one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `parking_lot`'s.
#[derive(Debug, Default)]
pub struct RwLock<T>(inner::RwLock<T>);

pub use inner::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    /// With that in it.
    pub fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }

    /// To look at it.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    /// To change it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}
