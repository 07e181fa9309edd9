//! When programs of several nodes see each other's changes of a file that stays open.
//!
//! `fsync` and locks are such points, as in the kernel's NFS client: what mappings have changed is written before a lock is
//! released, and what this node keeps of the file is dropped once a lock is taken or the file is synced.

use std::sync::Arc;

use agent::Agent;
use fuse_protocol::Notifier;

use crate::nodes::Known;

/// A file of which this node keeps pages and bytes that were read ahead, and which other nodes may change.
pub struct SharedFile {
    pub agent: Arc<Agent>,
    pub notifier: Option<Notifier>,
    pub known: Arc<Known>,
}

impl SharedFile {
    /// Writes the pages that mappings have changed, and drops them and what was read ahead. The calling thread must not serve a read or
    /// write of the file's pages.
    pub fn refresh(&self) {
        if let Some(notifier) = &self.notifier {
            // All bytes. A node that the kernel does not know has none.
            let _ = notifier.inval_inode(self.known.id, 0, 0);
        }
        self.agent.cache().forget_read_ahead(self.known.node.identity());
    }
}
