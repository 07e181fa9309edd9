//! Directories of the store that an apply has open.

use std::collections::HashMap;
use std::sync::Arc;

use namespace::Inode;

use super::Run;
use super::items::Item;
use crate::limits;
use crate::state::NodeNumber;

/// Open directories of the store, the top one always among them. Memory and descriptors are bounded: those used longest ago are closed.
pub(super) struct OpenDirectories {
    root: Arc<Inode>,
    /// With the time of the last use.
    others: HashMap<NodeNumber, (Arc<Inode>, u64)>,
    now: u64,
    most: usize,
}

impl OpenDirectories {
    pub fn new(root: Arc<Inode>) -> OpenDirectories {
        let most = limits::of_descriptors(limits::DIRECTORIES_OPEN);
        OpenDirectories { root, others: HashMap::new(), now: 0, most }
    }

    pub fn get(&mut self, number: NodeNumber) -> Option<Arc<Inode>> {
        if number == NodeNumber::ROOT {
            return Some(Arc::clone(&self.root));
        }
        let (inode, used) = self.others.get_mut(&number)?;
        self.now += 1;
        *used = self.now;
        Some(Arc::clone(inode))
    }

    /// Adds a directory. Returns those that are closed for it: half of them if there are too many.
    fn add(&mut self, number: NodeNumber, inode: Arc<Inode>) -> Vec<NodeNumber> {
        self.now += 1;
        self.others.insert(number, (inode, self.now));
        if self.others.len() <= self.most {
            return Vec::new();
        }
        let mut uses: Vec<u64> = self.others.values().map(|(_, used)| *used).collect();
        let (_, median, _) = uses.select_nth_unstable(self.most / 2);
        let median = *median;
        self.others.extract_if(|_, (_, used)| *used < median).map(|(number, _)| number).collect()
    }
}

impl Run<'_> {
    /// Keeps a directory of the store open. Others may be closed for it, and are looked for when they are needed again.
    pub(super) fn keep_open(&mut self, number: NodeNumber, inode: Arc<Inode>) {
        for closed in self.directories.add(number, inode) {
            self.items.get_mut(&closed).into_iter().for_each(Item::close);
        }
    }

    /// Closes a file of the store: as many may have been brought as the tree has.
    pub(super) fn close_file(&mut self, number: NodeNumber) {
        if !self.item(number).is_directory() {
            self.item_mut(number).close();
        }
    }
}
