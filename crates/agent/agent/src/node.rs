//! A file of the namespace that the agent serves.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use concurrency::{Instant, Mutex};
use global_store::Anchor;
use namespace::{AnchorFor, Inode, Namespace, RestingInode};
use rustix::fs::FileType;
use types::Identity;

use crate::limits;

/// A file, directory, symbolic link or special file. Created by lookups and creations; lives while it is referenced.
pub struct Node {
    inode: Inode,
    /// The data store's anchor of the file, made when first needed and shared while it is in use.
    anchor: Mutex<Option<Weak<dyn Anchor>>>,
    /// Time at which the file was found to have no capabilities, on the clock of [`seconds`]. 0: long ago, or since
    /// then capabilities were queried or an attribute was set.
    plain_s: AtomicU64,
    /// Whether capabilities were set through us.
    capable: AtomicBool,
}

/// A node that nobody uses, in few bytes, from which it can be made again.
pub struct RestingNode(RestingInode);

impl RestingNode {
    /// Makes the node again.
    pub fn node(&self) -> Arc<Node> {
        Arc::new(Node::new(self.0.inode()))
    }

    /// Whether a node has this key.
    pub fn has_key(&self, key: &Identity) -> bool {
        self.0.file().key() == *key
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.0.file().kind() == FileType::Directory
    }

    /// Whether others may change the file now, but not when it was found.
    pub fn lost_exclusivity(&self) -> bool {
        self.0.file().exclusivity().has_ended()
    }
}

impl Node {
    pub(crate) fn new(inode: Inode) -> Node {
        let (plain_s, capable) = (AtomicU64::new(0), AtomicBool::new(false));
        Node { inode, anchor: Mutex::new(None), plain_s, capable }
    }

    /// The file in the namespace.
    pub(crate) fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Returns the key that tells this node from every other node in use, by whatever name it was found.
    pub fn key(&self) -> &Identity {
        self.inode.key()
    }

    /// Returns the identity. For a node not yet identified ([`Agent::may_hold`](crate::Agent::may_hold), an open) this
    /// is its key, which no burst buffer knows.
    pub fn identity(&self) -> &Identity {
        self.inode.identity()
    }

    /// Whether `identity` returns the lasting identity.
    pub(crate) fn is_identified(&self) -> bool {
        self.inode.is_identified()
    }

    /// Inode number, as programs see it.
    pub fn ino(&self) -> u64 {
        self.inode.ino()
    }

    /// Whether this is a regular file: its data is accelerated.
    pub fn is_regular(&self) -> bool {
        self.inode.kind() == FileType::RegularFile
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.inode.kind() == FileType::Directory
    }

    /// Whether nobody but this agent changes the file, its attributes, and for a directory the names in it.
    pub fn is_exclusive(&self) -> bool {
        self.inode.is_exclusive()
    }

    /// Whether others may change the file now, but not when it was found.
    pub fn lost_exclusivity(&self) -> bool {
        self.inode.lost_exclusivity()
    }

    /// Returns what is to be kept of the node while nobody uses it; `None` if it is in use, or has something that cannot be found again.
    /// Whether it has capabilities is asked again.
    pub fn resting(self: &mut Arc<Node>) -> Option<RestingNode> {
        let node = Arc::get_mut(self)?;
        if node.may_be_capable() { None } else { node.inode.resting().map(RestingNode) }
    }

    /// Whether the node holds a descriptor of the global store as long as it lives.
    pub fn holds_descriptor(&self) -> bool {
        self.inode.descriptor().is_some()
    }

    /// Returns the data store's anchor of this regular file.
    pub(crate) fn anchor(&self, namespace: &dyn Namespace, what: AnchorFor<'_>) -> io::Result<Arc<dyn Anchor>> {
        if let Some(anchor) = self.shared_anchor() {
            return Ok(anchor);
        }
        let anchor = namespace.anchor(&self.inode, what)?;
        let mut slot = self.anchor.lock();
        // Another thread may have been faster; all use the first one.
        if let Some(first) = slot.as_ref().and_then(Weak::upgrade) {
            return Ok(first);
        }
        *slot = Some(Arc::downgrade(&anchor));
        Ok(anchor)
    }

    fn shared_anchor(&self) -> Option<Arc<dyn Anchor>> {
        self.anchor.lock().as_ref().and_then(Weak::upgrade)
    }

    /// Notes the anchor of a file that was just created.
    pub(crate) fn is_created(&self, anchor: &Arc<dyn Anchor>) {
        *self.anchor.lock() = Some(Arc::downgrade(anchor));
        self.note_plain();
    }

    /// Notes that the file was just created, or just found to have no capabilities.
    pub(crate) fn note_plain(&self) {
        self.plain_s.store(seconds(), Ordering::Relaxed);
    }

    /// Whether the file had no capabilities a moment ago and no attribute was set through us since. Answers true once.
    /// The kernel asks for capabilities before the first write through an open file, and this saves a query of the
    /// store.
    pub(crate) fn take_plain(&self) -> bool {
        let plain_s = self.plain_s.swap(0, Ordering::Relaxed);
        plain_s > 0 && seconds() - plain_s <= limits::PLAIN_S
    }

    /// Notes that capabilities are set through us.
    pub(crate) fn note_capable(&self) {
        self.capable.store(true, Ordering::Relaxed);
    }

    /// Whether capabilities were ever set through us.
    pub(crate) fn may_be_capable(&self) -> bool {
        self.capable.load(Ordering::Relaxed)
    }
}

/// Seconds since the first call in this process, starting at 1.
fn seconds() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    1 + FIRST.elapsed().as_secs()
}
