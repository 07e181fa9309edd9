//! Names that an apply could not bring to the global store, and why.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use delegation::{ApplyReport, NodeNumber, StuckNode};
use types::HasErrno;

use crate::limits;

/// Nodes that the last applies of a tree could not bring to the global store.
#[derive(Default)]
pub(crate) struct WaitingNames {
    pub nodes: Vec<StuckNode>,
}

/// Whether it is only too early for a node: it waits for another, or for the end of its use.
pub(crate) fn is_early(errno: i32) -> bool {
    matches!(errno, libc::EBUSY | libc::EAGAIN | libc::EINTR)
}

/// Returns the failure of a whole apply, as one of its root.
pub(crate) fn failure(error: &io::Error) -> StuckNode {
    let errno = error.errno().unwrap_or(libc::EIO);
    StuckNode { number: NodeNumber::ROOT, path: PathBuf::new(), errno, reason: error.to_string() }
}

impl WaitingNames {
    /// Takes over what an apply has found: of one node, or of all.
    pub fn note(&mut self, report: &ApplyReport, only: Option<NodeNumber>) {
        let new: HashSet<NodeNumber> = report.stuck.iter().map(|node| node.number).collect();
        let is_whole = only.is_none() && !report.interrupted;
        self.nodes.retain(|node| !is_whole && !new.contains(&node.number) && only != Some(node.number));
        self.nodes.extend(report.stuck.iter().cloned());
        // Those that need somebody come first.
        self.nodes.sort_by_key(|node| is_early(node.errno));
        let mut met = HashSet::new();
        self.nodes.retain(|node| met.insert(node.number));
        self.nodes.truncate(limits::STUCK_KEPT);
    }
}

/// Returns a number of names that wait, in words.
pub(crate) fn count(names: u64) -> String {
    if names == 1 { "1 name waits".to_owned() } else { format!("{names} names wait") }
}
