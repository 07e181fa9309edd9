//! Rounds of an apply: what many nodes need is noted, the log is synced once, and then threads change the store.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use types::reported;

use super::items::has_content;
use super::jobs::{Job, Place, Settling};
use super::{Progress, Run};
use crate::limits;
use crate::state::{NodeName, NodeNumber};

/// Orders nodes so that neighbours are in different directories, as far as there are several. Systems work on one name of a
/// directory at a time.
pub(super) fn spread(numbers: &mut [NodeNumber], directory: impl Fn(NodeNumber) -> Option<NodeNumber>) {
    let mut met: HashMap<Option<NodeNumber>, usize> = HashMap::new();
    let mut rank = |number: &NodeNumber| {
        let before = met.entry(directory(*number)).or_default();
        *before += 1;
        *before
    };
    let mut ranked: Vec<(usize, NodeNumber)> = numbers.iter().map(|number| (rank(number), *number)).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    numbers.iter_mut().zip(ranked).for_each(|(place, (_, number))| *place = number);
}

impl Run<'_> {
    /// Number of nodes that one round begins.
    pub(super) fn round_nodes(&self) -> usize {
        let most = limits::of_descriptors(limits::ROUND_NODES_MAX);
        (limits::ROUND_NODES_OF_A_THREAD * self.request.width.max(1)).min(most)
    }

    /// Brings nodes to their places. None is a directory of another.
    pub(super) fn settle_all(&mut self, numbers: &[NodeNumber]) {
        let mut todo: VecDeque<NodeNumber> = numbers.iter().copied().collect();
        let mut created = Vec::new();
        loop {
            let mut jobs = Vec::new();
            // Those of the last round get their names first: the store's client still knows them.
            for number in std::mem::take(&mut created) {
                let job = self.begin(number);
                self.take_up(number, job, &mut jobs);
            }
            let most = jobs.len() + self.round_nodes();
            while jobs.len() < most
                && let Some(number) = todo.pop_front()
            {
                if !self.may_begin() {
                    todo.clear();
                    break;
                }
                let job = self.begin(number);
                self.take_up(number, job, &mut jobs);
            }
            if jobs.is_empty() && todo.is_empty() {
                // Those that have no work for a thread, because their directories were not found.
                self.settle_contested();
                break;
            }
            created = self.carry_out_durably(jobs);
            self.settle_contested();
            self.sync_some();
        }
    }

    fn take_up(&mut self, number: NodeNumber, job: io::Result<Option<Job>>, jobs: &mut Vec<Job>) {
        match job {
            Ok(job) => jobs.extend(job),
            Err(error) => self.give_up(number, &error),
        }
    }

    /// Notes that nothing more can be done for a node in this apply.
    pub(super) fn give_up(&mut self, number: NodeNumber, error: &io::Error) {
        self.item_mut(number).progress = Progress::Failed;
        self.stuck(number, error);
    }

    /// Does jobs once the log has durably what it says of them.
    pub(super) fn carry_out_durably(&mut self, jobs: Vec<Job>) -> Vec<NodeNumber> {
        if let Err(error) = self.hands.sync_log() {
            self.report.synced = false;
            jobs.iter().for_each(|job| self.give_up(job.number(), &error));
            return Vec::new();
        }
        self.carry_out_all(jobs)
    }

    /// Brings nodes one by one to names that others have, or that were not where they should be.
    pub(super) fn settle_contested(&mut self) {
        for number in std::mem::take(&mut self.contested) {
            // The report has the error.
            let _ = self.settle(number);
        }
    }

    /// Returns the first work for a node, for which the log has all; `None` if it is none for a thread.
    pub(super) fn begin(&mut self, number: NodeNumber) -> io::Result<Option<Job>> {
        let item = self.item(number);
        let (state, inode) = (Arc::clone(&item.state), item.inode.clone());
        if item.progress != Progress::Todo {
            return Ok(None);
        }
        state.names.iter().try_for_each(|name| self.settle_directory(name.parent))?;
        if self.item(number).progress != Progress::Todo {
            return Ok(None);
        }
        let Some(identity) = self.item(number).identity.clone() else {
            let creation = self.prepare(number)?;
            if creation.is_none() {
                self.item_mut(number).progress = Progress::Failed;
                self.done(number);
            }
            return Ok(creation.map(Job::Create));
        };
        let item = self.item(number);
        let names = item.names.clone();
        let stays = names.iter().all(|name| state.names.contains(name)) && names.len() == state.names.len();
        if (has_content(&state) || !stays) && !self.note(number, &state.names)? {
            self.item_mut(number).progress = Progress::Failed;
            self.done(number);
            return Ok(None);
        }
        let (at, wanted) = (self.places(&names)?, self.places(&state.names)?);
        let is_known = self.item(number).located && inode.is_some() && at.len() == names.len();
        if wanted.len() < state.names.len() {
            self.contested.push(number);
            return Ok(None);
        }
        let item = self.item(number);
        let inode = inode.filter(|_| is_known);
        let (dressed, doubtful) = (item.dressed, item.doubtful);
        let is_plain = !item.is_directory();
        let vacated = state.names.iter().filter_map(|name| self.vacated.get_key_value(name).filter(|_| is_plain));
        let vacated = vacated.map(|(name, identity)| (name.clone(), identity.clone())).collect();
        Ok(Some(Job::Settle(Settling { state, identity, at, wanted, vacated, inode, dressed, doubtful })))
    }

    /// Whether the store may have a directory that was not found: it is in one that is being looked for.
    fn is_lost(&self, number: NodeNumber) -> bool {
        self.items.get(&number).is_some_and(|item| item.identity.is_some() && !item.located)
    }

    /// Returns those of some names whose directories the store has.
    pub(super) fn places(&mut self, names: &[NodeName]) -> io::Result<Vec<Place>> {
        let mut places = Vec::new();
        for name in names {
            match self.directory(name.parent)? {
                Some(parent) => places.push((parent, name.clone())),
                None if self.is_lost(name.parent) => return Err(reported(libc::EAGAIN, "waits for a directory")),
                None => {}
            }
        }
        Ok(places)
    }
}
