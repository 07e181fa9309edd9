//! The file of each node number: a node while it is in use, and less while only the kernel knows it.
//!
//! A node *rests* when nobody has used it for a while and it can be made again from what it holds. A million names that the kernel
//! knows are a million resting nodes.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use agent::{Node, RestingNode};
use concurrency::Instant;
use fuse_protocol::NodeId;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use types::Identity;

use crate::limits;
use crate::nodes::{Known, Place};
use crate::opens::OpenState;
use crate::slab::{Slab, hash_of};

/// Milliseconds of a tick of [`Tables::tick`].
const TICK_MS: u128 = 125;
/// Ticks after which a name is surely older than [`NAME_TRUSTED`](limits::NAME_TRUSTED).
pub const TRUSTED_TICKS: u16 = (limits::NAME_TRUSTED.as_millis() / TICK_MS) as u16 + 1;

/// One node number. A million of these stay small.
pub struct Slot {
    pub id: NodeId,
    pub lookups: u64,
    pub file: SlotFile,
    /// Part of the hash of the file's key, for the table of newest numbers.
    key_hash: u32,
    /// Tick of the last lookup.
    pub looked_up: u16,
    /// Set at each lookup. Cleared by a search for nodes to forget, as a second chance.
    pub fresh: bool,
}

/// The file of a number.
pub enum SlotFile {
    InUse {
        known: Arc<Known>,
        /// Directory and name of the last lookup, of a node with a descriptor: the entry to invalidate when the kernel is to forget
        /// the node.
        place: Option<Box<Place>>,
    },
    Resting {
        node: RestingNode,
        /// State that an open depends on, if there is any.
        open: Option<Box<OpenState>>,
    },
}

impl Slot {
    fn has_key(&self, key: &Identity) -> bool {
        match &self.file {
            SlotFile::InUse { known, .. } => known.node.key() == key,
            SlotFile::Resting { node, .. } => node.has_key(key),
        }
    }

    /// Returns the node if it is in use.
    pub fn in_use(&self) -> Option<&Arc<Known>> {
        match &self.file {
            SlotFile::InUse { known, .. } => Some(known),
            SlotFile::Resting { .. } => None,
        }
    }

    /// Returns the node if it holds a descriptor of the global store. Resting ones hold none.
    pub fn holding(&self) -> Option<&Arc<Known>> {
        self.in_use().filter(|known| known.node.holds_descriptor())
    }

    /// Returns the place of the last lookup, if it is remembered.
    pub fn place(&self) -> Option<&Place> {
        match &self.file {
            SlotFile::InUse { place, .. } => place.as_deref(),
            SlotFile::Resting { .. } => None,
        }
    }

    /// Whether the kernel may be asked to forget the node: it holds a descriptor, and no open file and no request uses it. A directory's
    /// last lookup must be old enough that whoever enters it now looks it up again; one that is held exclusively is
    /// entered without.
    pub fn may_be_forgotten(&self, tick: u16) -> bool {
        let Some(known) = self.holding() else { return false };
        let is_old = tick.wrapping_sub(self.looked_up) >= TRUSTED_TICKS;
        let is_settled = !known.node.is_directory() || !known.node.is_exclusive() && is_old;
        !self.fresh && Arc::strong_count(known) == 1 && is_settled
    }

    /// Returns whether others may change the file now, but not when it was found; with true for a directory.
    pub fn lost_exclusivity(&self) -> Option<bool> {
        let (is_lost, is_directory) = match &self.file {
            SlotFile::InUse { known, .. } => (known.node.lost_exclusivity(), known.node.is_directory()),
            SlotFile::Resting { node, .. } => (node.lost_exclusivity(), node.is_directory()),
        };
        is_lost.then_some(is_directory)
    }

    /// Lets the node rest if nobody uses it. Returns whether it rests.
    fn rest(&mut self) -> bool {
        let SlotFile::InUse { known, .. } = &mut self.file else { return true };
        // Nobody gets the node meanwhile: the tables are locked.
        let Some(known) = Arc::get_mut(known).filter(|known| known.has_nothing_but_opens()) else { return false };
        let open = std::mem::take(&mut *known.open.lock());
        let node = if open.is_closed() { Node::resting(&mut known.node) } else { None };
        let Some(node) = node else {
            *known.open.lock() = open;
            return false;
        };
        let open = (!open.is_new()).then(|| Box::new(open));
        self.file = SlotFile::Resting { node, open };
        true
    }
}

/// All numbers, and the files to which they lead.
pub struct Tables {
    slots: Slab<Slot>,
    /// The slots by their numbers.
    by_id: HashTable<u32>,
    /// The slots of the files' newest nodes, by the files' keys.
    newest: HashTable<u32>,
    hasher: RandomState,
    /// Number of slots whose node holds a descriptor.
    pub descriptors: usize,
    /// Number of retired node numbers of each file.
    pub retired: HashMap<Identity, u32>,
    /// Node at which the last search for nodes to forget ended.
    pub hand: NodeId,
    /// Nodes in use that may rest: the longest awake first.
    awake: VecDeque<NodeId>,
    began: Instant,
}

/// Gives memory back where a table has become small.
fn shrink(table: &mut HashTable<u32>, hash: impl Fn(&u32) -> u64) {
    if table.capacity() > limits::TABLE_KEPT && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2, hash);
    }
}

/// Spreads the part of a hash that is kept.
fn hash_of_key(part: u32) -> u64 {
    u64::from(part) << 32 | u64::from(part)
}

