//! When programs of several nodes see each other's changes of a file that stays open.
//!
//! `fsync` and locks are such points, as in the kernel's NFS client: what mappings have changed is written before a lock is
//! released, and what this node keeps of the file is dropped once a lock is taken or the file is synced.

use std::collections::HashSet;
use std::sync::Arc;

use agent::Agent;
use concurrency::Mutex;
use fuse_protocol::Notifier;

use crate::nodes::Known;
use crate::pages::Pages;

/// A file of which this node keeps pages and bytes that were read ahead, and which other nodes may change.
pub struct SharedFile {
    pub agent: Arc<Agent>,
    pub notifier: Option<Notifier>,
    pub known: Arc<Known>,
    pub pages: Arc<Pages>,
}

/// Requests whose handlers may wait until the kernel has written or read pages of a file. Those writes and reads are requests as well, so
/// another thread has to stand in for such a handler: [`Patience::Stuck`](fuse_protocol::DelayAction::Stuck).
#[derive(Default)]
pub struct Refreshing(Mutex<HashSet<u64>>);

/// One of them, until it is dropped.
pub struct Refresh<'a> {
    all: &'a Refreshing,
    unique: u64,
}

impl Refreshing {
    pub fn begin(&self, unique: u64) -> Refresh<'_> {
        self.0.lock().insert(unique);
        Refresh { all: self, unique }
    }

    pub fn has(&self, unique: u64) -> bool {
        self.0.lock().contains(&unique)
    }
}

impl Drop for Refresh<'_> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.unique);
    }
}

impl SharedFile {
    /// Writes the pages that mappings have changed, and drops them and what was read ahead. The calling thread must not serve a read or
    /// write of the file's pages.
    pub fn refresh(&self) {
        self.pages.shared(self.known.id);
        if let Some(notifier) = &self.notifier {
            // All bytes. A node that the kernel does not know has none.
            let _ = notifier.inval_inode(self.known.id, 0, 0);
        }
        self.agent.cache().forget_read_ahead(self.known.node.identity());
    }
}
