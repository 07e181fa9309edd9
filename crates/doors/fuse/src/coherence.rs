//! Points at which programs of several nodes see each other's changes of a file that stays open.
//!
//! `fsync` and locks are such points, as in the kernel's NFS client. Before a lock is released, pages changed through
//! mappings are written. Once a lock is taken or the file is synced, this node drops its cached pages and read-ahead
//! of the file.

use std::collections::HashSet;
use std::sync::Arc;

use agent::Agent;
use concurrency::Mutex;
use data_store::FileChange;
use fuse_protocol::{Notifier, Pages};

use crate::nodes::Known;

/// File of which this node has cached pages and read-ahead, and which other nodes may change.
pub struct SharedFile {
    pub agent: Arc<Agent>,
    pub notifier: Option<Notifier>,
    pub known: Arc<Known>,
    pub pages: Arc<Pages>,
}

/// Requests whose handlers may wait until the kernel has written or read pages of a file. Those writes and reads are
/// requests as well. So another thread has to stand in for such a handler:
/// [`DelayAction::Stuck`](fuse_protocol::DelayAction::Stuck).
#[derive(Default)]
pub struct Refreshing(Mutex<HashSet<u64>>);

/// Mark of one such request. Removed when dropped.
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
    /// Writes the pages that mappings have changed, then drops all cached pages and the read-ahead. The calling
    /// thread must not be one that serves reads or writes of the file's pages.
    pub fn refresh(&self) {
        self.pages.shared(self.known.id);
        if let Some(notifier) = &self.notifier {
            // Drops all bytes. Fails if the kernel does not know the node, which then has no pages.
            let _ = notifier.inval_inode(self.known.id, 0, 0);
        }
        self.agent.data().note(self.known.node.identity(), FileChange::Elsewhere);
    }
}
