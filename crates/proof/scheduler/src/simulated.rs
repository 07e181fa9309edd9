//! A scenario in one order of its threads that a seed decides, with a clock of its own.
//!
//! The clock goes on only while every thread waits. Then it jumps to the first moment for which one of them waits. So a
//! bounded wait times out at its time and not before, and an hour of waits costs nothing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::thread::{self, Thread};

/// Simulated time after which a scenario counts as hanging.
const TOO_LONG: Duration = Duration::from_secs(24 * 3600);
/// Most steps of a scenario.
const STEPS_MAX: usize = 5_000_000;

/// Threads that wait for a moment. The number tells those of one moment apart.
#[derive(Default)]
struct Sleepers {
    by_due: BTreeMap<(Duration, u64), Thread>,
    last: u64,
    /// Whether the scenario has ended. What is left of its threads ends as well.
    is_over: bool,
}

thread_local! {
    /// Of the scenario that runs on this system thread, if it is simulated.
    static SLEEPERS: RefCell<Option<Sleepers>> = const { RefCell::new(None) };
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Number of the scheduler's task that moves the clock: the first that a scenario starts.
const CLOCK: usize = 1;

/// Chooses at random, and the clock only if every other task waits.
struct IdleClock(RandomScheduler);

impl Scheduler for IdleClock {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        // Threads that could only wake without a reason are not chosen.
        let is_next = |task: &&Task| task.runnable() && usize::from(task.id()) != CLOCK;
        let others: Vec<&Task> = runnable.iter().copied().filter(is_next).collect();
        if others.is_empty() {
            return runnable.iter().find(|task| task.runnable()).map(|task| task.id());
        }
        self.0.next_task(&others, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Runs a scenario in the order of its threads that `seed` stands for.
///
/// # Panics
///
/// If the scenario panics, if all its threads wait for each other, or if it does not end.
pub fn simulate(seed: u64, scenario: impl Fn() + Send + Sync + 'static) {
    let mut settings = shuttle::Config::new();
    settings.stack_size = crate::primitives::STACK_BYTES;
    settings.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    settings.failure_persistence = shuttle::FailurePersistence::None;
    settings.silence_warnings = true;
    let run = move || {
        NOW.set(Duration::ZERO);
        SLEEPERS.set(Some(Sleepers::default()));
        drop(thread::Builder::new().name("clock".into()).spawn(move_clock));
        scenario();
        SLEEPERS.with_borrow_mut(|all| all.iter_mut().for_each(|all| all.is_over = true));
    };
    let _off = Off;
    shuttle::Runner::new(IdleClock(RandomScheduler::new_from_seed(seed, 1)), settings).run(run);
}

/// Ends the simulation on this system thread when dropped.
struct Off;

impl Drop for Off {
    fn drop(&mut self) {
        SLEEPERS.set(None);
    }
}

/// Moves the clock to the next moment, each time all other threads wait.
fn move_clock() {
    loop {
        let next = SLEEPERS.with_borrow_mut(|all| all.as_mut().map(|all| (all.by_due.pop_first(), all.is_over)));
        let ((due, _), sleeper) = match next {
            Some((Some(next), _)) => next,
            Some((None, false)) => panic!("all threads wait for each other at {:?}", NOW.get()),
            Some((None, true)) | None => return,
        };
        NOW.set(NOW.get().max(due));
        assert!(NOW.get() < TOO_LONG, "the scenario does not end");
        sleeper.unpark();
        thread::yield_now();
    }
}

/// Returns whether the scenario of this system thread is simulated.
pub(crate) fn is_on() -> bool {
    SLEEPERS.with_borrow(Option::is_some)
}

/// Returns the simulated time, which goes on by `look`.
pub(crate) fn now(look: Duration) -> Duration {
    NOW.set(NOW.get() + look);
    NOW.get()
}

/// Blocks the thread until `until`, or until `is_over`. `None`: there is no such moment.
fn wait_until(until: Option<Duration>, is_over: impl Fn() -> bool) {
    while !is_over() && until.is_none_or(|until| NOW.get() < until) {
        let entry = until.and_then(|until| {
            SLEEPERS.with_borrow_mut(|all| {
                let all = all.as_mut()?;
                all.last += 1;
                all.by_due.insert((until, all.last), thread::current());
                Some((until, all.last))
            })
        });
        thread::park();
        SLEEPERS.with_borrow_mut(|all| _ = all.as_mut().zip(entry).map(|(all, entry)| all.by_due.remove(&entry)));
    }
}

/// Blocks the thread for `time`.
pub(crate) fn sleep(time: Duration) {
    let until = NOW.get() + time;
    thread::yield_now();
    wait_until(Some(until), || false);
}

/// A thread that waits for a notification.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    is_notified: AtomicBool,
}

/// Threads that wait for notifications, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Waiters(std::sync::Mutex<VecDeque<Arc<Waiter>>>);

impl Waiters {
    pub(crate) const fn new() -> Waiters {
        Waiters(std::sync::Mutex::new(VecDeque::new()))
    }

    fn all(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        self.0.lock().unwrap()
    }

    /// Joins the queue, runs `unlock`, and waits for a notification until `until`. Returns whether there was one.
    pub(crate) fn wait(&self, until: Option<Duration>, unlock: impl FnOnce()) -> bool {
        let waiter = Arc::new(Waiter { thread: thread::current(), is_notified: AtomicBool::new(false) });
        self.all().push_back(Arc::clone(&waiter));
        unlock();
        wait_until(until, || waiter.is_notified.load(Ordering::Relaxed));
        self.all().retain(|other| !Arc::ptr_eq(other, &waiter));
        waiter.is_notified.load(Ordering::Relaxed)
    }

    /// Notifies the first `count` waiting threads.
    pub(crate) fn notify(&self, count: usize) {
        let notified: Vec<Arc<Waiter>> = {
            let mut all = self.all();
            let count = count.min(all.len());
            all.drain(..count).collect()
        };
        for waiter in notified {
            waiter.is_notified.store(true, Ordering::Relaxed);
            waiter.thread.unpark();
        }
    }
}
