//! Scope of locks.

/// Scope of a lock: the programs that it excludes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockScope {
    /// All programs that see the directory; no node but this one does.
    Node,
    /// The programs of all nodes that mount the global store, which keeps the locks.
    Store,
    /// The programs of this node, although other nodes may have the same file open; with the reason.
    NodeAlone(String),
}

impl LockScope {
    /// Returns the scope of an agent that keeps its data on this node. `is_shared`: other nodes use the names too.
    pub(crate) fn of_node(is_shared: bool) -> LockScope {
        if is_shared { LockScope::NodeAlone("each node has a burst buffer of its own".into()) } else { LockScope::Node }
    }
}
