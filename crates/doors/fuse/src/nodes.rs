//! Table of the kernel's node numbers: the file of each.
//!
//! Invariant 1: a number is never used twice. Invariant 2: a file's key leads to at most one number, the newest.
//! Older numbers of the file are *retired*: files opened through them stay usable, and new lookups get a new number.
//! Invariant 3: a number is known while the kernel's lookup count is above zero; the root is always known.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent::{FileAttributes, Node};
use concurrency::{Instant, Mutex};
use fuse_protocol::NodeId;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use types::Identity;

use crate::limits;
use crate::opens::OpenState;

/// Node number of the root.
pub const ROOT: NodeId = 1;

/// File that the kernel knows by a node number.
pub struct Known {
    /// Node number.
    pub id: NodeId,
    /// The file.
    pub node: Arc<Node>,
    /// State of the node's opens.
    pub open: Mutex<OpenState>,
    /// Whether a newer number stands for this file. Opens through this one may then have an older version.
    retired: AtomicBool,
    /// FileAttributes last shown to the kernel, for use while the global store hangs.
    pub told: Mutex<Option<Box<FileAttributes>>>,
}

impl Known {
    fn new(id: NodeId, node: Arc<Node>) -> Arc<Known> {
        Arc::new(Known { id, node, open: Mutex::default(), retired: AtomicBool::new(false), told: Mutex::default() })
    }

    /// Returns whether a newer number stands, or will stand, for this file.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }
}

struct Slot {
    known: Arc<Known>,
    lookups: u64,
    /// Directory and name of the last lookup: the entry to invalidate when the kernel is to forget the node.
    place: Option<(NodeId, OsString)>,
    /// Set at each lookup. Cleared by a search for nodes to forget, as a second chance.
    fresh: bool,
    /// Time of the last lookup.
    looked_up: Instant,
}

impl Slot {
    fn new(known: Arc<Known>, lookups: u64, place: Option<(NodeId, OsString)>) -> Slot {
        Slot { known, lookups, place, fresh: true, looked_up: Instant::now() }
    }

    /// Returns whether the kernel may be asked to forget the node: no open file and no request uses it. A directory's
    /// last lookup must be old enough that whoever enters it now looks it up again; one that is held exclusively is
    /// entered without.
    fn may_be_forgotten(&self) -> bool {
        let node = &self.known.node;
        let is_asked_for = || !node.is_exclusive() && self.looked_up.elapsed() >= limits::NAME_TRUSTED;
        let is_settled = !node.is_directory() || is_asked_for();
        !self.fresh && Arc::strong_count(&self.known) == 1 && is_settled
    }
}

/// Number that the kernel has forgotten.
pub struct ForgottenNode {
    /// The number.
    pub id: NodeId,
    /// Directory and name of the last lookup.
    pub place: Option<(NodeId, OsString)>,
}

/// Name that the kernel may be asked to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// Node of that name.
    pub id: NodeId,
    /// Directory of the name.
    pub parent: NodeId,
    /// The name itself.
    pub name: OsString,
}

#[derive(Default)]
struct Tables {
    slots: HashMap<NodeId, Slot>,
    /// Numbers of the files' newest nodes, by the keys that the slots have.
    newest: HashTable<NodeId>,
    hasher: RandomState,
    /// Number of slots whose node holds a descriptor.
    descriptors: usize,
    /// Number of retired node numbers of each file.
    retired: HashMap<Identity, u32>,
    /// Node at which the last search for nodes to forget ended.
    hand: NodeId,
}

impl Tables {
    fn insert(&mut self, id: NodeId, slot: Slot) {
        self.descriptors += usize::from(slot.known.node.holds_descriptor());
        self.slots.insert(id, slot);
    }

    /// Returns the newest number of a file.
    fn newest(&self, key: &Identity) -> Option<NodeId> {
        let is_its = |id: &NodeId| self.slots.get(id).is_some_and(|slot| slot.known.node.key() == key);
        self.newest.find(self.hasher.hash_one(key), is_its).copied()
    }

