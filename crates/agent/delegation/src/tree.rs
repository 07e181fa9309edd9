//! The index: every node of a delegated tree in memory, and what the log says applied to it.

mod build;
mod directory;
mod invariants;
mod links;
mod pending;
mod slots;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use namespace::FileAttributes;
use types::Timestamp;

pub use build::BrokenTree;
pub use pending::PendingNode;
pub(crate) use slots::Member;

use crate::limits;
use crate::state::{BelowState, Credentials, LogRecord, NodeKind, NodeName, NodeNumber, NodeState, Transaction};
use pending::PendingList;
use slots::{Slot, Slots};

/// Bytes that a directory reports as its size.
const DIRECTORY_BYTES: u64 = 4096;
const BLOCK_BYTES: u64 = 512;

/// The index of one tree.
pub struct Tree {
    slots: Slots,
    /// Slots of nodes by number.
    numbers: HashTable<u32>,
    hasher: RandomState,
    pending: PendingList,
    creators: HashSet<Arc<Credentials>>,
    /// Size of `creators` at which those without a node are dropped.
    creators_full: usize,
    /// Records in each log file that are still needed.
    live: HashMap<u32, u64>,
}

impl Tree {
    /// Creates an index without any node, not even a root.
    fn empty() -> Tree {
        Tree {
            slots: Slots::new(),
            numbers: HashTable::new(),
            hasher: RandomState::new(),
            pending: PendingList::default(),
            creators: HashSet::new(),
            creators_full: 64,
            live: HashMap::new(),
        }
    }

    /// Returns the slot of a node; `None` if there is no such node.
    pub(crate) fn slot_of(&self, number: NodeNumber) -> Option<u32> {
        let hash = self.hasher.hash_one(number);
        self.numbers.find(hash, |slot| self.slots.member(*slot).number == number).copied()
    }

    /// Returns the node in a slot that is known to hold one.
    pub(crate) fn member(&self, slot: u32) -> &Member {
        self.slots.member(slot)
    }

    /// Returns the largest of the nodes' numbers without their openings.
    pub(crate) fn last_count(&self) -> u64 {
        let mask = (1 << limits::NUMBER_BITS) - 1;
        self.slots.members_from(0).map(|(_, member)| member.number.0 & mask).max().unwrap_or(0)
    }

