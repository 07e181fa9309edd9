//! Many nodes at once: threads that share jobs, and notes of their outcomes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use concurrency::Mutex;

use super::jobs::{Job, Outcome};
use super::{Hands, Progress, Run};
use crate::limits;
use crate::state::NodeNumber;

/// Jobs that threads share.
struct Work {
    todo: Mutex<Todo>,
    done: Mutex<Vec<(Job, io::Result<Outcome>)>>,
}

struct Todo {
    jobs: VecDeque<Job>,
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
    /// Does a job. Returns false if there is none.
    fn step(&self, hands: &Hands) -> bool {
        let next = self.todo.lock().next();
        let Some((job, directory)) = next else { return false };
        let outcome = hands.take(&job);
        self.todo.lock().leave(directory);
        self.done.lock().push((job, outcome));
        true
    }
}

impl Run<'_> {
    /// Does jobs on as many threads as are wished, this one among them. Returns nodes that were created and have only a hidden name.
    pub(super) fn carry_out_all(&mut self, jobs: Vec<Job>) -> Vec<NodeNumber> {
        let threads = self.request.width.min(jobs.len()).saturating_sub(1);
        let todo = Todo { jobs: jobs.into(), busy: HashMap::new() };
        let work = Arc::new(Work { todo: Mutex::new(todo), done: Mutex::default() });
        let helper = |hands: Arc<Hands>, work: Arc<Work>| move || while work.step(&hands) {};
        // With fewer threads than wanted the work takes longer.
        let helpers: Vec<_> = (0..threads)
            .filter_map(|_| concurrency::spawn_joined("apply", helper(Arc::clone(&self.hands), Arc::clone(&work))).ok())
            .collect();
        let mut created = Vec::new();
        loop {
            let has_beginning = work.todo.lock().jobs.front().is_some_and(Job::is_beginning);
            if has_beginning && !self.may_begin() {
                work.todo.lock().jobs.retain(|job| !job.is_beginning());
            }
            let has_more = work.step(&self.hands);
            self.take_over(&work, &mut created);
            if !has_more {
                break;
            }
        }
        for helper in helpers {
            if let Err(panic) = helper.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.take_over(&work, &mut created);
        created
    }

    /// Notes what has come of jobs.
    fn take_over(&mut self, work: &Work, created: &mut Vec<NodeNumber>) {
        let done = std::mem::take(&mut *work.done.lock());
        for (job, outcome) in done {
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
    }

    /// Notes that a node is at its names, with content and attributes unless it is a directory.
    fn arrived(&mut self, number: NodeNumber, inode: Arc<namespace::Inode>) {
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