    /// Makes a number that has a slot the newest of its file.
    fn set_newest(&mut self, id: NodeId) {
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |id: &NodeId| slots.get(id).map_or(0, |slot| hasher.hash_one(slot.known.node.key()));
        let Some(key) = slots.get(&id).map(|slot| slot.known.node.key()) else { return };
        let is_its = |other: &NodeId| slots.get(other).is_some_and(|slot| slot.known.node.key() == key);
        match self.newest.entry(hash_of(&id), is_its, hash_of) {
            Entry::Occupied(mut newest) => *newest.get_mut() = id,
            Entry::Vacant(newest) => _ = newest.insert(id),
        }
    }

    /// Takes a number away that has a slot, if it is the newest of its file. Returns whether it was.
    fn remove_newest(&mut self, id: NodeId) -> bool {
        let Some(key) = self.slots.get(&id).map(|slot| slot.known.node.key()) else { return false };
        match self.newest.find_entry(self.hasher.hash_one(key), |other| *other == id) {
            Ok(newest) => {
                newest.remove();
                true
            }
            Err(_) => false,
        }
    }

    fn less_retired(&mut self, identity: &Identity) {
        if let Some(count) = self.retired.get_mut(identity) {
            *count -= 1;
            if *count == 0 {
                self.retired.remove(identity);
            }
        }
    }
}

/// Table of all nodes.
pub struct Nodes {
    tables: Mutex<Tables>,
    /// Last number given, by this table or by others that share the counter.
    last: Arc<AtomicU64>,
}

impl Nodes {
    /// Creates a table that knows only the root.
    pub fn new(root: Arc<Node>) -> Nodes {
        Nodes::of(root, Arc::new(AtomicU64::new(ROOT)))
    }

    /// Creates a table whose numbers are above `last`, a counter that others may share.
    pub fn of(root: Arc<Node>, last: Arc<AtomicU64>) -> Nodes {
        let nodes = Nodes { tables: Mutex::default(), last };
        {
            let mut tables = nodes.tables.lock();
            let known = Known::new(ROOT, root);
            tables.insert(ROOT, Slot::new(known, 1, None));
            tables.set_newest(ROOT);
        }
        nodes
    }

    /// Returns the file of a number, if known.
    pub fn get(&self, id: NodeId) -> Option<Arc<Known>> {
        self.tables.lock().slots.get(&id).map(|slot| slot.known.clone())
    }

