//! New directories, which are filled under hidden names and then revealed.
//!
//! What is new in a new directory is made there under its own name, whole, and its identity is logged at once. When all is there, the
//! log notes the identity and the name of the topmost directory, is synced, and the directory gets its name. All these steps of many
//! directories run beside each other. So:
//!
//! 1. A directory whose identity the log lacks was never revealed. All that is in it is ours, and is removed before it is made anew.
//! 2. If the log has the identity of a topmost directory, then it has those of all that was made within: they are earlier in the log.
//!    So each is found by its identity, before and after the reveal, and nothing else counts as ours.
//! 3. What could be made in part alone is removed before the reveal. If that fails, nothing is revealed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use types::reported;

use super::Run;
use super::below::is_absent;
use super::creating::{Creation, kind_of};
use super::items::Progress;
use super::jobs::{Job, Outcome};
use super::work::{Done, Helpers, Work};
use crate::fault;
use crate::limits;
use crate::state::{DataPlace, NodeKind, NodeNumber};

/// New directories that are being filled, and what is still to be made in them.
#[derive(Default)]
pub(super) struct Filling {
    /// New nodes of each directory that is not made yet.
    children: HashMap<NodeNumber, Vec<NodeNumber>>,
    /// Directories that nobody sees yet, and the topmost one of each.
    hidden: HashMap<NodeNumber, NodeNumber>,
    tops: HashMap<NodeNumber, Top>,
    /// Directories in turn, with the nodes that are to be made there now.
    ready: VecDeque<(NodeNumber, VecDeque<NodeNumber>)>,
    /// Number of jobs that wait or are done in each directory.
    busy: HashMap<NodeNumber, usize>,
    jobs: usize,
    /// Topmost directories in which nothing more is made.
    complete: Vec<NodeNumber>,
}

/// A topmost directory that is filled.
#[derive(Default)]
struct Top {
    /// Number of nodes that are still to be made in it.
    left: usize,
    /// Nodes within that the store has.
    made: Vec<NodeNumber>,
    /// Whether something within is there in part, and cannot be removed.
    is_spoilt: bool,
}

fn waits() -> io::Error {
    reported(libc::EAGAIN, "waits for a directory")
}

impl Filling {
    /// Takes a node that is to be made next, with its directory. `most`: jobs at once.
    fn next(&mut self, most: usize, may_open: bool) -> Option<(NodeNumber, NodeNumber)> {
        if self.jobs >= most {
            return None;
        }
        let share = most / self.ready.len().max(1);
        for _ in 0..self.ready.len() {
            let (directory, mut nodes) = self.ready.pop_front()?;
            let is_hidden = self.hidden.contains_key(&directory);
            let most_here = if is_hidden { share.max(limits::MADE_AT_ONCE) } else { limits::MADE_AT_ONCE };
            let is_free = self.busy.get(&directory).is_none_or(|busy| *busy < most_here) && (is_hidden || may_open);
            let node = if is_free { nodes.pop_front() } else { None };
            if !nodes.is_empty() {
                self.ready.push_back((directory, nodes));
            }
            if let Some(node) = node {
                return Some((node, directory));
            }
        }
        None
    }

    fn begun(&mut self, directory: NodeNumber) {
        *self.busy.entry(directory).or_default() += 1;
        self.jobs += 1;
    }

    fn ended(&mut self, directory: NodeNumber) {
        self.jobs -= 1;
        if let Some(busy) = self.busy.get_mut(&directory) {
            *busy -= 1;
        }
    }

    /// Notes that the store has a directory that nobody sees.
    fn opened(&mut self, directory: NodeNumber, top: NodeNumber) {
        let nodes: VecDeque<NodeNumber> = self.children.remove(&directory).unwrap_or_default().into();
        self.tops.entry(top).or_default().left += nodes.len();
        self.hidden.insert(directory, top);
        if !nodes.is_empty() {
            self.ready.push_back((directory, nodes));
        }
    }

    /// Notes that some nodes in a directory are made, or will not be.
    fn settled(&mut self, top: NodeNumber, nodes: usize) {
        let Some(of) = self.tops.get_mut(&top) else { return };
        of.left -= nodes;
        if of.left == 0 {
            self.complete.push(top);
        }
    }

    fn top_of(&self, directory: NodeNumber) -> Option<NodeNumber> {
        self.hidden.get(&directory).copied()
    }

    /// Drops what is not begun.
    fn stop(&mut self) {
        for (directory, nodes) in std::mem::take(&mut self.ready) {
            if let Some(top) = self.top_of(directory) {
                self.settled(top, nodes.len());
            }
        }
        self.children.clear();
    }
}

