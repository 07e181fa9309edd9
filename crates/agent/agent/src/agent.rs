//! The agent itself: what its operations share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use config::Policy;
use file_cache::{FileCache, Residency};
use global_store::calls::{Store, StoreCall};
use global_store::posix::PosixStore;
use rustix::fs::{self, Mode, OFlags};
use types::{Identity, Timestamp};

use crate::attributes::of_stat;
use crate::burst_buffer::BurstBuffer;
use crate::caller::Impersonator;
use crate::locking::LockScope;
use crate::locks::{LockTable, StoreLocks};
use crate::node::Node;
use crate::policy_table::PolicyTable;
use crate::windows::Windows;

/// What an agent is made of.
pub struct Config {
    /// Where the data is.
    pub cache: FileCache,
    /// The accelerated directory.
    pub store: PosixStore,
    /// The directories' rules.
    pub policies: PolicyTable,
}

/// POSIX meaning on one node over one accelerated directory. All methods may be called from any thread.
pub struct Agent {
    pub(crate) cache: Arc<dyn BurstBuffer>,
    pub(crate) store: PosixStore,
    pub(crate) policies: PolicyTable,
    pub(crate) impersonator: Impersonator,
    pub(crate) locks: LockTable,
    /// Which programs locks exclude; the locks of all nodes' programs, where the global store keeps them.
    pub(crate) lock_scope: LockScope,
    pub(crate) store_locks: Option<Arc<StoreLocks>>,
    /// The windows, if they are served.
    pub(crate) windows: OnceLock<Arc<Windows>>,
    /// Bytes that windows of earlier agents held of files that are gone.
    pub(crate) lost_windows: AtomicU64,
    /// `/proc/self/fd`, opened once: calls that want a path get `N` in it.
    pub(crate) descriptors: OwnedFd,
    /// Where the directory with the control socket is found, whatever is mounted where.
    pub(crate) control: OnceLock<String>,
    root: Arc<Node>,
}

impl Agent {
    /// An agent over an opened cache. Call it in the process that will serve: descriptors are named through `/proc`.
    pub fn new(config: Config) -> io::Result<Agent> {
        Agent::over(Arc::new(config.cache), config.store, config.policies)
    }

    /// An agent over any burst buffer.
    pub fn over(cache: Arc<dyn BurstBuffer>, store: PosixStore, policies: PolicyTable) -> io::Result<Agent> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = fs::open("/proc/self/fd", flags, Mode::empty())?;
        let root = fs::openat(store.root(), ".", flags, Mode::empty())?;
        let stat = fs::fstat(&root)?;
        let root = Arc::new(Node::new(&store, root, stat.st_mode, stat.st_ino)?);
        let lock_scope = Agent::own_lock_scope(&store);
        Ok(Agent {
            cache,
            store,
            policies,
            impersonator: Impersonator::new(),
            locks: LockTable::default(),
            lock_scope,
            store_locks: None,
            windows: OnceLock::new(),
            lost_windows: AtomicU64::new(0),
            descriptors,
            control: OnceLock::new(),
            root,
        })
    }

    /// The accelerated directory.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// Where the data is.
    pub fn cache(&self) -> &Arc<dyn BurstBuffer> {
        &self.cache
    }

    /// The directories' rules.
    pub fn policies(&self) -> &PolicyTable {
        &self.policies
    }

    /// Who is in a call to the global store.
    pub fn store_calls(&self) -> Store {
        self.store.calls()
    }

    /// Looks at the global store.
    pub(crate) fn below<T>(&self, call: StoreCall, run: impl FnOnce() -> T) -> T {
        self.store.calls().call(call, run)
    }

    /// Changes the global store, unless who asked has been answered by somebody else.
    pub(crate) fn change_below<T, E: From<rustix::io::Errno>>(
        &self,
        call: StoreCall,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.store.calls().change(call, run)
    }

    /// Whether the rules can be kept here; if not, why, and what to do.
    pub fn can_keep_policies(&self) -> Result<(), String> {
        self.policies.all().iter().try_for_each(|policy| self.cache.notes_reads(policy.atime))
    }

    /// The rules that hold for a node now: those of its directory and what that inherits.
    pub fn policy_for(&self, node: &Node) -> Arc<Policy> {
        if self.policies.is_empty() {
            return self.policies.base();
        }
        self.policies.for_path(&self.path_of(node).unwrap_or_default())
    }

    /// Where a node is now, relative to the accelerated directory; a hint where names move meanwhile. `None`: it was moved outside, or
    /// its path is longer than paths may be.
    pub fn path_of(&self, node: &Node) -> Option<PathBuf> {
        let link = |node: &Node| std::fs::read_link(node.proc_path()).ok();
        link(node)?.strip_prefix(link(&self.root)?).ok().map(Path::to_path_buf)
    }

    /// The name of a node in `self.descriptors`.
    pub(crate) fn descriptor_name(&self, node: &Node) -> String {
        node.fd().as_raw_fd().to_string()
    }

    /// Whether the burst buffer may hold something of a node, or somebody has it open: then it is identified from here on. Errors:
    /// what the global store says when it is asked who the file is.
    pub fn may_hold(&self, node: &Node) -> io::Result<bool> {
        let ino = node.ino();
        let known = || PosixStore::starts_of(ino).iter().any(|start| self.cache.may_know(start));
        if !node.is_identified() && !self.store.is_identified(ino) && !known() {
            return Ok(false);
        }
        node.identify(&self.store).map(|_| true)
    }

    /// Who a node is.
    pub fn identity_of(&self, node: &Node) -> io::Result<Identity> {
        node.identify(&self.store).cloned()
    }

    /// Runs a change of a node's attributes or names below, and says to the file cache that it was ours.
    pub(crate) fn as_ours<T>(&self, node: &Node, change: impl FnOnce() -> T) -> T {
        let began = self.begin_own(node);
        let done = change();
        self.cache.changed_attributes(node.identity(), began);
        done
    }

    /// Before a change of a node's attributes or names below: when it begins. What others changed before is not to pass for ours.
    pub(crate) fn begin_own(&self, node: &Node) -> Timestamp {
        if node.is_regular() && self.may_hold(node).unwrap_or(false) && self.cache.wants_look(node.identity()) {
            // Callers may have become somebody who cannot reach the burst buffer.
            if let Ok(stat) = self.stat(node) {
                self.cache.saw(node.identity(), &of_stat(&stat).fingerprint());
            }
        }
        file_cache::now_of_files()
    }

    /// After our own change of a node's names: what the file cache remembers of them follows.
    pub(crate) fn changed(&self, node: &Node) -> io::Result<()> {
        if node.is_regular() && self.may_hold(node)? && self.cache.state(node.identity()) != Residency::Absent {
            self.cache.own_change(&*node.anchor(&self.store)?);
        }
        Ok(())
    }
}
