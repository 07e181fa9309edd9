//! Names of directories, with the node of each.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;

use fuse_protocol::NodeId;
use hashbrown::HashTable;
use types::ShortBytes;

use crate::limits;
use crate::slab::{Slab, hash_of};

/// Node that stands for an absent name.
pub const ABSENT: NodeId = 0;

/// One name. A million of these stay small.
struct Noted {
    directory: NodeId,
    node: NodeId,
    name: ShortBytes<22>,
}

/// Names that were noted.
#[derive(Default)]
pub struct NotedNames {
    names: Slab<Noted>,
    /// The names of each directory.
    of: HashMap<NodeId, HashTable<u32>>,
    /// The names of each node, absent ones apart.
    of_node: HashTable<u32>,
    hasher: RandomState,
    /// Number of absent names.
    absent: usize,
}

impl NotedNames {
    /// Number of absent names among them.
    pub fn absent(&self) -> usize {
        self.absent
    }

    fn find(&self, directory: NodeId, name: &OsStr) -> Option<u32> {
        let is_its = |at: &u32| self.names.get(*at).is_some_and(|noted| noted.name.as_bytes() == name.as_bytes());
        self.of.get(&directory)?.find(self.hasher.hash_one(name.as_bytes()), is_its).copied()
    }

    /// Returns the node of a name; [`ABSENT`] for an absent one.
    pub fn get(&self, directory: NodeId, name: &OsStr) -> Option<NodeId> {
        Some(self.names.get(self.find(directory, name)?)?.node)
    }

    /// Notes a name.
    pub fn set(&mut self, directory: NodeId, name: &OsStr, node: NodeId) {
        match self.find(directory, name) {
            Some(at) => {
                self.leave_node(at);
                self.names.get_mut(at).into_iter().for_each(|noted| noted.node = node);
                self.enter_node(at, node);
            }
            None => {
                let at = self.names.insert(Noted { directory, node, name: ShortBytes::new(name.as_bytes()) });
                self.enter_node(at, node);
                let (names, hasher) = (&self.names, &self.hasher);
                let hash = |at: &u32| names.get(*at).map_or(0, |noted| hasher.hash_one(noted.name.as_bytes()));
                self.of.entry(directory).or_default().insert_unique(hash(&at), at, hash);
            }
        }
    }

    fn enter_node(&mut self, at: u32, node: NodeId) {
        if node == ABSENT {
            self.absent += 1;
            return;
        }
        let names = &self.names;
        let hash = |at: &u32| names.get(*at).map_or(0, |noted| hash_of(noted.node));
        self.of_node.insert_unique(hash_of(node), at, hash);
    }

    fn leave_node(&mut self, at: u32) {
        let Some(node) = self.names.get(at).map(|noted| noted.node) else { return };
        if node == ABSENT {
            self.absent -= 1;
        } else if let Ok(of_node) = self.of_node.find_entry(hash_of(node), |other| *other == at) {
            of_node.remove();
        }
    }

    /// Drops a name.
    pub fn remove(&mut self, directory: NodeId, name: &OsStr) {
        if let Some(at) = self.find(directory, name) {
            self.remove_at(at);
        }
    }

    fn remove_at(&mut self, at: u32) {
        self.leave_node(at);
        let Some(Noted { directory, name, .. }) = self.names.remove(at) else { return };
        let Some(names) = self.of.get_mut(&directory) else { return };
        if let Ok(found) = names.find_entry(self.hasher.hash_one(name.as_bytes()), |other| *other == at) {
            found.remove();
        }
        if names.is_empty() {
            self.of.remove(&directory);
        }
    }

    /// Drops the names of a node, and those in it.
    pub fn forget(&mut self, node: NodeId) {
        let names_it = |names: &Slab<Noted>, at: &u32| names.get(*at).is_some_and(|noted| noted.node == node);
        while let Some(at) = self.of_node.find(hash_of(node), |at| names_it(&self.names, at)).copied() {
            self.remove_at(at);
        }
        for at in self.of.remove(&node).into_iter().flatten() {
            self.leave_node(at);
            self.names.remove(at);
        }
        if self.of.is_empty() && self.of_node.capacity() > limits::TABLE_KEPT {
            // What a million names had is given back.
            *self = NotedNames { hasher: std::mem::take(&mut self.hasher), ..NotedNames::default() };
        }
    }

    /// Returns the names in directories for which `is` holds.
    pub fn names_in(&self, is: impl Fn(NodeId) -> bool) -> Vec<(NodeId, OsString)> {
        let of = self.of.iter().filter(|(directory, _)| is(**directory)).flat_map(|(_, names)| names);
        let name_of = |noted: &Noted| (noted.directory, OsStr::from_bytes(noted.name.as_bytes()).to_os_string());
        of.filter_map(|at| self.names.get(*at)).map(name_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testkit::Random;

    use super::*;

    #[test]
    fn noted_names_agree_with_a_map_under_random_changes() {
        let (mut random, mut names) = (Random(5), NotedNames::default());
        let mut model: BTreeMap<(NodeId, OsString), NodeId> = BTreeMap::new();
        for _ in 0..20_000 {
            let (directory, node) = (1 + random.below(4), random.below(12));
            let name = OsString::from("long enough for memory of its own"[random.below(20) as usize..].to_owned());
            match random.below(8) {
                0 => {
                    names.forget(node);
                    model.retain(|(directory, _), of| *directory != node && (*of != node || node == ABSENT));
                }
                1..4 => {
                    names.remove(directory, &name);
                    model.remove(&(directory, name.clone()));
                }
                _ => {
                    names.set(directory, &name, node);
                    model.insert((directory, name.clone()), node);
                }
            }
            assert_eq!(names.get(directory, &name), model.get(&(directory, name)).copied());
            assert_eq!(names.absent(), model.values().filter(|node| **node == ABSENT).count());
            let mut all = names.names_in(|directory| directory != 2);
            all.sort();
            assert_eq!(all, model.keys().filter(|(of, _)| *of != 2).cloned().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_name_takes_at_most_40_bytes() {
        assert!(size_of::<Option<Noted>>() <= 40, "{}", size_of::<Option<Noted>>());
    }
}
