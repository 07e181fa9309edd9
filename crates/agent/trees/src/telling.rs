//! Notices of names that wait: which, why, and what is to be done.

use std::io;
use std::path::{Path, PathBuf};

use concurrency::Instant;
use data_store::{Keep, Residency, Status, Stuck, StuckStatus};
use delegation::{ApplyReport, DataPlace, NodeNumber, NodeState, StuckNode};
use types::{HasErrno, Identity};

use crate::files::local_name;
use crate::limits;
use crate::mark;
use crate::noted_waiting::NotedWaiting;
use crate::open_tree::{DATA, OpenTree, id_of};
use crate::registry::Trees;
use crate::unopened::Unopened;
use crate::waiting::{count, failure};

/// Something that waits, for those who are told.
pub(crate) struct Notice {
    pub path: PathBuf,
    pub identity: Identity,
    pub state: Residency,
    /// Whether a decision takes the identity: no path leads to it any more.
    pub orphaned: bool,
    pub reason: String,
    pub errno: i32,
    /// Place of the data in the burst buffer; empty if there is none.
    pub data: PathBuf,
    pub remedy: String,
}

/// Returns the state of what could not be brought: `Conflict` if others have changed the store, `Failed` if the same would fail again,
/// `Dirty` if it may go by itself.
fn state_of(errno: i32) -> Residency {
    match errno {
        libc::EEXIST | libc::ENOENT | libc::ENOTEMPTY | libc::ENOTDIR | libc::EISDIR | libc::ELOOP | libc::ESTALE => {
            Residency::Conflict
        }
        libc::EACCES | libc::EPERM | libc::ENAMETOOLONG | libc::EINVAL | libc::EFBIG | libc::EOPNOTSUPP => {
            Residency::Failed
        }
        _ => Residency::Dirty,
    }
}

/// Advice for a failure that is tried again soon.
const AGAIN: &str = "it is tried again by itself; mend the reason if it stays";
const ROOM: &str = "make room in the global store, or have its quota raised; it is tried again by itself";

fn remedy(state: Residency, errno: i32, (orphaned, there): (bool, bool)) -> String {
    let by = if orphaned { "IDENTITY" } else { "PATH" };
    let decide = format!("forebay resolve {by} --keep {}", Keep::choices(orphaned, there));
    match (state, errno) {
        (_, libc::ENOENT) if orphaned => {
            format!("put the directory back if it was moved, and drain; else save its files, or give it up: {decide}")
        }
        (_, libc::EUCLEAN | libc::EPROTONOSUPPORT) if orphaned => format!("save its files, or give it up: {decide}"),
        _ if orphaned => format!("mend the reason, and drain; else save its files, or give it up: {decide}"),
        (Residency::Conflict, _) => format!("compare both, then: {decide}"),
        (Residency::Failed, _) => format!("mend the reason, then it is tried again by itself; or decide: {decide}"),
        (_, libc::ENOSPC | libc::EDQUOT) => ROOM.to_owned(),
        _ => AGAIN.to_owned(),
    }
}

impl Notice {
    pub fn new(path: PathBuf, identity: Identity, errno: i32, reason: String, data: PathBuf, orphaned: bool) -> Notice {
        let state = if orphaned { Residency::Failed } else { state_of(errno) };
        let remedy = remedy(state, errno, (orphaned, !data.as_os_str().is_empty()));
        Notice { path, identity, state, orphaned, reason, errno, data, remedy }
    }

    pub fn stuck(self) -> Stuck {
        let Notice { path, identity, state, orphaned, reason, errno, data, .. } = self;
        Stuck { path_hint: path, identity, state, orphaned, reason, errno, replica: data }
    }

    /// Whether it does not go by itself.
    pub fn is_decided(&self) -> bool {
        self.orphaned || matches!(self.state, Residency::Conflict | Residency::Failed)
    }

    /// Adds this to a status, whose `dirty` is the caller's matter.
    pub fn show(self, status: &mut Status) {
        match self.state {
            _ if self.orphaned => status.orphaned += 1,
            Residency::Conflict => status.conflict += 1,
            Residency::Failed => status.failed += 1,
            _ => {}
        }
        if status.stuck.len() >= limits::STUCK_LISTED {
            return;
        }
        let state = if self.orphaned { data_store::ORPHANED } else { self.state.name() };
        status.stuck.push(StuckStatus {
            path: self.path.to_string_lossy().into_owned(),
            identity: self.identity.to_string(),
            state: state.to_owned(),
            reason: self.reason,
            remedy: self.remedy,
            replica: self.data.to_string_lossy().into_owned(),
        });
    }
}

