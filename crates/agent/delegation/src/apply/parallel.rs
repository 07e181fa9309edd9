//! Many nodes at once: threads that share jobs, and notes of their outcomes.

use std::sync::Arc;

use super::jobs::{Job, Outcome};
use super::work::{Done, Helpers, Work};
use super::{Progress, Run};
use crate::state::NodeNumber;

impl Run<'_> {
    /// Does jobs on as many threads as are wished, this one among them. Returns nodes that were created and have only a hidden name.
    pub(super) fn carry_out_all(&mut self, jobs: Vec<Job>) -> Vec<NodeNumber> {
        let threads = self.request.width.min(jobs.len()).saturating_sub(1);
        let work = Arc::new(Work::default());
        work.add(jobs);
        let helpers = Helpers::new(&self.hands, &work, threads);
        let mut created = Vec::new();
        loop {
            if work.has_beginnings() && !self.may_begin() {
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
        work.take_done().into_iter().for_each(|done| self.take_note(done, created));
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
                self.arrived(number, Some(inode));
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
    pub(super) fn arrived(&mut self, number: NodeNumber, inode: Option<Arc<namespace::Inode>>) {
        let is_directory = self.item(number).is_directory();
        if let Some(inode) = inode.as_ref().filter(|_| is_directory) {
            self.keep_open(number, Arc::clone(inode));
        }
        let item = self.item_mut(number);
        (item.names, item.located, item.inode) = (item.state.names.clone(), inode.is_some(), inode);
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
