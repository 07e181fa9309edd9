//! Last steps for a node in its place: content and attributes, and the record that all is done.

use std::io;
use std::sync::Arc;

use global_store::Access;
use namespace::{AnchorFor, FileAttributes, Inode};

use super::Run;
use super::items::Progress;
use crate::delegated::Applied;
use crate::fault;
use crate::limits;
use crate::state::{DataPlace, Moment, NodeKind, NodeNumber, NodeState};

impl Run<'_> {
    /// Brings content and attributes of a node that is in its place.
    pub(super) fn finish(&mut self, number: NodeNumber) -> io::Result<()> {
        let item = self.item(number);
        let (state, is_dressed) = (Arc::clone(&item.state), item.dressed);
        if !is_dressed {
            let inode = match number {
                NodeNumber::ROOT => Arc::clone(&self.hands.store.root),
                _ => item.inode.clone().ok_or(io::ErrorKind::NotFound)?,
            };
            let mut below = self.hands.store.namespace.attributes(&inode)?;
            if self.rewrite(&inode, &state, &below)? {
                below = self.hands.store.namespace.attributes(&inode)?;
            }
            self.hands.dress(&inode, &state, &below, false)?;
        }
        self.finished(number)
    }

    /// Writes the content of a file that the store has, if size or time tell that it differs.
    fn rewrite(&self, inode: &Inode, state: &NodeState, below: &FileAttributes) -> io::Result<bool> {
        let is_equal = below.size == state.size && Moment::from(below.mtime) == state.mtime;
        if state.kind != NodeKind::File || state.data == DataPlace::BelowOnly || is_equal {
            return Ok(false);
        }
        let file = self.hands.store.namespace.anchor(inode, AnchorFor::Any)?.open(Access::Write)?;
        self.hands.write(state, &*file)?;
        file.set_len(state.size)?;
        Ok(true)
    }

    fn finished(&mut self, number: NodeNumber) -> io::Result<()> {
        let outcome = self.hands.tree.applied(self.item(number).pending, self.record(number))?;
        fault::point("apply.applied");
        match outcome {
            Applied::Done => self.report.applied += 1,
            Applied::ChangedMeanwhile => self.report.changed += 1,
            Applied::Gone => {
                self.remove_below(number)?;
                self.report.removed += 1;
            }
        }
        self.done(number);
        Ok(())
    }

    /// Dresses directories, the deepest first, and sets the times of those whose names this apply has changed.
    pub(super) fn finish_directories(&mut self) {
        let placed = |number: &NodeNumber| {
            let item = &self.items[number];
            let is_placed = item.progress == Progress::Placed || *number == NodeNumber::ROOT;
            item.is_directory() && is_placed
        };
        let mut directories: Vec<NodeNumber> = self.items.keys().copied().filter(placed).collect();
        let others = self.touched.iter().filter(|number| !self.items.contains_key(number));
        directories.extend(others);
        directories.sort_by_cached_key(|number| std::cmp::Reverse((self.depth(*number), *number)));
        for number in directories {
            let is_pending = self.items.contains_key(&number);
            // What is not pending has to get its times now.
            if is_pending && !self.may_begin() {
                continue;
            }
            let finished = if is_pending { self.finish(number) } else { self.set_times_again(number) };
            if let Err(error) = finished {
                self.stuck(number, &error);
            }
        }
    }

    fn set_times_again(&mut self, number: NodeNumber) -> io::Result<()> {
        let (Some(state), Some(inode)) = (self.hands.tree.state(number), self.directory(number)?) else {
            return Ok(());
        };
        self.hands.dress_times(&inode, &state)
    }

    fn depth(&self, number: NodeNumber) -> usize {
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