impl OpenTree {
    /// Notes at the directory how many names wait, if they have waited for a while.
    pub(crate) fn count_below(&self) {
        let (names, since) = (self.tree.pending_len() as u64, self.changes.lock().pending);
        let mut noted = self.noted_waiting.lock();
        if !noted.is_due(names, since) {
            return;
        }
        // The mark of another says what waits for that one.
        let written =
            self.is_marked().and_then(|is_ours| if is_ours { self.write_waiting(&mut noted, names) } else { Ok(()) });
        if let Err(error) = written {
            tracing::debug!(%error, names, "a delegated directory cannot say how many names wait");
        }
    }

    /// Removes what the directory says, as the delegation ends.
    pub(crate) fn forget_count_below(&self) -> io::Result<()> {
        let mut noted = self.noted_waiting.lock();
        if *noted == NotedWaiting::Nothing { Ok(()) } else { self.write_waiting(&mut noted, 0) }
    }

    fn write_waiting(&self, noted: &mut NotedWaiting, names: u64) -> io::Result<()> {
        *noted = if names > 0 { NotedWaiting::Names(names, Instant::now()) } else { NotedWaiting::Nothing };
        mark::note_waiting(&*self.store.namespace, &self.root, names)
    }

    /// Notes the outcome of an apply.
    pub(crate) fn note_waiting(&self, outcome: &io::Result<ApplyReport>, only: Option<NodeNumber>) {
        match outcome {
            Ok(report) => self.waiting.lock().note(report, only),
            Err(error) => {
                let report = ApplyReport { stuck: vec![failure(error)], ..ApplyReport::default() };
                self.waiting.lock().note(&report, None);
            }
        }
    }

    /// Returns what the last applies could not bring to the global store, and what still waits.
    pub(crate) fn waiting(&self) -> Vec<StuckNode> {
        let mut waiting = self.waiting.lock();
        let has_some = self.tree.pending_len() > 0;
        waiting.nodes.retain(|node| match node.number {
            NodeNumber::ROOT => has_some,
            number => self.tree.pending_node(number).is_some(),
        });
        waiting.nodes.clone()
    }

    /// Returns the place of a node's data in the burst buffer; an empty path if there is none.
    pub(crate) fn data_of(&self, state: &NodeState) -> PathBuf {
        match state.data {
            DataPlace::Replica(number) if !state.names.is_empty() => {
                self.directory().join(DATA).join(local_name(number))
            }
            _ if state.names.is_empty() && state.number != NodeNumber::ROOT => PathBuf::new(),
            _ => self.directory().to_owned(),
        }
    }
}

impl Trees {
    /// Returns what those who ask about a tree are told of a node that waits. `root`: path of the tree.
    pub(crate) fn told(&self, tree: &OpenTree, root: &Path, node: StuckNode) -> Notice {
        let data = tree.tree.state(node.number).map(|state| tree.data_of(&state)).unwrap_or_default();
        Notice::new(root.join(&node.path), tree.tree.key(node.number), node.errno, node.reason, data, false)
    }

    /// Returns what is told of a tree: each name that waits and why, or that the whole tree has lost its directory.
    pub(crate) fn told_of(&self, tree: &OpenTree, nodes: Vec<StuckNode>) -> Vec<Notice> {
        let root = self.last_path_of(tree);
        let is_lost = |node: &StuckNode| matches!(node.errno, libc::ENOENT | libc::ESTALE);
        if nodes.iter().any(is_lost) && tree.is_gone() {
            let waiting = tree.tree.pending_len();
            let reason = format!("the directory is gone from the global store, and {} for it", count(waiting as u64));
            return vec![Notice::new(root, tree.id(), libc::ENOENT, reason, tree.directory().to_owned(), true)];
        }
        nodes.into_iter().map(|node| self.told(tree, &root, node)).collect()
    }
}

impl Trees {
    /// Returns what is told of trees that could not be opened.
    pub(crate) fn told_unopened(&self) -> Vec<Notice> {
        self.unopened.lock().iter().map(Unopened::told).collect()
    }

    /// Describes trees that could not be opened, and what to do.
    pub fn notes(&self) -> Vec<(PathBuf, String)> {
        let told = self.told_unopened().into_iter().map(|told| {
            let remedy = told.remedy.replace("IDENTITY", &told.identity.to_string());
            (told.path, format!("{}; its names are in {}; {remedy}", told.reason, told.data.display()))
        });
        told.collect()
    }
}

impl Unopened {
    pub fn told(&self) -> Notice {
        // Only what lacks its mark alone can be taken up again.
        let errno = self.error.errno().unwrap_or(libc::EIO);
        let (errno, orphaned) = if self.lacks_mark() { (libc::ESTALE, false) } else { (errno, true) };
        let reason = self.error.to_string();
        Notice::new(self.path(), id_of(&self.directory), errno, reason, self.directory.clone(), orphaned)
    }
}