    /// Number of nodes and of second and further names.
    pub fn len(&self) -> usize {
        self.slots.used
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Number of records in a log file that are still needed. A touch needs none: the directory's state is in no later file.
    pub fn live(&self, file: u32) -> u64 {
        self.live.get(&file).copied().unwrap_or(0)
    }

    /// Number of records in all log files that are still needed.
    pub fn live_total(&self) -> u64 {
        self.live.values().sum()
    }

    fn count(&mut self, from: u32, to: u32) {
        if from != 0 {
            let live = self.live.get_mut(&from).expect("a file with a live record");
            *live -= 1;
            if *live == 0 {
                self.live.remove(&from);
            }
        }
        if to != 0 {
            *self.live.entry(to).or_default() += 1;
        }
    }

    /// Adds a node without names.
    fn add(&mut self, number: NodeNumber, kind: NodeKind, creator: &Arc<Credentials>) -> u32 {
        let creator = self.shared_creator(creator);
        let slot = self.slots.add(|slot| Slot::Member(Member::new(number, kind, slot, creator)));
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash = hasher.hash_one(number);
        self.numbers.insert_unique(hash, slot, |slot| hasher.hash_one(slots.member(*slot).number));
        slot
    }

    /// Returns equal credentials of another node, if there are.
    fn shared_creator(&mut self, creator: &Arc<Credentials>) -> Arc<Credentials> {
        if let Some(known) = self.creators.get(creator) {
            return Arc::clone(known);
        }
        if self.creators.len() >= self.creators_full {
            self.creators.retain(|known| Arc::strong_count(known) > 1);
            self.creators_full = (2 * self.creators.len()).max(64);
        }
        self.creators.insert(Arc::clone(creator));
        Arc::clone(creator)
    }

    /// Sets everything but the names. `file`: the log file with the state; `None` if it is not logged.
    fn put(&mut self, state: &mut NodeState, file: Option<u32>) -> u32 {
        let slot = self.slot_of(state.number).unwrap_or_else(|| self.add(state.number, state.kind, &state.creator));
        if let Some(file) = file {
            let member = self.slots.member_mut(slot);
            let before = std::mem::replace(&mut member.log_file, file);
            self.count(before, file);
            self.set_stamp(slot, state.stamp);
        }
        let member = self.slots.member_mut(slot);
        // A state that is logged again, or what is recorded of the global store, changes nothing that the store could lack.
        member.changes = member.changes.wrapping_add(u32::from(member.differs(state)));
        (member.mode, member.uid, member.gid, member.size) = (state.mode, state.uid, state.gid, state.size);
        member.ino = state.ino;
        (member.atime, member.mtime, member.ctime) = (state.atime, state.mtime, state.ctime);
        member.set_data(state.data);
        member.below = std::mem::take(&mut state.below);
        if member.rare.is_some() || !state.xattrs.is_empty() || !state.target.is_empty() || state.device != 0 {
            let rare = member.rare();
            rare.xattrs = std::mem::take(&mut state.xattrs);
            rare.target = std::mem::take(&mut state.target);
            rare.device = state.device;
            rare.linkable = false;
        }
        slot
    }

    /// Applies a transaction that log file `file` has. Returns slots of nodes that are forgotten; each is to be freed when
    /// nobody holds it.
    pub(crate) fn apply(&mut self, file: u32, transaction: Transaction) -> Vec<u32> {
        let Transaction { sequence, time, touched, records } = transaction;
        let (mut named, mut gone) = (Vec::with_capacity(records.len()), Vec::new());
        for record in records {
            match record {
                LogRecord::State(mut state) => {
                    let slot = self.put(&mut state, Some(file));
                    named.push((slot, state.names));
                }
                LogRecord::Forgotten(number) => gone.extend(self.slot_of(number)),
            }
        }
        // Names are taken away first: those of two nodes may be exchanged.
        for slot in &gone {
            self.unlink_all_but(*slot, &[]);
            self.settle_as_forgotten(*slot);
            self.slots.member_mut(*slot).ctime = time;
        }
        named.iter().for_each(|(slot, names)| self.unlink_all_but(*slot, names));
        named.into_iter().for_each(|(slot, names)| self.link_all(slot, names));
        for number in touched {
            let Some(slot) = self.slot_of(number) else { continue };
            let member = self.slots.member_mut(slot);
            (member.mtime, member.ctime) = (time, time);
            member.changes = member.changes.wrapping_add(1);
            if member.stamp == 0 {
                self.set_stamp(slot, sequence);
            }
        }
        gone
    }

    /// Sets the state of a node without names, which no log has.
    pub(crate) fn apply_unlogged(&mut self, mut state: NodeState, linkable: bool) -> u32 {
        let slot = self.put(&mut state, None);
        let member = self.slots.member_mut(slot);
        if linkable || member.rare.is_some() {
            member.rare().linkable = linkable;
        }
        slot
    }

    /// Leaves nothing of a node that the log or the global store would need.
    fn settle_as_forgotten(&mut self, slot: u32) {
        self.set_stamp(slot, 0);
        let member = self.slots.member_mut(slot);
        member.below = BelowState::Never;
        let before = std::mem::take(&mut member.log_file);
        self.count(before, 0);
    }

    /// Whether a node has neither a name nor a record, so that only who holds it needs it.
    pub(crate) fn is_forgotten(&self, slot: u32) -> bool {
        let member = self.member(slot);
        member.names() == 0 && member.log_file == 0 && member.number != NodeNumber::ROOT
    }

    /// Frees the slot of a forgotten node that nobody holds.
    pub(crate) fn free(&mut self, slot: u32) {
        debug_assert!(self.is_forgotten(slot));
        let number = self.member(slot).number;
        let hash = self.hasher.hash_one(number);
        if let Ok(entry) = self.numbers.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.slots.free(slot);
    }

    /// Returns the state of a node, with all its names.
    pub(crate) fn state(&self, slot: u32) -> NodeState {
        let member = self.member(slot);
        NodeState {
            number: member.number,
            kind: member.kind,
            mode: member.mode,
            uid: member.uid,
            gid: member.gid,
            atime: member.atime,
            mtime: member.mtime,
            ctime: member.ctime,
            size: member.size,
            ino: member.ino,
            device: member.device(),
            target: member.target().into(),
            xattrs: member.xattrs().cloned().unwrap_or_default(),
            names: self.names(slot),
            data: member.data(),
            below: member.below.clone(),
            creator: Arc::clone(&member.creator),
            stamp: member.stamp,
        }
    }

    /// Returns all names of a node.
    pub(crate) fn names(&self, slot: u32) -> Vec<NodeName> {
        self.links(slot)
            .map(|link| NodeName { parent: self.member(link.parent).number, name: link.name.clone() })
            .collect()
    }

    /// Number of links that programs see.
    pub(crate) fn link_count(&self, slot: u32) -> u32 {
        let member = self.member(slot);
        match member.directory() {
            Some(_) if member.names() == 0 && member.number != NodeNumber::ROOT => 0,
            Some(_) if member.is_unread() => member.size as u32,
            Some(directory) => 2 + directory.subdirectories,
            None => member.names() as u32,
        }
    }

    /// Returns the attributes of a node, with this inode number.
    pub(crate) fn attributes(&self, slot: u32, ino: u64) -> FileAttributes {
        let member = self.member(slot);
        let size = match member.kind {
            NodeKind::Directory => DIRECTORY_BYTES,
            NodeKind::Symlink => member.target().len() as u64,
            _ => member.size,
        };
        let [atime, mtime, ctime] = [member.atime, member.mtime, member.ctime].map(Timestamp::from);
        FileAttributes {
            ino,
            size,
            blocks: if member.kind == NodeKind::Symlink { 0 } else { size.div_ceil(BLOCK_BYTES) },
            atime,
            mtime,
            ctime,
            mode: member.kind.file_type().as_raw_mode() | u32::from(member.mode),
            nlink: self.link_count(slot),
            uid: member.uid,
            gid: member.gid,
            rdev: member.device() as u32,
            blksize: if member.is_directory() { 4096 } else { namespace::limits::PREFERRED_IO_BYTES },
        }
    }

    /// Returns numbers of up to `records_max` nodes with a live record in a log file, among the next `slots_max` slots from
    /// `from` on; and the slot to go on from, `None` after the last.
    pub(crate) fn live_in(
        &self,
        file: u32,
        from: u32,
        slots_max: usize,
        records_max: usize,
    ) -> (Vec<NodeNumber>, Option<u32>) {
        let (mut found, end) = (Vec::new(), self.slots.end().min(from.saturating_add(slots_max as u32)));
        for (slot, member) in self.slots.members_from(from).take_while(|(slot, _)| *slot < end) {
            if member.log_file != file {
                continue;
            }
            if found.len() == records_max {
                return (found, Some(slot));
            }
            found.push(member.number);
        }
        (found, (end < self.slots.end()).then_some(end))
    }

    /// Returns the states of all nodes that the log has.
    pub fn states(&self) -> impl Iterator<Item = NodeState> {
        self.slots.members_from(0).filter(|(_, member)| member.log_file != 0).map(|(slot, _)| self.state(slot))
    }
}
