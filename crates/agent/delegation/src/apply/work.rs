//! Jobs that threads share.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use concurrency::{Condvar, Mutex};

use super::Hands;
use super::jobs::{Job, Outcome};
use crate::limits;
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
}

#[derive(Default)]
struct Todo {
    jobs: VecDeque<Job>,
    turns: Turns,
    /// Whether more jobs may come.
    is_open: bool,
    /// Number of jobs that are done now in a directory.
    busy: HashMap<NodeNumber, usize>,
}

/// Jobs that begin with a new name in a directory that nobody sees yet. Systems make one name of a directory at a time, so each waits
/// for its turn without a thread.
#[derive(Default)]
struct Turns {
    waiting: HashMap<NodeNumber, VecDeque<Job>>,
    /// Directories with jobs, in which no name is made now.
    free: VecDeque<NodeNumber>,
    /// Directories in which a name is made now.
    making: HashSet<NodeNumber>,
}

impl Turns {
    fn add(&mut self, job: Job) {
        let directory = job.directory();
        let waiting = self.waiting.entry(directory).or_default();
        if waiting.is_empty() && !self.making.contains(&directory) {
            self.free.push_back(directory);
        }
        waiting.push_back(job);
    }

    fn next(&mut self) -> Option<(Job, NodeNumber)> {
        let directory = self.free.pop_front()?;
        let Entry::Occupied(mut waiting) = self.waiting.entry(directory) else { return None };
        let job = waiting.get_mut().pop_front()?;
        if waiting.get().is_empty() {
            waiting.remove();
        }
        self.making.insert(directory);
        Some((job, directory))
    }

    /// Notes that a name is made. Returns whether another can be made there.
    fn made(&mut self, directory: NodeNumber) -> bool {
        let is_free = self.making.remove(&directory) && self.waiting.contains_key(&directory);
        if is_free {
            self.free.push_back(directory);
        }
        is_free
    }
}

impl Todo {
    /// Takes one of the next jobs, in a directory where as few as possible are at work: systems change one name of a directory at a
    /// time.
    fn next(&mut self) -> Option<(Job, NodeNumber)> {
        if self.jobs.is_empty() {
            return self.turns.next();
        }
        let busy = |job: &Job| self.busy.get(&job.directory()).copied().unwrap_or(0);
        let (mut best, mut least) = (0, usize::MAX);
        for (at, job) in self.jobs.iter().take(limits::JOBS_LOOKED_AT).enumerate() {
            let now = busy(job);
            if now < least {
                (best, least) = (at, now);
            }
            if now == 0 {
                break;
            }
        }
        let job = self.jobs.remove(best)?;
        let directory = job.directory();
        *self.busy.entry(directory).or_default() += 1;
        Some((job, directory))
    }

    fn leave(&mut self, directory: NodeNumber) {
        if let Entry::Occupied(mut entry) = self.busy.entry(directory) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

impl Work {
    /// Creates work to which jobs are added until it is closed.
    pub(super) fn open() -> Work {
        let todo = Todo { is_open: true, ..Todo::default() };
        Work { todo: Mutex::new(todo), ..Work::default() }
    }

    pub(super) fn add(&self, jobs: Vec<Job>) {
        let added = jobs.len();
        let mut todo = self.todo.lock();
        for job in jobs {
            if job.is_within() { todo.turns.add(job) } else { todo.jobs.push_back(job) }
        }
        drop(todo);
        for _ in 0..added {
            self.more.notify_one();
        }
    }

    /// Whether the next job need not be begun.
    pub(super) fn begins_next(&self) -> bool {
        self.todo.lock().jobs.front().is_some_and(Job::is_beginning)
    }

    /// Takes jobs away that need not be begun.
    pub(super) fn take_beginnings(&self) -> Vec<Job> {
        let mut todo = self.todo.lock();
        let jobs = std::mem::take(&mut todo.jobs);
        let (mut taken, left): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::is_beginning);
        todo.jobs = left.into();
        todo.turns.free.clear();
        taken.extend(std::mem::take(&mut todo.turns.waiting).into_values().flatten());
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

    fn carry_out(&self, hands: &Hands, (job, directory): (Job, NodeNumber)) {
        let is_within = job.is_within();
        let has_turn = Cell::new(is_within);
        let made = || {
            if has_turn.take() && self.todo.lock().turns.made(directory) {
                self.more.notify_one();
            }
        };
        let outcome = hands.take(&job, &made);
        made();
        if !is_within {
            self.todo.lock().leave(directory);
        }
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

    /// Takes the jobs that are done, and waits for one if there is none yet.
    pub(super) fn wait_for_some(&self) -> Vec<Done> {
        let mut done = self.done.lock();
        while done.is_empty() {
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
