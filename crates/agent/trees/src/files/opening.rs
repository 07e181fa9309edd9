//! The opening of local files and the pack: what a killed agent has left is brought into the tree, the rest is removed.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use delegation::{BelowState, DataPlace, DelegatedTree, NodeKind, NodeNumber, NodeState};
use rustix::fs::Stat;
use types::Timestamp;

use super::directory::{LocalDirectory, UNWRITTEN, mtime_of, name_of};

/// Findings of an opening of a tree's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesReport {
    /// Files that the burst buffer has, packed ones among them.
    pub files: usize,
    /// Packed files.
    pub packed: usize,
    /// Files that were written while the last agent died, and whose size and time the tree has got now.
    pub settled: usize,
    /// Files that a crash of the machine has taken from the pack, and whose local files count again.
    pub returned: usize,
    /// Local files and objects of the pack that no node referred to. They were removed.
    pub removed: usize,
    /// Nodes whose data is missing here and in the global store. They are empty now.
    pub lost: Vec<NodeNumber>,
    /// Nodes whose data is missing here, and which the global store has.
    pub below: usize,
}

/// Compares the local files and the pack with the tree, and makes all agree.
pub(super) fn agree(directory: &LocalDirectory, found: Vec<u64>, tree: &DelegatedTree) -> io::Result<FilesReport> {
    let (mut unused, mut report) = (HashSet::<u64>::from_iter(found), FilesReport::default());
    let mut packed = HashSet::new();
    for state in tree.states() {
        let (DataPlace::Replica(number) | DataPlace::Packed(number)) = state.data else { continue };
        directory.pass(number);
        if state.kind != NodeKind::File || state.names.is_empty() {
            continue;
        }
        let is_packed = matches!(state.data, DataPlace::Packed(_));
        if is_packed && directory.packs.find(number).is_some_and(|object| object.len() == state.size) {
            packed.insert(number);
            report.files += 1;
            continue;
        }
        // The log's record was durable before the object. Until both are, nobody touches the local file.
        let is_whole = |stat: &Stat| !is_packed || stat.st_size as u64 == state.size;
        if unused.contains(&number) && directory.stat(number)?.as_ref().is_some_and(is_whole) {
            if is_packed {
                tree.set_place(state.number, DataPlace::Replica(number))?;
                report.returned += 1;
            }
            unused.remove(&number);
            report.files += 1;
            report.settled += usize::from(settle(directory, tree, &state, number)?);
        } else if state.stamp == 0 && matches!(&state.below, BelowState::At(copy) if copy.identity.is_some()) {
            tree.set_place(state.number, DataPlace::BelowOnly)?;
            report.below += 1;
        } else {
            tree.set_content(state.number, 0, state.mtime.into(), DataPlace::None)?;
            report.lost.push(state.number);
        }
    }
    report.packed = packed.len();
    report.removed = unused.len() + directory.packs.retain(&packed);
    unused.into_iter().for_each(|number| directory.remove(number));
    Ok(report)
}

/// Whether a local file was written since the tree got its size and time. `data`: directory of the local files.
pub(crate) fn is_unsettled(data: &Path, state: &NodeState) -> bool {
    let DataPlace::Replica(number) = state.data else { return false };
    let Ok(stat) = rustix::fs::lstat(data.join(name_of(number))) else { return false };
    let mtime = mtime_of(&stat);
    stat.st_size as u64 != state.size || mtime != UNWRITTEN && mtime != Timestamp::from(state.mtime)
}

/// Brings size and time of a local file into the tree. Returns whether it was written since the tree got them.
fn settle(directory: &LocalDirectory, tree: &DelegatedTree, state: &NodeState, number: u64) -> io::Result<bool> {
    let Some(stat) = directory.stat(number)? else { return Ok(false) };
    let (size, mtime, noted) = (stat.st_size as u64, mtime_of(&stat), Timestamp::from(state.mtime));
    if size == state.size && (mtime == UNWRITTEN || mtime == noted) {
        return Ok(false);
    }
    let mtime = if mtime == UNWRITTEN { noted } else { mtime };
    tree.set_content(state.number, size, mtime, DataPlace::Replica(number))?;
    Ok(true)
}
