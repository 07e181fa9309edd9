//! Bringing the pending state of a delegated tree to the global store.
//!
//! Each node's state is compared with what the store has of it, and the least is done. What is created appears under a
//! hidden name first and is whole when it gets its own. Before each step the log says where the node may be afterwards. So
//! a crash at any step leaves a record by which the next apply finds and finishes the work.

mod acting;
mod below;
mod creating;
mod dressing;
mod finishing;
mod parallel;
mod placing;
mod removing;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use global_store::StoreFile;
use namespace::{Inode, Names, Namespace};
use types::{HasErrno, Identity};

use crate::delegated::DelegatedTree;
use crate::limits;
use crate::state::{BelowState, DataPlace, NodeKind, NodeName, NodeNumber, NodeState};
use crate::tree::PendingNode;

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

/// A node that could not be brought to the global store. The node stays pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckNode {
    /// Path in the tree, or the last one that was known.
    pub path: PathBuf,
    /// Error of the step that failed.
    pub errno: i32,
    /// Explanation of the step.
    pub reason: String,
}

/// Outcome of one apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Nodes of which the store now has all.
    pub applied: usize,
    /// Nodes that were removed from the store.
    pub removed: usize,
    /// Nodes that were changed meanwhile, and are pending again.
    pub changed: usize,
    /// Nodes that stay pending because of an error.
    pub stuck: Vec<StuckNode>,
}

/// Progress of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Todo,
    Doing,
    Placed,
    Failed,
}

/// A pending node.
struct Item {
    pending: PendingNode,
    state: Arc<NodeState>,
    progress: Progress,
    /// Whether `names` and `inode` are what the store has, and not only what the log says.
    located: bool,
    names: Vec<NodeName>,
    identity: Option<Identity>,
    inode: Option<Arc<Inode>>,
    /// Whether this apply has created the node with all its attributes.
    dressed: bool,
}

/// Means that every thread of an apply shares.
struct Hands {
    tree: DelegatedTree,
    store: Arc<StoreTree>,
    contents: Arc<dyn Contents>,
}

/// One apply.
struct Run {
    hands: Arc<Hands>,
    items: HashMap<NodeNumber, Item>,
    /// Pending nodes by identity in the store.
    owners: HashMap<Identity, NodeNumber>,
    directories: HashMap<NodeNumber, Arc<Inode>>,
    /// Directories that are known to be where they belong.
    settled: HashSet<NodeNumber>,
    /// Nodes that are being looked for.
    seeking: HashSet<NodeNumber>,
    /// Directories whose names were changed in the store.
    touched: BTreeSet<NodeNumber>,
    report: ApplyReport,
}

impl DelegatedTree {
    /// Brings all pending nodes to the global store, as far as that is possible now. Programs may go on meanwhile. One apply of
    /// a tree runs at a time. Up to `width` new files are created at once.
    pub fn apply(&self, store: &Arc<StoreTree>, contents: &Arc<dyn Contents>, width: usize) -> ApplyReport {
        let mut order = Vec::new();
        let mut items = HashMap::new();
        let mut owners = HashMap::new();
        for pending in self.pending(None, usize::MAX) {
            let Some(state) = self.state(pending.number) else { continue };
            let item = Item::new(pending, state);
            if let Some(identity) = &item.identity {
                owners.insert(identity.clone(), pending.number);
            }
            order.push(pending.number);
            items.insert(pending.number, item);
        }
        let mut run = Run {
            hands: Arc::new(Hands { tree: self.share(), store: Arc::clone(store), contents: Arc::clone(contents) }),
            items,
            owners,
            directories: HashMap::from([(NodeNumber::ROOT, Arc::clone(&store.root))]),
            settled: HashSet::from([NodeNumber::ROOT]),
            seeking: HashSet::new(),
            touched: BTreeSet::new(),
            report: ApplyReport::default(),
        };
        let (new_files, others): (Vec<NodeNumber>, Vec<NodeNumber>) =
            order.iter().partition(|number| run.item(**number).is_new_file());
        others.iter().for_each(|number| drop(run.settle(*number)));
        run.create_files(&new_files, width);
        run.remove_tombstones(&order);
        run.finish_directories();
        run.report
    }
}

impl Item {
    fn new(pending: PendingNode, state: NodeState) -> Item {
        let (identity, names) = match &state.below {
            BelowState::At(copy) => (copy.identity.clone(), copy.names.clone()),
            BelowState::Never => (None, Vec::new()),
        };
        Item {
            pending,
            state: Arc::new(state),
            progress: Progress::Todo,
            located: false,
            names,
            identity,
            inode: None,
            dressed: false,
        }
    }

    fn is_tombstone(&self) -> bool {
        self.state.names.is_empty() && self.state.number != NodeNumber::ROOT
    }

    fn is_new_file(&self) -> bool {
        self.state.kind == NodeKind::File && self.identity.is_none() && !self.is_tombstone()
    }

    fn is_directory(&self) -> bool {
        self.state.kind == NodeKind::Directory
    }
}

impl Run {
    fn item(&self, number: NodeNumber) -> &Item {
        &self.items[&number]
    }

    fn item_mut(&mut self, number: NodeNumber) -> &mut Item {
        self.items.get_mut(&number).expect("a pending node")
    }

    /// Notes that a node stays pending.
    fn stuck(&mut self, number: NodeNumber, error: &io::Error) {
        let known = self.hands.tree.inode(number).and_then(|inode| self.hands.tree.path_of(&inode));
        let path = known.unwrap_or_else(|| self.recorded_path(number));
        self.report.stuck.push(StuckNode {
            path,
            errno: error.errno().unwrap_or(libc::EIO),
            reason: error.to_string(),
        });
    }

    /// Returns the path that the log has of a node that has no name any more.
    fn recorded_path(&self, number: NodeNumber) -> PathBuf {
        let (mut path, mut at) = (PathBuf::new(), number);
        for _ in 0..limits::PATH_BYTES_MAX {
            let Some(name) = self.known_name(at) else { break };
            let here = Path::new(OsStr::from_bytes(name.name.as_bytes()));
            path = if path.as_os_str().is_empty() { here.to_owned() } else { here.join(path) };
            at = name.parent;
        }
        path
    }

    /// Returns a name that a node has in the store, as far as is known.
    fn known_name(&self, number: NodeNumber) -> Option<NodeName> {
        if let Some(item) = self.items.get(&number) {
            return item.names.first().cloned();
        }
        match self.hands.tree.state(number)?.below {
            BelowState::At(copy) => copy.names.first().cloned(),
            BelowState::Never => None,
        }
    }
}
