//! Request for an apply, and its report.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use global_store::StoreFile;
use namespace::{Inode, Namespace};

use crate::state::{DataPlace, NodeNumber};

/// Source of the bytes of regular files.
pub trait Contents: Send + Sync {
    /// Writes the bytes of a file, from its beginning.
    fn write(&self, node: NodeNumber, data: DataPlace, into: &dyn StoreFile) -> io::Result<()>;
}

/// Place of a delegated tree in the global store.
pub struct StoreTree {
    /// Names and attributes of the global store.
    pub namespace: Arc<dyn Namespace>,
    /// The directory that is the tree's root.
    pub root: Arc<Inode>,
    /// Unique name of this agent, from which hidden names are made.
    pub agent: String,
}

/// Wishes for one apply.
#[derive(Clone, Copy)]
pub struct ApplyRequest<'a> {
    /// Where the tree is in the global store.
    pub store: &'a Arc<StoreTree>,
    /// Source of the files' bytes.
    pub contents: &'a Arc<dyn Contents>,
    /// Number of nodes that are worked on at once, 1 or more.
    pub width: usize,
    /// Whether names appear, change and go in the order in which their nodes became pending, for those who wait for a file that
    /// tells that all others are there. Files are made under hidden names by many threads. A directory may appear earlier, but not
    /// later than what is in it; directories are removed last. After a node that is stuck no name is changed any more.
    pub strict: bool,
    /// Whether a node may take its names from files that others have made there. Such a file is lost. A directory of others is
    /// removed only if it is empty, and a directory of the tree goes on in it: names of both stay.
    pub replaces: &'a dyn Fn(NodeNumber) -> bool,
    /// Called by the applying thread after each node.
    pub progress: &'a dyn Fn(ApplyProgress),
    /// Asked by the applying thread before each step. Once it has returned true, nothing more is begun.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl<'a> ApplyRequest<'a> {
    /// Creates a request that works on one file at a time, tells nobody, and goes on to the end.
    pub fn new(store: &'a Arc<StoreTree>, contents: &'a Arc<dyn Contents>) -> ApplyRequest<'a> {
        let (progress, interrupted, replaces) = (&|_| {}, &|| false, &|_| false);
        ApplyRequest { store, contents, width: 1, strict: false, replaces, progress, interrupted }
    }
}

/// Progress of an apply. Nodes that become pending meanwhile are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApplyProgress {
    /// Nodes with which the apply is done, stuck ones and those that wait for a sync included.
    pub nodes_done: usize,
    /// Nodes that are still to be brought to the store.
    pub nodes_left: usize,
    /// Bytes of the content of files that are still to be brought to the store, at most.
    pub bytes_left: u64,
}

/// A node that could not be brought to the global store. The node stays pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckNode {
    /// The node.
    pub number: NodeNumber,
    /// Path in the tree, or the last one that was known.
    pub path: PathBuf,
    /// Error of the step that failed.
    pub errno: i32,
    /// Explanation of the step.
    pub reason: String,
}

/// Outcome of one apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyReport {
    /// Nodes of which the store now has all.
    pub applied: usize,
    /// Nodes that were removed from the store.
    pub removed: usize,
    /// Nodes that were changed meanwhile, and are pending again.
    pub changed: usize,
    /// Nodes that stay pending because of an error.
    pub stuck: Vec<StuckNode>,
    /// Whether all that is reported as applied or removed survives a crash of the store's client, and of the store as far as its
    /// syncs hold. If not, a sync of the store or of the log has failed; nothing of what it was for is reported as applied.
    pub synced: bool,
    /// Whether the caller has ended the apply, so that nodes stay pending that were not begun.
    pub interrupted: bool,
}

impl Default for ApplyReport {
    fn default() -> ApplyReport {
        ApplyReport { applied: 0, removed: 0, changed: 0, stuck: Vec::new(), synced: true, interrupted: false }
    }
}
