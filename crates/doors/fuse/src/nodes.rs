//! Table of the kernel's node numbers: the file of each.
//!
//! Invariant 1: a number is never used twice. Invariant 2: a file's key leads to at most one number, the newest.
//! Older numbers of the file are *retired*: files opened through them stay usable, and new lookups get a new number.
//! Invariant 3: a number is known while the kernel's lookup count is above zero; the root is always known.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent::{FileAttributes, Node};
use concurrency::Mutex;
use fuse_protocol::NodeId;
use types::Identity;

use crate::opens::OpenState;
use crate::slots::{Slot, SlotFile, Tables};

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

/// Directory and name of a lookup.
pub type Place = (NodeId, OsString);

impl Known {
    pub(crate) fn new(id: NodeId, node: Arc<Node>, open: OpenState) -> Arc<Known> {
        let (open, retired) = (Mutex::new(open), AtomicBool::new(false));
        Arc::new(Known { id, node, open, retired, told: Mutex::default() })
    }

    /// Returns whether a newer number stands, or will stand, for this file.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Whether nothing is remembered of the node beside the state of its opens.
    pub(crate) fn has_nothing_but_opens(&self) -> bool {
        !self.is_retired() && self.told.lock().is_none()
    }
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
        let nodes = Nodes { tables: Mutex::new(Tables::new()), last };
        {
            let mut tables = nodes.tables.lock();
            tables.insert(Known::new(ROOT, root, OpenState::default()), 1, None);
            tables.set_newest(ROOT);
        }
        nodes
    }

    /// Returns the file of a number, if known.
    pub fn get(&self, id: NodeId) -> Option<Arc<Known>> {
        self.tables.lock().known(id)
    }

    /// Counts one lookup of a file that was found at `place`. Gives the file a number if it has none.
    pub fn looked_up(&self, node: Arc<Node>, place: Option<(NodeId, &OsStr)>) -> Arc<Known> {
        // Whoever holds no descriptor is never asked to be forgotten.
        let place = place.filter(|_| node.holds_descriptor()).map(|(parent, name)| (parent, name.to_os_string()));
        let mut tables = self.tables.lock();
        let tick = tables.tick();
        if let Some(id) = tables.newest(node.key())
            && let Some(known) = tables.known(id)
            && let Some(slot) = tables.slot_mut(id)
        {
            slot.lookups += 1;
            (slot.fresh, slot.looked_up) = (true, tick);
            if let (SlotFile::InUse { place: last, .. }, Some(place)) = (&mut slot.file, place) {
                *last = Some(Box::new(place));
            }
            return known;
        }
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let known = Known::new(id, node, OpenState::default());
        tables.insert(Arc::clone(&known), 1, place);
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
        if let Some(known) = tables.known(id) {
            return known;
        }
        let (known, identity) = (Known::new(id, node.clone(), OpenState::default()), node.key().clone());
        let newest = tables.newest(&identity);
        tables.insert(Arc::clone(&known), lookups, None);
        let older = match newest {
            Some(other) if other > id => Some(Arc::clone(&known)),
            other => {
                tables.set_newest(id);
                other.and_then(|other| tables.known(other))
            }
        };
        if let Some(older) = older {
            older.retired.store(true, Ordering::Relaxed);
            *tables.retired.entry(identity).or_default() += 1;
        }
        known
    }

    /// Takes back `count` lookups. The number is removed with the last. Returns whether it was.
    pub fn forget(&self, id: NodeId, count: u64) -> bool {
        let mut tables = self.tables.lock();
        let Some(slot) = tables.slot_mut(id) else { return false };
        slot.lookups = slot.lookups.saturating_sub(count);
        if slot.lookups > 0 || id == ROOT {
            return false;
        }
        let was_newest = tables.remove_newest(id);
        let gone = tables.remove(id);
        // Those that are retired never rest.
        let retired = gone.as_ref().and_then(|slot| slot.in_use()).filter(|known| known.is_retired());
        if let Some(known) = retired.filter(|_| !was_newest) {
            tables.less_retired(known.node.key());
        }
        drop(tables);
        // The node's descriptor is closed outside the lock.
        drop(gone);
        true
    }

    /// Returns the numbers of nodes that were held exclusively and are so no more, and whether each is a directory.
    pub fn lost_exclusivity(&self) -> Vec<(NodeId, bool)> {
        let tables = self.tables.lock();
        tables.all().filter_map(|slot| Some((slot.id, slot.lost_exclusivity()?))).collect()
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
        let mut tables = self.tables.lock();
        let id = tables.newest(identity)?;
        tables.known(id)
    }

    /// Returns whether the kernel knows the file by several numbers. A change through one of them is then not seen
    /// through the others.
    pub fn is_split(&self, known: &Known) -> bool {
        known.is_retired() || self.tables.lock().retired.contains_key(known.node.key())
    }

    /// Returns the number of nodes that hold a descriptor and that only the kernel uses: no request and no open file.
    pub fn idle(&self) -> usize {
        let tables = self.tables.lock();
        tables.all().filter_map(Slot::holding).filter(|known| Arc::strong_count(known) == 1).count()
    }

    /// Returns the number of known nodes that hold a descriptor.
    pub fn holding(&self) -> usize {
        self.tables.lock().descriptors
    }

    /// Returns up to `most` names of nodes that were not looked up lately and that nobody has open. Searches round
    /// robin and gives other nodes a second chance.
    pub fn stale(&self, most: usize) -> Vec<Stale> {
        let mut tables = self.tables.lock();
        let holding = tables.all().filter(|slot| slot.id != ROOT && slot.holding().is_some());
        let mut ids: Vec<NodeId> = holding.map(|slot| slot.id).collect();
        ids.sort_unstable();
        let (hand, tick) = (tables.hand, tables.tick());
        let start = ids.partition_point(|&id| id <= hand);
        let mut stale = Vec::new();
        for round in [&ids[start..], &ids[..start]] {
            for id in round {
                if stale.len() == most {
                    return stale;
                }
                tables.hand = *id;
                let Some(slot) = tables.slot_mut(*id) else { continue };
                if slot.may_be_forgotten(tick) {
                    stale.extend(slot.place().map(|(parent, name)| Stale {
                        id: *id,
                        parent: *parent,
                        name: name.clone(),
                    }));
                }
                slot.fresh = false;
            }
        }
        stale
    }

    /// Returns whether the kernel may still be asked to forget a node.
    pub fn is_stale(&self, id: NodeId) -> bool {
        let tables = self.tables.lock();
        tables.slot(id).is_some_and(|slot| slot.may_be_forgotten(tables.tick()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use agent::{Agent, PolicyTable};
    use config::Policy;
    use file_cache::{FileCache, Settings};
    use fuse_protocol::{Filesystem, Request};
    use global_store::posix::{PosixStore, StoreOptions};
    use models::{DataStoreExt, MemoryDataStore, MemoryNamespace};
    use namespace::Exclusivity;
    use posix_namespace::PosixNamespace;

    use super::*;
    use crate::door::Door;
    use crate::limits;
    use crate::slots::TRUSTED_TICKS;

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
            let mut tables = nodes.tables.lock();
            tables.slot_mut(directory).unwrap().looked_up = tables.tick().wrapping_sub(TRUSTED_TICKS);
            drop(tables);
            assert_eq!(names(), [OsString::from("directory")]);
        });
    }

    #[test]
    fn a_node_that_nobody_uses_rests_and_is_the_same_file_when_it_is_used_again() {
        let exclusivity = Arc::new(Exclusivity::default());
        let names = Arc::new(MemoryNamespace::exclusive(0, 0, Arc::clone(&exclusivity)));
        let agent = Agent::new(Arc::new(MemoryDataStore::default()), names, PolicyTable::new(Policy::default()));
        let door = Door::new(Arc::new(agent.unwrap()), false);
        let (nodes, req) = (&door.nodes, Request::detached(0, 0, 1));
        let create = |name: &str| {
            let created = door.create(&req, ROOT, OsStr::new(name), 0o644, 0, libc::O_RDWR | libc::O_EXCL);
            let (entry, opened) = created.unwrap();
            (entry.node, opened.handle)
        };
        let (open, handle) = create("open");
        let (closed, closed_handle) = create("closed");
        door.release(&req, closed, closed_handle, 0, None);
        let in_use = || nodes.tables.lock().all().filter_map(Slot::in_use).map(|known| known.id).collect::<Vec<_>>();
        let key = nodes.get(closed).unwrap().node.key().clone();
        let count = limits::AWAKE_NODES + 100;
        for number in 0..count {
            let (node, handle) = create(&number.to_string());
            door.release(&req, node, handle, 0, None);
        }
        assert!(in_use().len() <= limits::AWAKE_NODES + 4 && in_use().contains(&open) && !in_use().contains(&closed));
        let again = nodes.get(closed).unwrap();
        assert_eq!((again.node.key(), nodes.newest(&key).map(|known| known.id)), (&key, Some(closed)));
        // It was opened without passthrough, which the next open must know.
        assert!(!again.open.lock().is_new() && again.open.lock().is_closed());
        drop(again);
        for number in 0..count {
            assert!(door.lookup(&req, ROOT, OsStr::new(&number.to_string())).unwrap().node > closed);
        }
        assert_eq!(door.lookup(&req, ROOT, OsStr::new("closed")).unwrap().node, closed);
        exclusivity.end();
        assert_eq!(nodes.lost_exclusivity().len(), count + 3, "the root as well");
        door.forget(closed, 1);
        assert!(nodes.get(closed).is_some());
        door.forget(closed, 1);
        assert!(nodes.get(closed).is_none() && nodes.newest(&key).is_none());
        door.release(&req, open, handle, 0, None);
    }
}