impl Run<'_> {
    /// Whether a node is new and has one name, so that it may be made with its directory.
    fn is_new(&self, number: NodeNumber) -> bool {
        self.items.get(&number).is_some_and(|item| {
            let state = &item.state;
            let is_plain = state.names.len() == 1 && !matches!(state.data, DataPlace::BelowOnly | DataPlace::Outside);
            item.identity.is_none() && item.progress == Progress::Todo && is_plain && number != NodeNumber::ROOT
        })
    }

    fn is_new_directory(&self, number: NodeNumber) -> bool {
        self.is_new(number) && self.item(number).is_directory()
    }

    /// Whether a directory and all above it are where they belong, as far as the log tells.
    fn is_steady(&self, directory: NodeNumber) -> bool {
        let mut at = directory;
        for _ in 0..limits::DEPTH_MAX {
            if at == NodeNumber::ROOT {
                return true;
            }
            let name = match self.items.get(&at) {
                Some(item) if item.identity.is_some() && item.names == item.state.names => item.names.first().cloned(),
                Some(_) => None,
                None => self.hands.tree.state(at).and_then(|state| state.names.first().cloned()),
            };
            let Some(name) = name else { return false };
            at = name.parent;
        }
        false
    }

    /// Finds the new directories, and what is to be made in them.
    fn plan(&mut self, order: &[NodeNumber]) {
        let mut steady: HashMap<NodeNumber, bool> = HashMap::new();
        let mut tops: HashMap<NodeNumber, usize> = HashMap::new();
        for number in order.iter().copied() {
            if !self.is_new(number) {
                continue;
            }
            let parent = self.item(number).state.names[0].parent;
            if self.is_new_directory(parent) {
                self.filling.children.entry(parent).or_default().push(number);
            } else if self.item(number).is_directory()
                && *steady.entry(parent).or_insert_with(|| self.is_steady(parent))
            {
                let ready = &mut self.filling.ready;
                let at = *tops.entry(parent).or_insert(ready.len());
                if at == ready.len() {
                    ready.push_back((parent, VecDeque::new()));
                }
                ready[at].1.push_back(number);
            }
        }
    }

    /// Brings new directories to the store, with all that is new in them.
    pub(super) fn fill_new_directories(&mut self, order: &[NodeNumber]) {
        self.plan(order);
        if self.filling.ready.is_empty() {
            return;
        }
        let work = Arc::new(Work::open());
        let threads = if self.request.width > 1 { self.request.width } else { 0 };
        let helpers = Helpers::new(&self.hands, &work, threads);
        loop {
            if !self.may_begin() {
                self.filling.stop();
                work.take_beginnings().iter().for_each(|job| self.not_made(job.directory()));
            }
            let mut jobs = self.feed();
            jobs.extend(self.reveal());
            let jobs = self.logged(jobs);
            work.add(jobs);
            if self.filling.jobs == 0 && self.filling.complete.is_empty() {
                if self.filling.ready.is_empty() {
                    break;
                }
                // All that was made has its place, so the next sync point is for none of it.
                self.sync_some();
            }
            if self.filling.jobs == 0 {
                continue;
            }
            if helpers.is_empty() {
                work.step(&self.hands);
            }
            let done = work.wait_for_some();
            if done.is_empty() {
                break;
            }
            done.into_iter().for_each(|done| self.take_up_filled(done));
        }
        helpers.join();
        self.settle_contested();
        let tops: Vec<NodeNumber> = self.filling.tops.keys().copied().collect();
        tops.into_iter().for_each(|top| self.revealed(top));
        self.filling = Filling::default();
        self.sync_some();
    }

    /// Returns jobs that are to be begun now. The log is to be synced first.
    fn feed(&mut self) -> Vec<Job> {
        let most = limits::JOBS_OF_A_THREAD * self.request.width.max(1);
        let mut jobs = Vec::new();
        loop {
            // What was revealed is synced now and then. Until that, no more directories are begun.
            let may_open = !self.is_sync_due();
            let Some((number, directory)) = self.filling.next(most, may_open) else { return jobs };
            let top = self.filling.top_of(directory);
            let begun = if top.is_some() { self.begin_within(number) } else { self.begin(number) };
            match begun {
                Ok(Some(job)) => {
                    self.filling.begun(directory);
                    jobs.push(job);
                    continue;
                }
                Ok(None) => {}
                Err(error) => self.give_up(number, &error),
            }
            top.into_iter().for_each(|top| self.filling.settled(top, 1));
        }
    }

    /// Returns the creation of a node in a directory that nobody sees; `None` if the node is gone.
    fn begin_within(&mut self, number: NodeNumber) -> io::Result<Option<Job>> {
        let state = Arc::clone(&self.item(number).state);
        let name = state.names[0].clone();
        let parent = self.directory(name.parent)?.ok_or_else(waits)?;
        self.remove_leftovers(number, &name)?;
        let item = self.item_mut(number);
        (item.names, item.located) = (Vec::new(), true);
        if !self.note(number, &[])? {
            self.item_mut(number).progress = Progress::Failed;
            self.done(number);
            return Ok(None);
        }
        Ok(Some(Job::Create(Creation { state, parent, name, is_within: true })))
    }

    /// Syncs the log if jobs need that. Creations within hidden directories do not: their directory is in the log.
    fn logged(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        if jobs.iter().all(Job::is_within) {
            return jobs;
        }
        let Err(error) = self.hands.sync_log() else { return jobs };
        self.report.synced = false;
        for job in jobs {
            self.give_up(job.number(), &error);
            self.not_made(job.directory());
        }
        Vec::new()
    }

    /// Notes that a job will not be done.
    fn not_made(&mut self, directory: NodeNumber) {
        self.filling.ended(directory);
        if let Some(top) = self.filling.top_of(directory) {
            self.filling.settled(top, 1);
        }
    }

    /// Returns jobs that give their names to directories that are complete. The log is to be synced first.
    fn reveal(&mut self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for top in std::mem::take(&mut self.filling.complete) {
            if self.filling.tops[&top].is_spoilt {
                self.give_up(top, &reported(libc::EIO, "something in the new directory cannot be removed"));
                continue;
            }
            fault::point("apply.filled");
            match self.begin(top) {
                Ok(Some(job)) => {
                    self.filling.begun(job.directory());
                    jobs.push(job);
                }
                Ok(None) => {}
                Err(error) => self.give_up(top, &error),
            }
        }
        jobs
    }

    /// Notes what has come of a job, and what can be begun now.
    fn take_up_filled(&mut self, done: Done) {
        let (number, directory) = (done.0.number(), done.0.directory());
        self.filling.ended(directory);
        let is_directory = self.item(number).is_directory();
        let top = self.filling.top_of(directory).filter(|_| matches!(done.0, Job::Create(_)));
        match (&done.0, &done.1, top) {
            (Job::Create(_), Ok(Outcome::Created(_)), top) => {
                self.take_note(done, &mut Vec::new());
                if is_directory {
                    self.filling.opened(number, top.unwrap_or(number));
                }
                match top {
                    Some(top) => self.made_within(number, top),
                    None => self.filling.settled(number, 0),
                }
            }
            (Job::Create(creation), Err(_), Some(top)) => {
                let at = (&*creation.parent, &creation.name);
                let cleared = self.hands.clear(&creation.state.creator, at, kind_of(&creation.state));
                let is_spoilt = cleared.is_err_and(|error| !is_absent(&error));
                self.filling.tops.get_mut(&top).into_iter().for_each(|top| top.is_spoilt |= is_spoilt);
                self.take_note(done, &mut Vec::new());
                self.filling.settled(top, 1);
            }
            _ => {
                self.take_note(done, &mut Vec::new());
                if self.item(number).progress == Progress::Placed {
                    fault::point("apply.revealed");
                    self.revealed(number);
                }
            }
        }
    }

    /// Logs the identity of a node that was made in a hidden directory.
    fn made_within(&mut self, number: NodeNumber, top: NodeNumber) {
        let noted = self.note(number, &[]);
        let Some(of) = self.filling.tops.get_mut(&top) else { return };
        of.made.push(number);
        // Without its identity in the log nobody could tell later whose it is.
        of.is_spoilt |= noted.is_err();
        self.close_file(number);
        self.done(number);
        self.filling.settled(top, 1);
    }

    /// Notes that what is in a directory has its place now, or waits for the next apply if the directory has not got its own.
    fn revealed(&mut self, top: NodeNumber) {
        let Some(Top { made, .. }) = self.filling.tops.remove(&top) else { return };
        let is_placed = self.item(top).progress == Progress::Placed;
        for number in made {
            if is_placed {
                let inode = self.item(number).inode.clone();
                self.arrived(number, inode);
            } else {
                self.give_up(number, &waits());
            }
        }
        self.filling.hidden.retain(|_, above| *above != top);
    }

    /// Forgets what earlier applies have made in directories whose identity the log lacks. Nobody has seen that, and it goes when its
    /// directory is made anew.
    pub(super) fn forget_unseen(&mut self, order: &[NodeNumber]) {
        let mut unseen = HashMap::new();
        for number in order {
            if self.is_unseen(*number, &mut unseen) && self.item(*number).identity.is_some() {
                let item = self.item_mut(*number);
                (item.noted, item.names) = (None, Vec::new());
                if let Some(identity) = item.identity.take() {
                    self.owners.remove(&identity);
                    self.vacated.retain(|_, owner| *owner != identity);
                }
            }
        }
    }

    /// Whether the store has nothing of a node but what will be made anew.
    fn is_unseen(&self, number: NodeNumber, known: &mut HashMap<NodeNumber, bool>) -> bool {
        if let Some(is_unseen) = known.get(&number) {
            return *is_unseen;
        }
        // The answer for whoever comes here again in a circle.
        known.insert(number, false);
        let Some(item) = self.items.get(&number) else { return false };
        let is_unseen = match item.identity {
            None => item.state.kind == NodeKind::Directory && number != NodeNumber::ROOT,
            Some(_) => !item.names.is_empty() && item.names.iter().all(|name| self.is_unseen(name.parent, known)),
        };
        known.insert(number, is_unseen);
        is_unseen
    }
}
