//! The agent: state shared by all operations.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use config::Policy;
use data_store::{Anchor, DataStore, FileChange, Residency};
use global_store::calls::{Store, StoreCall};
use global_store::now_of_files;
use namespace::{AnchorFor, Namespace};
use types::{Identity, Timestamp};

use crate::locks::{LockScope, LockTable, StoreLocks};
use crate::node::Node;
use crate::policy_table::PolicyTable;
use windows::Windows;

/// POSIX meaning on one node over one accelerated directory. All methods may be called from any thread.
pub struct Agent {
    pub(crate) data: Arc<dyn DataStore>,
    pub(crate) names: Arc<dyn Namespace>,
    /// Registry of the calls to the global store.
    calls: Store,
    /// Whether other nodes open the same files through the data store.
    shared: bool,
    pub(crate) policies: Arc<PolicyTable>,
    pub(crate) locks: LockTable,
    /// Programs that locks exclude.
    pub(crate) lock_scope: LockScope,
    pub(crate) store_locks: Option<Arc<StoreLocks>>,
    /// The windows, if they are served.
    pub(crate) windows: OnceLock<Arc<Windows>>,
    /// Bytes that windows of earlier agents held of files that are gone.
    pub(crate) lost_windows: AtomicU64,
    /// Path of the directory with the control socket, through `/proc`: valid whatever is mounted.
    pub(crate) control: OnceLock<String>,
    root: Arc<Node>,
}

impl Agent {
    /// Creates an agent over an opened data store and the names of its files.
    pub fn new(
        data: Arc<dyn DataStore>,
        names: Arc<dyn Namespace>,
        policies: impl Into<Arc<PolicyTable>>,
    ) -> io::Result<Agent> {
        let root = Arc::new(Node::new(names.root()?));
        let (calls, lock_scope) = (names.calls(), LockScope::of_node(names.store().is_shared()));
        Ok(Agent {
            shared: data.is_shared(),
            data,
            names,
            calls,
            policies: policies.into(),
            locks: LockTable::default(),
            lock_scope,
            store_locks: None,
            windows: OnceLock::new(),
            lost_windows: AtomicU64::new(0),
            control: OnceLock::new(),
            root,
        })
    }

    /// The accelerated directory.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The store of the files' data.
    pub fn data(&self) -> &Arc<dyn DataStore> {
        &self.data
    }

    /// Whether other nodes open the same files through the data store.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Policies of directories.
    pub fn policies(&self) -> &PolicyTable {
        &self.policies
    }

    /// Calls to the global store that are under way.
    pub fn store_calls(&self) -> Store {
        self.calls
    }

    /// Runs a call that reads from the global store.
    pub(crate) fn below<T>(&self, call: StoreCall, run: impl FnOnce() -> T) -> T {
        self.calls.call(call, run)
    }

    /// Checks that the burst buffer can apply all policies. Errors: the reason, and what to do.
    pub fn can_keep_policies(&self) -> Result<(), String> {
        self.policies.all().iter().try_for_each(|policy| self.data.notes_reads(policy.atime))
    }

    /// Returns the policy of a node: that of its directory and of the directories above.
    pub fn policy_for(&self, node: &Node) -> Arc<Policy> {
        if self.policies.is_empty() {
            return self.policies.base();
        }
        self.policies.for_path(&self.path_of(node).unwrap_or_default())
    }

    /// Returns the path of a node relative to the accelerated directory. Names may change meanwhile, so the path is a
    /// hint. `None` if the node was moved outside or its path exceeds the limit.
    pub fn path_of(&self, node: &Node) -> Option<PathBuf> {
        self.names.path_of(node.inode())
    }

    /// Whether the burst buffer may hold data of a node, or the file is open. If so, the node is identified from here
    /// on. Errors: those of the global store when it is asked for the identity.
    pub fn may_hold(&self, node: &Node) -> io::Result<bool> {
        let index = self.data.extensions().index;
        self.names.identify(node.inode(), &|start| index.is_none_or(|index| index.may_know(start)))
    }

    /// Returns the identity of a node.
    pub fn identity_of(&self, node: &Node) -> io::Result<Identity> {
        self.identify(node)?;
        Ok(node.identity().clone())
    }

    /// Learns the identity of a node, unless it is known.
    pub(crate) fn identify(&self, node: &Node) -> io::Result<()> {
        self.names.identify(node.inode(), &|_| true).map(drop)
    }

    /// Returns the data store's anchor of a regular file.
    pub(crate) fn anchor(&self, node: &Node) -> io::Result<Arc<dyn Anchor>> {
        node.anchor(&*self.names, AnchorFor::Any)
    }

    /// Runs a change of a node's attributes or names in the global store, and tells the file cache that the change is
    /// ours.
    pub(crate) fn as_ours<T>(&self, node: &Node, change: impl FnOnce() -> T) -> T {
        let began = self.begin_own(node);
        let done = change();
        self.data.note(node.identity(), FileChange::Attributes(began));
        done
    }

    /// Returns the time at which a change of a node's attributes or names in the global store begins. Notes the
    /// fingerprint of the global copy first, so that earlier changes by others are not taken for ours.
    pub(crate) fn begin_own(&self, node: &Node) -> Timestamp {
        if node.is_regular() && self.may_hold(node).unwrap_or(false) && self.wants_look(node) {
            // The look comes first: the thread may act as a caller who cannot reach the burst buffer.
            if let Ok(stat) = self.stat(node) {
                self.data.note(node.identity(), FileChange::Seen(&stat.fingerprint()));
            }
        }
        now_of_files()
    }

    /// Whether the global copy should be looked at before a change. With a server, the server looks.
    fn wants_look(&self, node: &Node) -> bool {
        self.data.extensions().index.is_some() && self.data.state(node.identity()).wants_look
    }

    /// Updates what the data store remembers of a node's names. Call this after our own change of the names.
    pub(crate) fn changed(&self, node: &Node) -> io::Result<()> {
        if node.is_regular() && self.may_hold(node)? && self.data.state(node.identity()).residency != Residency::Absent
        {
            let anchor = self.anchor(node)?;
            self.data.note(node.identity(), FileChange::Names(&*anchor));
        }
        Ok(())
    }
}
