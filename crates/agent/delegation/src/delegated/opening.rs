//! Opening a delegated tree: what its log says becomes the index.

use std::io;
use std::sync::Arc;

use concurrency::{Mutex, RwLock};
use types::{Step, reported};

use super::{DelegatedTree, DelegationSettings, Draft, FilesBelow, Inner, Shared};
use crate::callers::RecentCallers;
use crate::holders::Holders;
use crate::layout;
use crate::limits;
use crate::log::{LogDamage, LogDirectory, NameLog, read_log};
use crate::replay::{NodeStates, Pruned};
use crate::state::{LogRecord, NodeNumber, NodeState, Transaction};
use crate::tree::Tree;

/// Findings of an opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpeningReport {
    /// Whether the log was empty, and the tree begins now.
    pub is_new: bool,
    /// Nodes of the tree, the root included.
    pub nodes: usize,
    /// Damage of the log, if transactions follow it or may do so. They were not used; copies of the files are kept beside the log.
    pub damage: Option<LogDamage>,
    /// Nodes and names that the damage has taken away besides.
    pub pruned: Pruned,
}

impl DelegatedTree {
    /// Opens the tree of a log, or begins one with `root` if the log is empty. `root` is a directory with the number
    /// [`NodeNumber::ROOT`] and without names. A log is open once at a time.
    ///
    /// Errors: those of the files; `EUCLEAN` for a log whose states are not those of a tree; `EPROTONOSUPPORT` for one
    /// of another version. Such a log is left as it is.
    pub fn open(
        directory: Box<dyn LogDirectory>,
        below: Arc<dyn FilesBelow>,
        settings: DelegationSettings,
        root: NodeState,
    ) -> io::Result<(DelegatedTree, OpeningReport)> {
        let mut content = read_log(&*directory)?;
        let mut states = std::mem::take(&mut content.states);
        content.states.last = states.last;
        let is_new = states.last == 0;
        let broken = |why: String| reported(libc::EUCLEAN, &why);
        if is_new && content.damage.is_some() {
            return Err(broken("the name log's first file is damaged".into()));
        }
        let pruned = if content.damage.is_some() { states.prune() } else { Pruned::default() };
        // The tree is made before anything of a log is cut off: a log that is no tree is left as it was.
        let built = (!is_new).then(|| Tree::try_from(states)).transpose();
        let built = built.map_err(|error| broken(error.to_string()))?;
        let log = NameLog::open(directory, &content, settings.log_file_bytes).step("open the name log")?;
        let tree = match built {
            Some(tree) => tree,
            None => begin(&log, root)?,
        };
        let report = OpeningReport { is_new, nodes: tree.len(), damage: content.damage, pruned };
        // The low bits go on as well: narrow inode numbers are made of them.
        let next_number = (u64::from(log.opening()) << limits::NUMBER_BITS) + tree.last_count() + 1;
        let (holders, callers) = (Holders::new(), RecentCallers::default());
        let (cleaning, applying, exclusivity) = (Mutex::new(None), Mutex::new(()), Arc::default());
        let inner = RwLock::new(Inner { tree, frame: Vec::new(), next_number, is_frozen: false, unchanging: 0 });
        let shared =
            Arc::new(Shared { inner, log, holders, callers, below, settings, exclusivity, cleaning, applying });
        log_pruned(&shared, &report.pruned)?;
        Ok((DelegatedTree { shared }, report))
    }
}

/// Logs the root of a new tree, and returns its index.
fn begin(log: &NameLog, mut root: NodeState) -> io::Result<Tree> {
    root.stamp = 0;
    let (sequence, time) = (log.next_sequence(), root.ctime);
    let records = vec![LogRecord::State(Box::new(root))];
    let transaction = Transaction { sequence, time, touched: Vec::new(), records };
    let mut frame = Vec::new();
    layout::begin_frame(&mut frame);
    layout::encode_transaction(&mut frame, &transaction);
    let (_, file) = log.append(&mut frame, 1)?;
    let mut states = NodeStates::default();
    states.add(file, transaction);
    Tree::try_from(states).map_err(|error| reported(libc::EINVAL, &error.to_string()))
}

/// Logs that pruned nodes are gone: the log still has their states.
fn log_pruned(shared: &Arc<Shared>, pruned: &Pruned) -> io::Result<()> {
    let mut inner = shared.change();
    let mut commit = |make: &dyn Fn(&mut Draft, &Tree, NodeNumber), numbers: &[NodeNumber]| {
        let mut draft = inner.draft(shared);
        numbers.iter().for_each(|number| make(&mut draft, &inner.tree, *number));
        inner.commit(shared, draft)
    };
    for lost in pruned.lost.chunks(limits::TRANSACTION_RECORDS_MAX) {
        commit(&|draft, _, number| draft.records.push(LogRecord::Forgotten(number)), lost)?;
    }
    for number in &pruned.trimmed {
        let change = |draft: &mut Draft, tree: &Tree, number| {
            tree.slot_of(number).into_iter().for_each(|slot| draft.change(tree.state(slot)));
        };
        commit(&change, &[*number])?;
    }
    Ok(())
}
