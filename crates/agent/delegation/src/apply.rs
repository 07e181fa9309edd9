//! Bringing the pending state of a delegated tree to the global store.
//!
//! Each node's state is compared with what the store has of it, and the least is done. What is created appears under a
//! hidden name first and is whole when it gets its own. Nodes go in rounds: the log says of many where they may be
//! afterwards, is synced once, and then threads change the store.
//!
//! States of a node, and what a crash leaves:
//!
//! | state | durable before the next step | after a crash of the agent or of the machine |
//! | --- | --- | --- |
//! | pending | its state in the log: one sync begins the apply | it is pending |
//! | noted: the log has the hidden name, and no identity | that note | what has the hidden name is made anew |
//! | created under the hidden name, whole | nothing | the same |
//! | noted: identity, and all names where it was or will be | that note | it is found by its identity, under whichever name |
//! | in its place | the store: one sync for many nodes | the same; content is written again, because nobody knows whether it is whole |
//! | recorded as applied | nothing | it is applied, or pending as before |
//!
//! What is new in a new directory is made there under its own name while nobody sees the directory:
//!
//! | state of the topmost new directory | durable before the next step | after a crash of the agent or of the machine |
//! | --- | --- | --- |
//! | noted: the log has the hidden name, and no identity | that note | what has the hidden name goes, with all in it, and is made anew |
//! | being filled; the log gets the identity of each node within | nothing | the same; identities of nodes within are forgotten |
//! | noted: identity and final name, after all identities within | that note and what is before it | all are found by identity |
//! | revealed: renamed to its final name | the store: one sync for many nodes | the same; content is written again |
//!
//! So a name within counts as ours by its identity alone once the directory may have been seen, and by its place alone before that.
//! A node that was not made, or not whole, has no name there when the directory is revealed, and comes later as any other.
//! Nodes with several names, and nodes that the store has elsewhere, come after the reveal.
//!
//! A removal begins at the first state, and has no notes: the log has the names. It is recorded after a sync of the store too.
//! Names stay in the log until that sync, although the node has left them. A crash may give each of them back.
//!
//! Who drops local data because the store has it records that in the log first, and syncs the log.

mod acting;
mod below;
mod clearing;
mod creating;
mod dressing;
mod filling;
mod finishing;
mod items;
mod jobs;
mod opened;
mod ordered;
mod parallel;
mod placing;
mod removing;
mod replacing;
mod request;
mod rounds;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use concurrency::Mutex;
use namespace::Names;
use types::{HasErrno, Identity};

use crate::delegated::DelegatedTree;
use crate::limits;
use crate::state::{BelowState, NodeName, NodeNumber};
use filling::Filling;
use finishing::Unsynced;
use items::{Item, Progress};
use opened::OpenDirectories;
pub use request::{ApplyProgress, ApplyReport, ApplyRequest, Contents, StoreTree, StuckNode};

/// Means that every thread of an apply shares.
struct Hands {
    tree: DelegatedTree,
    store: Arc<StoreTree>,
    contents: Arc<dyn Contents>,
    /// Sequence of the log's last transaction that was noted here.
    noted: AtomicU64,
    /// Whether directories of the store hand down an ACL.
    acls: Mutex<HashMap<Identity, bool>>,
}

/// One apply.
struct Run<'a> {
    hands: Arc<Hands>,
    request: &'a ApplyRequest<'a>,
    items: HashMap<NodeNumber, Item>,
    /// Items in the order of their stamps.
    order: Vec<NodeNumber>,
    /// Whether `items` are all pending nodes.
    has_all: bool,
    /// Pending nodes by identity in the store.
    owners: HashMap<Identity, NodeNumber>,
    /// Names that files without names have in the store, for others to take.
    vacated: BTreeMap<NodeName, Identity>,
    directories: OpenDirectories,
    /// Directories that are known to be where they belong.
    settled: HashSet<NodeNumber>,
    /// Nodes that are being looked for.
    seeking: HashSet<NodeNumber>,
    /// Directories whose names were changed in the store.
    touched: BTreeSet<NodeNumber>,
    /// Nodes whose names others have, or that are not where they should be.
    contested: Vec<NodeNumber>,
    /// Nodes that have lost a name to another, and have a hidden one now.
    parked: Vec<NodeNumber>,
    filling: Filling,
    unsynced: Unsynced,
    progress: ApplyProgress,
    report: ApplyReport,
}

impl DelegatedTree {
    /// Brings all pending nodes to the global store, as far as that is possible now. Programs may go on meanwhile. One apply of
    /// a tree runs at a time; another waits for its end.
    pub fn apply(&self, request: &ApplyRequest<'_>) -> ApplyReport {
        let _alone = self.apply_alone();
        let mut run = Run::new(self, request);
        run.load_all();
        let order = run.order.clone();
        run.bring(&order)
    }

