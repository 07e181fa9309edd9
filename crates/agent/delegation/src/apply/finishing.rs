//! Last steps for a node in its place: content and attributes, a sync of the store, and the record that all is done.

use std::io;
use std::sync::Arc;

use global_store::{Access, SyncPoint};
use namespace::{AnchorFor, FileAttributes, Inode};

use super::dressing::Dressing;
use super::items::has_content;
use super::jobs::Job;
use super::{Hands, Progress, Run};
use crate::delegated::Applied;
use crate::fault;
use crate::limits;
use crate::state::{DataPlace, NodeKind, NodeNumber, NodeState};

/// Nodes that the store has, although a crash could still take them from it.
#[derive(Default)]
pub(super) struct Unsynced {
    /// Opened before the first of the nodes was changed.
    point: Option<Box<dyn SyncPoint>>,
    brought: Vec<NodeNumber>,
    removed: Vec<NodeNumber>,
    /// Whether the store was changed since the point was opened.
    is_changed: bool,
}

impl Hands {
    /// Brings content and attributes of a node that is in its place. `doubtful`: the content may be another.
    pub(super) fn finish(&self, inode: &Inode, state: &NodeState, doubtful: bool) -> io::Result<()> {
        if state.data == DataPlace::Outside {
            return Ok(());
        }
        let mut below = self.store.namespace.attributes(inode)?;
        if self.rewrite(inode, state, &below, doubtful)? {
            below = self.store.namespace.attributes(inode)?;
        }
        self.dress(inode, state, &below, Dressing::KNOWN)
    }

    /// Brings the attributes of a directory that is in its place.
    pub(super) fn finish_directory(&self, inode: &Inode, state: &NodeState, how: Dressing) -> io::Result<()> {
        self.dress(inode, state, &self.store.namespace.attributes(inode)?, how)
    }

    /// Writes the content of a file that the store has, if it may differ.
    fn rewrite(&self, inode: &Inode, state: &NodeState, below: &FileAttributes, doubtful: bool) -> io::Result<bool> {
        let is_equal = below.size == state.size && !doubtful;
        if state.kind != NodeKind::File || state.data == DataPlace::BelowOnly || is_equal {
            return Ok(false);
        }
        let file = self.store.namespace.anchor(inode, AnchorFor::Any)?.open(Access::Write)?;
        self.write(state, &*file)?;
        file.set_len(state.size)?;
        Ok(true)
    }
}

