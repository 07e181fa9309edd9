//! Trees in a burst buffer that nobody has open: which names wait in them.

use std::io;
use std::path::{Path, PathBuf};

use delegation::NodeState;
use delegation::log::{MountedLogDirectory, read_log};
use types::{Identity, Step, reported};

use crate::files::is_unsettled;
use crate::open_tree::{DATA, LOG, id_of};
use crate::record::TreeRecord;

/// A tree that an agent left.
#[derive(Debug)]
pub struct LeftTree {
    /// Name of the tree in commands.
    pub id: Identity,
    /// Directory of the tree in the burst buffer.
    pub directory: PathBuf,
    /// Path of its root below the accelerated directory, as last known.
    pub path: PathBuf,
    /// Files and directories of which the global store lacks changes, as far as can be read.
    pub waiting: u64,
    /// Why not all can be read.
    pub problem: Option<String>,
}

/// Looks at the trees in a directory of a burst buffer, and changes nothing. Errors: the directory cannot be listed.
pub fn left(trees: &Path) -> io::Result<Vec<LeftTree>> {
    let listed = match std::fs::read_dir(trees) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.step("list the delegated trees")?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let directory = entry?.path();
        let (path, mut problem) = match TreeRecord::read(&directory) {
            Ok(record) => (record.map(|record| record.path).unwrap_or_default(), None),
            Err(error) => (PathBuf::new(), Some(error.to_string())),
        };
        let states = states_of(&directory).unwrap_or_else(|error| {
            problem = Some(error.to_string());
            Vec::new()
        });
        // Of what cannot be read each local file may wait.
        let waiting = match &problem {
            Some(_) => waiting_of(&directory, &states).max(local_files(&directory)).max(1),
            None => waiting_of(&directory, &states),
        };
        found.push(LeftTree { id: id_of(&directory), directory, path, waiting, problem });
    }
    found.sort_by(|one, other| one.directory.cmp(&other.directory));
    Ok(found)
}

/// Number of local files with content.
fn local_files(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory.join(DATA)).into_iter().flatten().flatten();
    files.filter(|file| file.metadata().is_ok_and(|found| found.len() > 0)).count() as u64
}

/// Returns the states in the log of a tree that is not open, as far as they have a way to its root. Errors: those of the files;
/// `EUCLEAN` if nothing of the log can be used.
pub(crate) fn states_of(directory: &Path) -> io::Result<Vec<NodeState>> {
    let log = directory.join(LOG);
    if !log.try_exists()? {
        return Ok(Vec::new());
    }
    let mut content = read_log(&MountedLogDirectory::new(log)?)?;
    if content.states.last == 0 && content.damage.is_some() {
        return Err(reported(libc::EUCLEAN, "the name log's first file is damaged"));
    }
    content.states.prune();
    Ok(content.states.nodes.into_values().map(|node| *node.state).collect())
}

/// Number of nodes that the global store lacks changes of, also of those that were written until the agent died.
pub(crate) fn waiting_of(directory: &Path, states: &[NodeState]) -> u64 {
    let data = directory.join(DATA);
    states.iter().filter(|state| state.stamp != 0 || is_unsettled(&data, state)).count() as u64
}