    /// Brings one node to the global store, and the directories above it. Nodes in a directory stay pending. Nothing is done
    /// for a node that is gone, or that the store has.
    pub fn apply_node(&self, number: NodeNumber, request: &ApplyRequest<'_>) -> ApplyReport {
        let _alone = self.apply_alone();
        let mut run = Run::new(self, request);
        run.load_with_directories(number);
        let order = run.order.clone();
        run.bring(&order)
    }
}

impl Run<'_> {
    fn new<'a>(tree: &DelegatedTree, request: &'a ApplyRequest<'a>) -> Run<'a> {
        let (store, contents) = (Arc::clone(request.store), Arc::clone(request.contents));
        let directories = OpenDirectories::new(Arc::clone(&store.root));
        Run {
            hands: Arc::new(Hands {
                tree: tree.share(),
                store,
                contents,
                noted: AtomicU64::new(0),
                acls: Mutex::default(),
            }),
            request,
            items: HashMap::new(),
            order: Vec::new(),
            has_all: false,
            owners: HashMap::new(),
            vacated: BTreeMap::new(),
            directories,
            settled: HashSet::from([NodeNumber::ROOT]),
            seeking: HashSet::new(),
            touched: BTreeSet::new(),
            contested: Vec::new(),
            parked: Vec::new(),
            filling: Filling::default(),
            unsynced: Unsynced::default(),
            progress: ApplyProgress::default(),
            report: ApplyReport::default(),
        }
    }

    /// Brings pending nodes to the store.
    fn bring(mut self, order: &[NodeNumber]) -> ApplyReport {
        for number in order {
            let item = self.item_mut(*number);
            item.is_left = true;
            let bytes = item.bytes();
            self.progress.nodes_left += 1;
            self.progress.bytes_left += bytes;
        }
        self.forget_unseen(order);
        if order.is_empty() || !self.open_syncs() {
            return self.report;
        }
        match self.request.strict {
            true => self.bring_in_order(order),
            false => self.bring_in_any_order(order),
        }
        self.bring_back_parked();
        if !self.is_halted() {
            self.remove_tombstones(order);
        }
        self.finish_directories();
        self.sync_store();
        // Nodes that were removed meanwhile have left their directories.
        self.finish_directories();
        self.sync_store();
        self.report
    }

    /// Brings nodes that have names to the store: what is in new directories with these, then other directories, one level after the other.
    fn bring_in_any_order(&mut self, order: &[NodeNumber]) {
        self.fill_new_directories(order);
        let is_living = |number: &NodeNumber| *number != NodeNumber::ROOT && !self.item(*number).is_tombstone();
        let living = order.iter().copied().filter(is_living);
        let (directories, mut others): (Vec<NodeNumber>, Vec<NodeNumber>) =
            living.partition(|number| self.item(*number).is_directory());
        let mut directories: Vec<_> = directories.into_iter().map(|number| (self.depth(number), number)).collect();
        directories.sort_by_key(|(depth, _)| *depth);
        for level in directories.chunk_by(|one, two| one.0 == two.0) {
            let mut level: Vec<NodeNumber> = level.iter().map(|(_, number)| *number).collect();
            rounds::spread(&mut level, |number| self.wanted_parent(number));
            self.settle_all(&level);
        }
        rounds::spread(&mut others, |number| self.wanted_parent(number));
        self.settle_all(&others);
    }

    /// Returns the directory of the first name that a node is to have.
    fn wanted_parent(&self, number: NodeNumber) -> Option<NodeNumber> {
        self.item(number).state.names.first().map(|name| name.parent)
    }

    /// Brings nodes that have lost a name to others to their own places: an end in between would leave them without any.
    fn bring_back_parked(&mut self) {
        while let Some(number) = self.parked.pop() {
            // The report has the error.
            let _ = self.settle(number);
        }
    }

    /// Returns false if nothing more is to be begun.
    fn may_begin(&mut self) -> bool {
        self.report.interrupted |= (self.request.interrupted)();
        !self.report.interrupted
    }

    fn item(&self, number: NodeNumber) -> &Item {
        &self.items[&number]
    }

    fn item_mut(&mut self, number: NodeNumber) -> &mut Item {
        self.items.get_mut(&number).expect("a pending node")
    }

    /// Notes that a node is done with, whatever has become of it, and tells the caller.
    fn done(&mut self, number: NodeNumber) {
        let item = self.item_mut(number);
        let (was_left, bytes) = (std::mem::take(&mut item.is_left), item.bytes());
        if was_left {
            self.progress.nodes_done += 1;
            self.progress.nodes_left -= 1;
            self.progress.bytes_left -= bytes;
            (self.request.progress)(self.progress);
        }
    }

    /// Notes that a node stays pending.
    fn stuck(&mut self, number: NodeNumber, error: &io::Error) {
        let known = self.hands.tree.inode(number).and_then(|inode| self.hands.tree.path_of(&inode));
        let path = known.unwrap_or_else(|| self.recorded_path(number));
        let errno = error.errno().unwrap_or(libc::EIO);
        self.report.stuck.push(StuckNode { number, path, errno, reason: error.to_string() });
        if self.items.contains_key(&number) {
            self.done(number);
        }
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
