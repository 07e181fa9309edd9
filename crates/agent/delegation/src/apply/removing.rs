//! Removal of what only the store still has.

use std::io;
use std::sync::Arc;

use super::jobs::{Job, Outcome, Removal};
use super::{Run, rounds};
use crate::limits;
use crate::state::NodeNumber;

impl Run<'_> {
    /// Removes nodes without names from the store, the deepest first.
    pub(super) fn remove_tombstones(&mut self, order: &[NodeNumber]) {
        let tombstones =
            order.iter().copied().filter(|number| self.item(*number).is_tombstone() && self.item(*number).is_left);
        // All but directories are as deep as one wishes.
        let depth = |number| if self.item(number).is_directory() { self.depth_below(number) } else { usize::MAX };
        let mut tombstones: Vec<_> = tombstones.map(|number| (depth(number), number)).collect();
        tombstones.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        for level in tombstones.chunk_by(|one, two| one.0 == two.0) {
            let mut level: Vec<NodeNumber> = level.iter().map(|(_, number)| *number).collect();
            rounds::spread(&mut level, |number| self.known_name(number).map(|name| name.parent));
            for some in level.chunks(self.round_nodes()) {
                let mut jobs = Vec::new();
                for number in some {
                    if !self.may_begin() {
                        break;
                    }
                    match self.removal(*number) {
                        Ok(removal) => jobs.push(Job::Remove(removal)),
                        Err(error) => self.stuck(*number, &error),
                    }
                }
                self.carry_out_all(jobs);
                self.sync_some();
            }
        }
    }

    /// Returns all that the removal of a node needs.
    fn removal(&mut self, number: NodeNumber) -> io::Result<Removal> {
        // Names may have been taken over since they were found, and a crash may give back those of before.
        self.forget_place(number);
        let item = self.item(number);
        let (state, identity, names) = (Arc::clone(&item.state), item.identity.clone(), item.names.clone());
        let at = self.places(&names)?;
        Ok(Removal { state, identity, at })
    }

    /// Removes all names that a node has in the store.
    pub(super) fn remove_below(&mut self, number: NodeNumber) -> io::Result<()> {
        let removal = self.removal(number)?;
        if let Outcome::Removed(touched) = self.hands.take(&Job::Remove(removal), &|| {})? {
            self.touched.extend(touched);
        }
        self.item_mut(number).names.clear();
        Ok(())
    }

    /// Directories above a node in the store.
    fn depth_below(&self, number: NodeNumber) -> usize {
        let (mut depth, mut at) = (0, number);
        while at != NodeNumber::ROOT && depth < limits::PATH_BYTES_MAX {
            let Some(name) = self.known_name(at) else { break };
            (depth, at) = (depth + 1, name.parent);
        }
        depth
    }
}
