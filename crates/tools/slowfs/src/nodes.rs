//! The files that the kernel has looked up.
//!
//! N1. A node holds a descriptor of its file, so its inode number is used by no other file while it is in the table.
//! N2. A file has at most one node; node ids are a counter and are never reused.
//! N3. A node stays until the kernel has forgotten every lookup; the root stays for ever.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuse_protocol::{Errno, NodeId};
use parking_lot::Mutex;

pub const ROOT: NodeId = 1;

/// Device and inode number.
pub type Key = (u64, u64);

/// A file, held by an `O_PATH` descriptor.
pub struct Node {
    pub fd: OwnedFd,
    key: Key,
}

struct Known {
    node: Arc<Node>,
    lookups: u64,
}

struct Table {
    by_id: HashMap<NodeId, Known>,
    by_key: HashMap<Key, NodeId>,
    next: NodeId,
}

pub struct Nodes(Mutex<Table>);

impl Nodes {
    pub fn new(root: OwnedFd, key: Key) -> Nodes {
        let known = Known { node: Arc::new(Node { fd: root, key }), lookups: 1 };
        let by_id = HashMap::from([(ROOT, known)]);
        Nodes(Mutex::new(Table { by_id, by_key: HashMap::from([(key, ROOT)]), next: ROOT + 1 }))
    }

    /// Returns the node of an id. Errors: `ESTALE` if the kernel has forgotten it.
    pub fn get(&self, id: NodeId) -> Result<Arc<Node>, Errno> {
        self.0.lock().by_id.get(&id).map(|known| Arc::clone(&known.node)).ok_or(Errno::ESTALE)
    }

    pub fn found(&self, fd: OwnedFd, key: Key) -> NodeId {
        let mut table = self.0.lock();
        if let Some(&id) = table.by_key.get(&key)
            && let Some(known) = table.by_id.get_mut(&id)
        {
            known.lookups += 1;
            return id;
        }
        let id = table.next;
        table.next += 1;
        table.by_key.insert(key, id);
        table.by_id.insert(id, Known { node: Arc::new(Node { fd, key }), lookups: 1 });
        id
    }

    /// Removes `count` lookups that the kernel has forgotten, and the node with the last one.
    pub fn forget(&self, id: NodeId, count: u64) {
        if id == ROOT {
            return;
        }
        let mut table = self.0.lock();
        let Some(known) = table.by_id.get_mut(&id) else { return };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 {
            return;
        }
        let gone = table.by_id.remove(&id);
        if let Some(known) = &gone {
            table.by_key.remove(&known.node.key);
        }
        drop(table);
        // The descriptor is closed here, not under the lock.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> OwnedFd {
        std::fs::File::open("/").unwrap().into()
    }

    #[test]
    fn a_file_has_one_node_until_every_lookup_is_given_back_and_then_a_new_id() {
        let nodes = Nodes::new(fd(), (1, 1));
        let id = nodes.found(fd(), (1, 5));
        assert_eq!(nodes.found(fd(), (1, 5)), id);
        nodes.forget(id, 1);
        assert!(nodes.get(id).is_ok());
        nodes.forget(id, 1);
        assert_eq!(nodes.get(id).err(), Some(Errno::ESTALE));
        assert_ne!(nodes.found(fd(), (1, 5)), id);
    }

    #[test]
    fn the_root_stays() {
        let nodes = Nodes::new(fd(), (1, 1));
        nodes.forget(ROOT, 100);
        assert_eq!(nodes.found(fd(), (1, 1)), ROOT);
    }
}
