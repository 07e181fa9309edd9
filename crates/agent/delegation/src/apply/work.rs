//! Jobs that threads share.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Condvar, Mutex};

use super::Hands;
use super::jobs::{Job, Outcome};
use crate::state::NodeNumber;

/// A job and what has come of it.
pub(super) type Done = (Job, io::Result<Outcome>);

/// Jobs that threads share.
#[derive(Default)]
pub(super) struct Work {
    todo: Mutex<Todo>,
    /// Signalled when there are more jobs, or will be none.
    more: Condvar,
    done: Mutex<Vec<Done>>,
    /// Signalled when a job is done.
    ended: Condvar,
    /// Whether a thread has panicked, whose job is never done.
    has_panicked: AtomicBool,
}

/// Tells the applying thread of a panic, if this is dropped by one.
struct Report<'a>(&'a Work);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _done = self.0.done.lock();
            self.0.has_panicked.store(true, Ordering::Relaxed);
            self.0.ended.notify_all();
        }
    }
}

/// Jobs that are to be done. Systems change one name of a directory at a time, and who waits for that in the system asks for the
/// directory's attributes more often. So jobs that begin with a name wait for their turn in its directory, without a thread.
#[derive(Default)]
struct Todo {
    /// Jobs that need no turn.
    jobs: VecDeque<Job>,
    waiting: HashMap<NodeNumber, VecDeque<Job>>,
    /// Directories with jobs, in which no name is changed now.
    free: VecDeque<NodeNumber>,
    /// Directories in which a name is changed now.
    changing: HashSet<NodeNumber>,
    /// Number of jobs that may be left undone.
    beginnings: usize,
    /// Whether more jobs may come.
    is_open: bool,
}

impl Todo {
    fn add(&mut self, job: Job) {
        self.beginnings += usize::from(job.is_beginning());
        let Some(directory) = job.turn_in() else { return self.jobs.push_back(job) };
        let waiting = self.waiting.entry(directory).or_default();
        if waiting.is_empty() && !self.changing.contains(&directory) {
            self.free.push_back(directory);
        }
        waiting.push_back(job);
    }

    fn next(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front().or_else(|| self.next_in_turn())?;
        self.beginnings -= usize::from(job.is_beginning());
        Some(job)
    }

    /// Takes a job of the directory that has waited longest.
    fn next_in_turn(&mut self) -> Option<Job> {
        let directory = self.free.pop_front()?;
        let Entry::Occupied(mut waiting) = self.waiting.entry(directory) else { return None };
        let job = waiting.get_mut().pop_front()?;
        if waiting.get().is_empty() {
            waiting.remove();
        }
        self.changing.insert(directory);
        Some(job)
    }

    /// Notes that a name is changed. Returns whether another can be changed there.
    fn changed(&mut self, directory: NodeNumber) -> bool {
        let is_free = self.changing.remove(&directory) && self.waiting.contains_key(&directory);
        if is_free {
            self.free.push_back(directory);
        }
        is_free
    }

    fn take_all(&mut self) -> Vec<Job> {
        self.free.clear();
        self.beginnings = 0;
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        std::mem::take(&mut self.jobs).into_iter().chain(waiting).collect()
    }
}

impl Work {
    /// Creates work to which jobs are added until it is closed.
    pub(super) fn open() -> Work {
        let todo = Todo { is_open: true, ..Todo::default() };
        Work { todo: Mutex::new(todo), ..Work::default() }
    }

    pub(super) fn add(&self, jobs: Vec<Job>) {
        let (added, mut todo) = (jobs.len(), self.todo.lock());
        jobs.into_iter().for_each(|job| todo.add(job));
        drop(todo);
        for _ in 0..added {
            self.more.notify_one();
        }
    }

    /// Whether there are jobs that may be left undone.
    pub(super) fn has_beginnings(&self) -> bool {
        self.todo.lock().beginnings > 0
    }

    /// Takes those jobs away.
    pub(super) fn take_beginnings(&self) -> Vec<Job> {
        let mut todo = self.todo.lock();
        let (taken, left): (Vec<Job>, Vec<Job>) = todo.take_all().into_iter().partition(Job::is_beginning);
        left.into_iter().for_each(|job| todo.add(job));
        taken
    }

    fn close(&self) {
        self.todo.lock().is_open = false;
        self.more.notify_all();
    }

    /// Does a job. Returns false if there is none.
    pub(super) fn step(&self, hands: &Hands) -> bool {
        let next = self.todo.lock().next();
        next.map(|next| self.carry_out(hands, next)).is_some()
    }

    fn carry_out(&self, hands: &Hands, job: Job) {
        let turn = Cell::new(job.turn_in());
        let changed = || {
            if turn.take().is_some_and(|directory| self.todo.lock().changed(directory)) {
                self.more.notify_one();
            }
        };
        let _report = Report(self);
        let outcome = hands.take(&job, &changed);
        changed();
        self.done.lock().push((job, outcome));
        self.ended.notify_one();
    }

    /// Does jobs, and waits for more, until there will be none.
    fn help(&self, hands: &Hands) {
        loop {
            let mut todo = self.todo.lock();
            let next = todo.next();
            let is_open = todo.is_open;
            match next {
                Some(next) => {
                    drop(todo);
                    self.carry_out(hands, next);
                }
                None if is_open => self.more.wait(&mut todo),
                None => return,
            }
        }
    }

    pub(super) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut *self.done.lock())
    }

    /// Takes the jobs that are done, and waits for one if there is none yet. None: a thread has panicked.
    pub(super) fn wait_for_some(&self) -> Vec<Done> {
        let mut done = self.done.lock();
        while done.is_empty() && !self.has_panicked.load(Ordering::Relaxed) {
            self.ended.wait(&mut done);
        }
        std::mem::take(&mut *done)
    }
}

/// Threads that do jobs until no more come. They end when this is dropped, also if the apply panics.
pub(super) struct Helpers {
    work: Arc<Work>,
    threads: Vec<concurrency::JoinHandle<()>>,
}

impl Helpers {
    pub(super) fn new(hands: &Arc<Hands>, work: &Arc<Work>, threads: usize) -> Helpers {
        let helper = |hands: Arc<Hands>, work: Arc<Work>| move || work.help(&hands);
        // With fewer threads than wanted the work takes longer.
        let threads = (0..threads)
            .filter_map(|_| concurrency::spawn_joined("apply", helper(Arc::clone(hands), Arc::clone(work))).ok())
            .collect();
        Helpers { work: Arc::clone(work), threads }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Waits for the end of all. No more jobs may be added.
    pub(super) fn join(mut self) {
        self.work.close();
        for thread in std::mem::take(&mut self.threads) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.work.close();
    }
}
