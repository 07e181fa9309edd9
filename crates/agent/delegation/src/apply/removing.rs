//! Removal of what only the store still has.

use std::io;
use std::sync::Arc;

use types::reported;

use super::Run;
use super::below::is_absent;
use super::creating::kind_of;
use crate::fault;
use crate::limits;
use crate::state::NodeNumber;

impl Run<'_> {
    /// Removes nodes without names from the store, the deepest first.
    pub(super) fn remove_tombstones(&mut self, order: &[NodeNumber]) {
        let mut tombstones: Vec<NodeNumber> =
            order.iter().copied().filter(|number| self.item(*number).is_tombstone()).collect();
        tombstones.sort_by_cached_key(|number| std::cmp::Reverse(self.depth_below(*number)));
        for number in tombstones {
            if !self.may_begin() {
                return;
            }
            let removed = self.remove_below(number).and_then(|()| self.hands.tree.forgotten(number));
            fault::point("apply.applied");
            match removed {
                Ok(()) => {
                    self.report.removed += 1;
                    self.done(number);
                }
                Err(error) => self.stuck(number, &error),
            }
        }
    }

    /// Removes all names that a node has in the store.
    pub(super) fn remove_below(&mut self, number: NodeNumber) -> io::Result<()> {
        // Names may have been taken over since they were found.
        self.item_mut(number).located = false;
        self.locate(number)?;
        let item = self.item(number);
        let (state, mut names) = (Arc::clone(&item.state), item.names.clone());
        if item.identity.is_some() && !item.located {
            return Err(reported(libc::EAGAIN, "waits for a directory"));
        }
        if item.identity.is_some() && item.inode.is_none() {
            names.clear();
        }
        for name in names {
            let Some(parent) = self.directory(name.parent)? else { continue };
            match self.hands.remove_at(&state.creator, (&parent, &name), kind_of(&state)) {
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
            fault::point("apply.removed");
            self.touched.insert(name.parent);
            self.item_mut(number).names.retain(|other| *other != name);
        }
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