impl Run<'_> {
    /// Brings content and attributes of a node that is in its place.
    pub(super) fn finish(&mut self, number: NodeNumber) -> io::Result<()> {
        let item = self.item(number);
        if !item.dressed {
            let (state, doubtful) = (Arc::clone(&item.state), item.doubtful);
            let inode = item.inode.clone().ok_or(io::ErrorKind::NotFound)?;
            if has_content(&state) && !self.note_durably(number, &[])? {
                self.done(number);
                return Ok(());
            }
            self.hands.finish(&inode, &state, doubtful)?;
        }
        self.finished(number);
        Ok(())
    }

    /// Notes that the store has a node, which is recorded after a sync.
    pub(super) fn finished(&mut self, number: NodeNumber) {
        self.unsynced.brought.push(number);
        self.unsynced.is_changed = true;
        self.close_file(number);
        self.done(number);
    }

    /// Notes that the store has nothing more of a node, which is recorded after a sync.
    pub(super) fn removed(&mut self, number: NodeNumber) {
        self.unsynced.removed.push(number);
        self.unsynced.is_changed = true;
        self.done(number);
    }

    /// Notes that the store was changed, although no node is recorded for it.
    pub(super) fn unsynced_change(&mut self) {
        self.unsynced.is_changed = true;
    }

    /// Makes the log durable, and opens the sync point for the first changes. Returns false if nothing must be begun.
    pub(super) fn open_syncs(&mut self) -> bool {
        let opened = self.hands.sync_all_of_log().and_then(|()| self.hands.store.namespace.store().sync_point());
        match opened {
            Ok(point) => self.unsynced.point = Some(point),
            Err(error) => {
                self.report.synced = false;
                self.stuck(NodeNumber::ROOT, &error);
                return false;
            }
        }
        true
    }

    /// Whether many nodes wait for a sync of the store.
    pub(super) fn is_sync_due(&self) -> bool {
        self.unsynced.brought.len() + self.unsynced.removed.len() >= limits::SYNCED_NODES
    }

    /// Syncs the store if many nodes wait for it.
    pub(super) fn sync_some(&mut self) {
        if self.is_sync_due() {
            self.sync_store();
            // The next point is opened before anything more is changed.
            self.unsynced.point = self.hands.store.namespace.store().sync_point().ok();
        }
    }

    /// Syncs the store and records what it has. After an error all that was not recorded stays pending.
    pub(super) fn sync_store(&mut self) {
        while self.unsynced.is_changed {
            let Unsynced { point, brought, removed, .. } = std::mem::take(&mut self.unsynced);
            let store = Arc::clone(&self.hands.store);
            let synced = match point {
                Some(point) => point.sync(),
                None => store.namespace.store().sync(),
            };
            if let Err(error) = synced {
                self.report.synced = false;
                brought.iter().chain(&removed).for_each(|number| self.stuck(*number, &error));
                continue;
            }
            fault::point("apply.synced");
            for number in brought {
                if let Err(error) = self.record_brought(number) {
                    self.stuck(number, &error);
                }
            }
            for number in removed {
                let forgotten = self.hands.tree.forgotten(number);
                fault::point("apply.applied");
                match forgotten {
                    Ok(()) => self.report.removed += 1,
                    Err(error) => self.stuck(number, &error),
                }
            }
        }
    }

    fn record_brought(&mut self, number: NodeNumber) -> io::Result<()> {
        let outcome = self.hands.tree.applied(self.item(number).pending, self.record(number))?;
        fault::point("apply.applied");
        match outcome {
            Applied::Done => self.report.applied += 1,
            Applied::ChangedMeanwhile => self.report.changed += 1,
            Applied::Gone => {
                self.remove_below(number)?;
                self.removed(number);
            }
        }
        Ok(())
    }

    /// Dresses directories, the deepest first, and sets the times of those whose names this apply has changed.
    pub(super) fn finish_directories(&mut self) {
        let placed = |number: &NodeNumber| {
            let item = &self.items[number];
            let is_placed = item.progress == Progress::Placed || *number == NodeNumber::ROOT;
            item.is_directory() && is_placed && !item.is_finished
        };
        let mut directories: Vec<NodeNumber> = self.items.keys().copied().filter(placed).collect();
        let others = std::mem::take(&mut self.touched);
        directories.extend(others.into_iter().filter(|number| !self.items.contains_key(number)));
        let mut directories: Vec<_> = directories.into_iter().map(|number| (self.depth(number), number)).collect();
        directories.sort_unstable_by_key(|(depth, number)| std::cmp::Reverse((*depth, *number)));
        for level in directories.chunk_by(|one, two| one.0 == two.0) {
            for some in level.chunks(self.round_nodes()) {
                let mut jobs = Vec::new();
                for (_, number) in some {
                    match self.finishing(*number) {
                        Ok(job) => jobs.extend(job),
                        Err(error) => self.stuck(*number, &error),
                    }
                }
                self.carry_out_all(jobs);
            }
        }
    }

    /// Returns the last work for a directory; `None` if there is none now.
    fn finishing(&mut self, number: NodeNumber) -> io::Result<Option<Job>> {
        let Some(item) = self.items.get(&number) else {
            // What is not pending has to get its times now.
            let (Some(state), Some(inode)) = (self.hands.tree.state(number), self.directory(number)?) else {
                return Ok(None);
            };
            return Ok(Some(Job::SetTimes(Arc::new(state), inode)));
        };
        let (state, is_made) = (Arc::clone(&item.state), item.is_made);
        if !self.may_begin() {
            return Ok(None);
        }
        let inode = self.directory(number)?.ok_or(io::ErrorKind::NotFound)?;
        let how = match is_made {
            true => Dressing { is_new: true, has_acl: self.hands.hands_down_acl(&inode)? },
            false => Dressing::KNOWN,
        };
        Ok(Some(Job::Finish(state, inode, how)))
    }

    pub(super) fn depth(&self, number: NodeNumber) -> usize {
        let (mut depth, mut at) = (0, number);
        while at != NodeNumber::ROOT && depth < limits::PATH_BYTES_MAX {
            let parent = match self.items.get(&at) {
                Some(item) => item.state.names.first().map(|name| name.parent),
                None => self.hands.tree.state(at).and_then(|state| state.names.first().map(|name| name.parent)),
            };
            let Some(parent) = parent else { break };
            (depth, at) = (depth + 1, parent);
        }
        depth
    }
}
