//! Many nodes at once: threads that share jobs, and notes of their outcomes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use concurrency::{Condvar, Mutex};

use super::jobs::{Job, Outcome};
use super::{Hands, Progress, Run};
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
    /// Whether more jobs may come.
    is_open: bool,
    /// Number of jobs that are done now in a directory.
    busy: HashMap<NodeNumber, usize>,
}

impl Todo {
    /// Takes one of the next jobs, in a directory where as few as possible are at work: systems change one name of a directory at a
    /// time.
    fn next(&mut self) -> Option<(Job, NodeNumber)> {
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
        if !jobs.is_empty() {
            self.todo.lock().jobs.extend(jobs);
            self.more.notify_all();
        }
    }

    /// Takes jobs away that need not be begun.
    pub(super) fn take_beginnings(&self) -> Vec<Job> {
        let mut todo = self.todo.lock();
        let (taken, left) = std::mem::take(&mut todo.jobs).into_iter().partition(Job::is_beginning);
        todo.jobs = left;
        Vec::from(taken)
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
        let outcome = hands.take(&job);
        self.todo.lock().leave(directory);
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

impl Run<'_> {
    /// Does jobs on as many threads as are wished, this one among them. Returns nodes that were created and have only a hidden name.
    pub(super) fn carry_out_all(&mut self, jobs: Vec<Job>) -> Vec<NodeNumber> {
        let threads = self.request.width.min(jobs.len()).saturating_sub(1);
        let work = Arc::new(Work::default());
        work.add(jobs);
        let helpers = Helpers::new(&self.hands, &work, threads);
        let mut created = Vec::new();
        loop {
            let has_beginning = work.todo.lock().jobs.front().is_some_and(Job::is_beginning);
            if has_beginning && !self.may_begin() {
                drop(work.take_beginnings());
            }
            let has_more = work.step(&self.hands);
            self.take_over(&work, &mut created);
            if !has_more {
                break;
            }
        }
        helpers.join();
        self.take_over(&work, &mut created);
        created
    }

    /// Notes what has come of jobs.
    fn take_over(&mut self, work: &Work, created: &mut Vec<NodeNumber>) {
        let done = std::mem::take(&mut *work.done.lock());
        done.into_iter().for_each(|done| self.take_note(done, created));
    }

    /// Notes what has come of a job.
    pub(super) fn take_note(&mut self, (job, outcome): Done, created: &mut Vec<NodeNumber>) {
        let number = job.number();
        match (outcome, job) {
            (Ok(Outcome::Created(inode)), Job::Create(creation)) => {
                self.created(&creation, inode);
                created.push(number);
            }
            (Ok(Outcome::Settled(inode, touched)), Job::Settle(_)) => {
                self.touched.extend(touched);
                self.arrived(number, inode);
            }
            (Ok(Outcome::Removed(touched)), Job::Remove(_)) => {
                self.touched.extend(touched);
                self.item_mut(number).names.clear();
                self.removed(number);
            }
            (Ok(Outcome::Finished), Job::Finish(..)) => {
                self.item_mut(number).is_finished = true;
                self.finished(number);
            }
            (Ok(Outcome::Finished), _) => self.unsynced_change(),
            (Ok(_), job) => {
                self.forget_place_after(&job);
                self.contested.push(number);
            }
            (Err(error), job) => {
                self.forget_place_after(&job);
                if self.items.contains_key(&number) {
                    self.item_mut(number).progress = Progress::Failed;
                }
                self.stuck(number, &error);
            }
        }
    }

    /// Notes that a node is at its names, with content and attributes unless it is a directory.
    pub(super) fn arrived(&mut self, number: NodeNumber, inode: Arc<namespace::Inode>) {
        let is_directory = self.item(number).is_directory();
        if is_directory {
            self.directories.insert(number, Arc::clone(&inode));
        }
        let item = self.item_mut(number);
        (item.names, item.located, item.inode) = (item.state.names.clone(), true, Some(inode));
        self.placed(number);
        if !is_directory {
            self.finished(number);
        }
    }

    /// Forgets where a node is after a job that may have changed its names.
    fn forget_place_after(&mut self, job: &Job) {
        if let Job::Settle(settling) = job {
            self.touched.extend(settling.at.iter().map(|place| place.1.parent));
            self.forget_place(job.number());
        }
    }
}
