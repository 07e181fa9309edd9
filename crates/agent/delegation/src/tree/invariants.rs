//! Invariants of an index, for tests.

use std::collections::{HashMap, HashSet};

use super::slots::{Member, NONE};
use super::{BelowState, NodeNumber, Tree};

impl Tree {
    /// Checks everything that must be true of the index.
    ///
    /// # Panics
    ///
    /// If something is not.
    pub fn assert_invariants(&self) {
        let root = self.slot_of(NodeNumber::ROOT).expect("there is a root");
        let (mut live, mut links) = (HashMap::<u32, u64>::new(), HashSet::new());
        for (slot, member) in self.slots.members_from(0) {
            assert_eq!(self.slot_of(member.number), Some(slot), "the number leads to the slot");
            assert_eq!(member.link.node, slot);
            *live.entry(member.log_file).or_default() += u64::from(member.log_file != 0);
            self.assert_names(slot, member, root);
            links.extend(self.link_slots(slot));
            if member.names() == 0 && slot != root {
                assert!(member.log_file == 0 || member.below != BelowState::Never, "a node to be forgotten is");
            }
        }
        live.retain(|_, count| *count > 0);
        assert_eq!(live, self.live, "live records of each file");
        assert_eq!(self.numbers.len(), self.slots.members_from(0).count());
        for (slot, member) in self.slots.members_from(0).filter(|(_, member)| member.is_directory()) {
            self.assert_directory(slot, member, &links);
        }
        self.assert_pending();
    }

    /// Slots of the links of a node.
    fn link_slots(&self, slot: u32) -> impl Iterator<Item = u32> {
        let member = self.member(slot);
        let first = (member.link.parent != NONE).then_some(slot);
        first.into_iter().chain(member.aliases().iter().copied())
    }

    fn assert_names(&self, slot: u32, member: &Member, root: u32) {
        assert!(!member.is_directory() || member.aliases().is_empty(), "a directory has one name");
        assert!(slot != root || member.names() == 0, "the root has no name");
        for link_slot in self.link_slots(slot) {
            let link = self.slots.link(link_slot);
            assert_eq!(link.node, slot, "a name leads to its node");
            assert_eq!(self.child(link.parent, link.name.as_bytes()), Some(slot), "a name is found");
            let mut steps = 0;
            let mut at = link.parent;
            while let Some((above, _)) = self.first_name(at) {
                (at, steps) = (above, steps + 1);
                assert!(steps <= self.len(), "a circle");
            }
            assert_eq!(at, root, "every name has a way to the root");
        }
    }

    fn assert_directory(&self, slot: u32, member: &Member, links: &HashSet<u32>) {
        let directory = member.directory().expect("a directory has its names");
        let (mut last, mut subdirectories) = (2, 0);
        for (cookie, link_slot) in directory.positions.after(0) {
            assert!(cookie > last && links.contains(&link_slot), "names of a directory are those of its nodes");
            let link = self.slots.link(link_slot);
            assert_eq!((link.parent, link.cookie), (slot, cookie));
            subdirectories += u32::from(self.member(link.node).is_directory());
            last = cookie;
        }
        assert_eq!(directory.positions.len(), directory.table.len());
        assert_eq!(directory.positions.len(), directory.positions.after(0).count());
        assert_eq!(directory.subdirectories, subdirectories);
    }

    fn assert_pending(&self) {
        let (mut last, mut count) = (1, 0);
        for slot in self.pending_slots() {
            let stamp = self.member(slot).stamp;
            assert!(stamp >= last, "stamps rise");
            (last, count) = (stamp, count + 1);
        }
        assert_eq!(count, self.pending.len);
        let stamped = self.slots.members_from(0).filter(|(_, member)| member.stamp != 0).count();
        assert_eq!(count, stamped, "nodes with a stamp are pending");
    }
}