    /// Counts one lookup of a file that was found at `place`. Gives the file a number if it has none.
    pub fn looked_up(&self, node: Arc<Node>, place: Option<(NodeId, &OsStr)>) -> Arc<Known> {
        let place = place.map(|(parent, name)| (parent, name.to_os_string()));
        let mut tables = self.tables.lock();
        if let Some(id) = tables.newest(node.key())
            && let Some(slot) = tables.slots.get_mut(&id)
        {
            slot.lookups += 1;
            slot.fresh = true;
            slot.looked_up = Instant::now();
            slot.place = place.or(slot.place.take());
            return slot.known.clone();
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let known = Known::new(id, node);
        tables.insert(id, Slot::new(known.clone(), 1, place));
        tables.set_newest(id);
        known
    }

    /// Returns whether a number may have been given, by this process or an earlier one.
    pub fn may_have_given(&self, number: u64) -> bool {
        number <= self.last.load(Ordering::Relaxed)
    }

    /// Restores a number that an earlier process gave to a file, with its lookup count. Of several numbers of one
    /// file the highest is the newest.
    pub fn reclaim(&self, id: NodeId, node: Arc<Node>, lookups: u64) -> Arc<Known> {
        let mut tables = self.tables.lock();
        if let Some(slot) = tables.slots.get(&id) {
            return slot.known.clone();
        }
        let (known, identity) = (Known::new(id, node.clone()), node.key().clone());
        let newest = tables.newest(&identity);
        tables.insert(id, Slot::new(known.clone(), lookups, None));
        let older = match newest {
            Some(other) if other > id => Some(known.clone()),
            other => {
                tables.set_newest(id);
                other.and_then(|other| tables.slots.get(&other)).map(|slot| slot.known.clone())
            }
        };
        if let Some(older) = older {
            older.retired.store(true, Ordering::Relaxed);
            *tables.retired.entry(identity).or_default() += 1;
        }
        known
    }

    /// Takes back `count` lookups. The number is removed with the last, and the place of its last lookup returned.
    pub fn forget(&self, id: NodeId, count: u64) -> Option<ForgottenNode> {
        let mut tables = self.tables.lock();
        let slot = tables.slots.get_mut(&id)?;
        slot.lookups = slot.lookups.saturating_sub(count);
        if slot.lookups > 0 || id == ROOT {
            return None;
        }
        let was_newest = tables.remove_newest(id);
        let gone = tables.slots.remove(&id)?;
        let node = &gone.known.node;
        tables.descriptors -= usize::from(node.holds_descriptor());
        if !was_newest && gone.known.is_retired() {
            tables.less_retired(node.key());
        }
        drop(tables);
        // The node's descriptor is closed outside the lock.
        Some(ForgottenNode { id, place: gone.place })
    }

    /// Returns the numbers of nodes that were held exclusively and are so no more, and whether each is a directory.
    pub fn lost_exclusivity(&self) -> Vec<(NodeId, bool)> {
        let tables = self.tables.lock();
        let lost = tables.slots.iter().filter(|(_, slot)| slot.known.node.lost_exclusivity());
        lost.map(|(id, slot)| (*id, slot.known.node.is_directory())).collect()
    }

    /// Retires a number: the next lookup of the file gives a new one.
    pub fn retire(&self, known: &Known) {
        let mut tables = self.tables.lock();
        known.retired.store(true, Ordering::Relaxed);
        if tables.remove_newest(known.id) {
            *tables.retired.entry(known.node.key().clone()).or_default() += 1;
        }
    }

    /// Returns the node that the next lookup of a file gives, if there is one.
    pub fn newest(&self, identity: &Identity) -> Option<Arc<Known>> {
        let tables = self.tables.lock();
        let id = tables.newest(identity)?;
        tables.slots.get(&id).map(|slot| slot.known.clone())
    }

    /// Returns whether the kernel knows the file by several numbers. A change through one of them is then not seen
    /// through the others.
    pub fn is_split(&self, known: &Known) -> bool {
        known.is_retired() || self.tables.lock().retired.contains_key(known.node.key())
    }

    /// Returns the number of nodes that hold a descriptor and that only the kernel uses: no request and no open file.
    pub fn idle(&self) -> usize {
        let tables = self.tables.lock();
        let is_idle = |slot: &&Slot| Arc::strong_count(&slot.known) == 1 && slot.known.node.holds_descriptor();
        tables.slots.values().filter(is_idle).count()
    }

    /// Returns the number of known nodes that hold a descriptor.
    pub fn holding(&self) -> usize {
        self.tables.lock().descriptors
    }

    /// Returns up to `most` names of nodes that were not looked up lately and that nobody has open. Searches round
    /// robin and gives other nodes a second chance.
    pub fn stale(&self, most: usize) -> Vec<Stale> {
        let mut tables = self.tables.lock();
        let mut ids: Vec<NodeId> = tables.slots.keys().copied().filter(|&id| id != ROOT).collect();
        ids.sort_unstable();
        let hand = tables.hand;
        let start = ids.partition_point(|&id| id <= hand);
        let mut stale = Vec::new();
        for round in [&ids[start..], &ids[..start]] {
            for id in round {
                if stale.len() == most {
                    return stale;
                }
                tables.hand = *id;
                let Some(slot) = tables.slots.get_mut(id) else { continue };
                if slot.may_be_forgotten() && slot.known.node.holds_descriptor() {
                    stale.extend(slot.place.clone().map(|(parent, name)| Stale { id: *id, parent, name }));
                }
                slot.fresh = false;
            }
        }
        stale
    }

    /// Returns whether the kernel may still be asked to forget a node.
    pub fn is_stale(&self, id: NodeId) -> bool {
        self.tables.lock().slots.get(&id).is_some_and(Slot::may_be_forgotten)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use agent::{Agent, PolicyTable};
    use config::Policy;
    use file_cache::{FileCache, Settings};
    use global_store::posix::{PosixStore, StoreOptions};
    use models::DataStoreExt;
    use posix_namespace::PosixNamespace;

    use super::*;

    fn with_agent(test: impl FnOnce(&Agent)) {
        let tree = testkit::TempTree::new();
        tree.file("data/file", "content");
        tree.dir("data/directory");
        let root = std::fs::File::open(tree.path("data")).unwrap().into();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let settings = Settings::new(tree.path("burst-buffer"), Arc::new(store.clone()), "test");
        let cache = FileCache::open(settings).unwrap();
        let policies = PolicyTable::new(Policy::default());
        test(&Agent::new(Arc::new(cache.clone()), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap());
        cache.shutdown();
    }

    #[test]
    fn a_number_lives_as_long_as_its_lookups_and_is_never_used_again() {
        with_agent(|agent| {
            let nodes = Nodes::new(agent.root().clone());
            let look = || {
                let found = agent.lookup(agent.root(), OsStr::new("file")).unwrap();
                nodes.looked_up(found.node, Some((ROOT, OsStr::new("file")))).id
            };
            let first = look();
            assert_eq!(look(), first);
            nodes.forget(first, 1);
            assert!(nodes.get(first).is_some());
            nodes.forget(first, 1);
            assert!(nodes.get(first).is_none());
            assert_ne!(look(), first);
            nodes.forget(ROOT, 100);
            assert!(nodes.get(ROOT).is_some());
        });
    }

    #[test]
    fn a_retired_number_stays_until_forgotten_beside_its_successor() {
        with_agent(|agent| {
            let nodes = Nodes::new(agent.root().clone());
            let look = || nodes.looked_up(agent.lookup(agent.root(), OsStr::new("file")).unwrap().node, None);
            let old = look();
            nodes.retire(&old);
            let new = look();
            assert_ne!(old.id, new.id);
            assert!(nodes.is_split(&old) && nodes.is_split(&new));
            nodes.forget(old.id, 1);
            assert_eq!((look().id, nodes.get(old.id).is_none()), (new.id, true));
            assert!(!nodes.is_split(&new));
        });
    }

    #[test] // S33
    fn names_of_nodes_in_use_get_a_second_chance_and_open_ones_as_many_as_they_need() {
        with_agent(|agent| {
            let nodes = Nodes::new(agent.root().clone());
            let look = |name: &str| {
                let found = agent.lookup(agent.root(), OsStr::new(name)).unwrap();
                nodes.looked_up(found.node, Some((ROOT, OsStr::new(name))))
            };
            let names = || nodes.stale(10).into_iter().map(|stale| stale.name).collect::<Vec<_>>();
            let open = look("file");
            assert_eq!((names(), names()), (vec![], vec![]), "it is open");
            let id = open.id;
            drop(open);
            assert_eq!((names(), nodes.is_stale(id)), (vec!["file".into()], true));
            drop(look("file"));
            assert_eq!((nodes.is_stale(id), names(), names()), (false, vec![], vec!["file".into()]));
            nodes.forget(id, 2);
            let directory = look("directory").id;
            assert_eq!((names(), names()), (vec![], vec![]), "the kernel may still trust its name");
            let long_ago = Instant::now().checked_sub(limits::NAME_TRUSTED).unwrap();
            nodes.tables.lock().slots.get_mut(&directory).unwrap().looked_up = long_ago;
            assert_eq!(names(), [OsString::from("directory")]);
        });
    }
}