impl Tables {
    pub fn new() -> Tables {
        Tables {
            slots: Slab::default(),
            by_id: HashTable::new(),
            newest: HashTable::new(),
            hasher: RandomState::new(),
            descriptors: 0,
            retired: HashMap::new(),
            hand: 0,
            awake: VecDeque::new(),
            began: Instant::now(),
        }
    }

    /// Returns the time of now, in ticks that wrap after two hours.
    pub fn tick(&self) -> u16 {
        (self.began.elapsed().as_millis() / TICK_MS) as u16
    }

    fn at(&self, id: NodeId) -> Option<u32> {
        let is_its = |at: &u32| self.slots.get(*at).is_some_and(|slot| slot.id == id);
        self.by_id.find(hash_of(id), is_its).copied()
    }

    pub fn slot(&self, id: NodeId) -> Option<&Slot> {
        self.slots.get(self.at(id)?)
    }

    pub fn slot_mut(&mut self, id: NodeId) -> Option<&mut Slot> {
        self.slots.get_mut(self.at(id)?)
    }

    pub fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// Returns the node of a number, which does not rest then.
    pub fn known(&mut self, id: NodeId) -> Option<Arc<Known>> {
        let slot = self.slot_mut(id)?;
        let known = match &mut slot.file {
            SlotFile::InUse { known, .. } => return Some(Arc::clone(known)),
            SlotFile::Resting { node, open } => {
                let open = open.take().map(|open| *open).unwrap_or_default();
                Known::new(id, node.node(), open)
            }
        };
        slot.file = SlotFile::InUse { known: Arc::clone(&known), place: None };
        self.let_rest(id);
        Some(known)
    }

    /// Adds a number, of a file that was found at `place`.
    pub fn insert(&mut self, known: Arc<Known>, lookups: u64, place: Option<Place>) {
        let (id, holds) = (known.id, known.node.holds_descriptor());
        self.descriptors += usize::from(holds);
        let place = place.filter(|_| holds).map(Box::new);
        let slot = Slot {
            id,
            lookups,
            key_hash: (self.hasher.hash_one(known.node.key()) >> 32) as u32,
            looked_up: self.tick(),
            fresh: true,
            file: SlotFile::InUse { known, place },
        };
        let at = self.slots.insert(slot);
        let slots = &self.slots;
        self.by_id.insert_unique(hash_of(id), at, |at| slots.get(*at).map_or(0, |slot| hash_of(slot.id)));
        if !holds {
            self.let_rest(id);
        }
    }

    /// Notes a node that is in use, and lets rest those that are so no more.
    fn let_rest(&mut self, id: NodeId) {
        self.awake.push_back(id);
        for _ in 0..limits::RESTED_AT_ONCE {
            if self.awake.len() <= limits::AWAKE_NODES {
                return;
            }
            let Some(first) = self.awake.pop_front() else { return };
            if self.slot_mut(first).is_some_and(|slot| !slot.rest()) {
                self.awake.push_back(first);
            }
        }
    }

    /// Removes a number.
    pub fn remove(&mut self, id: NodeId) -> Option<Slot> {
        let slots = &self.slots;
        let is_its = |at: &u32| slots.get(*at).is_some_and(|slot| slot.id == id);
        let (at, _) = self.by_id.find_entry(hash_of(id), is_its).ok()?.remove();
        let gone = self.slots.remove(at)?;
        self.descriptors -= usize::from(gone.holding().is_some());
        let slots = &self.slots;
        shrink(&mut self.by_id, |at| slots.get(*at).map_or(0, |slot| hash_of(slot.id)));
        Some(gone)
    }

    /// Returns the newest number of a file.
    pub fn newest(&self, key: &Identity) -> Option<NodeId> {
        let part = (self.hasher.hash_one(key) >> 32) as u32;
        let is_its = |at: &u32| self.slots.get(*at).is_some_and(|slot| slot.key_hash == part && slot.has_key(key));
        self.newest.find(hash_of_key(part), is_its).and_then(|at| self.slots.get(*at)).map(|slot| slot.id)
    }

    /// Makes a number that has a slot, and whose node is in use, the newest of its file.
    pub fn set_newest(&mut self, id: NodeId) {
        let Some(at) = self.at(id) else { return };
        let slots = &self.slots;
        let hash = |at: &u32| slots.get(*at).map_or(0, |slot| hash_of_key(slot.key_hash));
        let Some(known) = slots.get(at).and_then(Slot::in_use) else { return };
        let is_its = |other: &u32| slots.get(*other).is_some_and(|slot| slot.has_key(known.node.key()));
        match self.newest.entry(hash(&at), is_its, hash) {
            Entry::Occupied(mut newest) => *newest.get_mut() = at,
            Entry::Vacant(newest) => _ = newest.insert(at),
        }
    }

    /// Takes a number away that has a slot, if it is the newest of its file. Returns whether it was.
    pub fn remove_newest(&mut self, id: NodeId) -> bool {
        let Some(at) = self.at(id) else { return false };
        let slots = &self.slots;
        let hash = |at: &u32| slots.get(*at).map_or(0, |slot| hash_of_key(slot.key_hash));
        let is_newest = match self.newest.find_entry(hash(&at), |other| *other == at) {
            Ok(newest) => {
                newest.remove();
                true
            }
            Err(_) => false,
        };
        shrink(&mut self.newest, hash);
        is_newest
    }

    /// Counts one retired number of a file less.
    pub fn less_retired(&mut self, identity: &Identity) {
        if let Some(count) = self.retired.get_mut(identity) {
            *count -= 1;
            if *count == 0 {
                self.retired.remove(identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_takes_at_most_56_bytes() {
        assert!(size_of::<Option<Slot>>() <= 56, "{}", size_of::<Option<Slot>>());
    }
}
