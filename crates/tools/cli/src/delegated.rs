//! Delegated directories of a burst buffer: opening them, and what is told of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::PolicyTable;
use agent::control::{ControlClient, ControlRequest, Reply};
use namespace::Namespace;
use trees::{Holder, LeftTree, Trees, TreesSettings};
use types::{HasErrno, Shown};

use crate::exit::{self, Failure};
use crate::guest::Place;
use crate::serving::{How, agent_id};
use crate::shell;
use crate::window::WindowPlace;

/// The directory in a burst buffer that keeps delegated trees.
pub const TREES: &str = "trees";

/// Opens the delegated trees that an earlier agent left in the burst buffer of a place.
pub fn open(
    place: &Place,
    names: Arc<dyn Namespace>,
    policies: &Arc<PolicyTable>,
    how: &How,
) -> Result<Arc<Trees>, Failure> {
    let (policies, remote_wait) = (Arc::clone(policies), policies.base().remote_wait);
    let settings = TreesSettings {
        namespace: names,
        directory: place.burst_buffer.join(TREES),
        agent: agent_id(),
        policy: Box::new(move |path| policies.for_path(path)),
        recall: Arc::new(move |holder| recall(holder, remote_wait)),
        remote_wait,
        background: !how.idle,
        windows: how.windows.as_ref().is_some_and(WindowPlace::is_asked_for),
    };
    Trees::open(settings).map_err(|e| {
        let failure = Failure::io("open the delegated directories", &e);
        if e.errno() != Some(libc::ETIMEDOUT) {
            return failure;
        }
        let dir = shell::word(&place.dir);
        failure.remedy(format!(
            "where it is held: forebay drain --wait; if its holder does not come back: forebay undelegate {dir}"
        ))
    })
}

/// Asks the holder of a directory for it, if it is an agent of this machine that this user may ask.
fn recall(holder: &Holder, patience: Duration) {
    let (own, tree) = (agent_id(), holder.tree.file_name().and_then(OsStr::to_str));
    let is_here = own.split(' ').next() == Some(&*holder.host);
    let (Some(buffer), Some(tree), true) = (holder.burst_buffer(), tree, is_here) else { return };
    let request = ControlRequest::GiveBack { tree: tree.to_owned() };
    match ControlClient::connect_within(buffer, patience).and_then(|mut agent| agent.request(&request, |_| {})) {
        Ok(Reply::Failed { message, .. }) => {
            tracing::warn!("the holder of a directory does not give it back: {message}")
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the holder of a directory could not be asked for it"),
    }
}

/// Returns what a start tells of trees that could not be opened.
pub fn notes(trees: &Trees, place: &Place) -> Vec<String> {
    let told = trees.notes().into_iter().map(|(path, note)| {
        let path = place.dir.join(path);
        let buffer = shell::word(&place.burst_buffer);
        let note = note.replace("PATH", &shell::word(&path));
        format!("{}: {note} --burst-buffer {buffer}", path.shown())
    });
    told.collect()
}

/// Looks at the delegated trees of a burst buffer without an agent. `Err`: why that is not possible.
pub fn left(buffer: &Path) -> Result<Vec<LeftTree>, String> {
    trees::left(&buffer.join(TREES)).map_err(|error| error.to_string())
}

/// Fails if a killed agent left windows of files in delegated directories, which nobody opens here.
pub fn has_no_windows(buffer: &Path) -> Result<(), Failure> {
    let step = "look for what a killed agent left in windows";
    match agent::has_windows_of(buffer, &trees::is_of_tree).map_err(|e| Failure::io(step, &e))? {
        false => Ok(()),
        true => {
            let message = format!("{} has windows of files in delegated directories", buffer.shown());
            let remedy = format!("to bring to the files what is in them: forebay recover {}", shell::word(buffer));
            Err(Failure::new(exit::UNAVAILABLE, message).remedy(remedy))
        }
    }
}

/// Returns a number of names that wait, in words.
pub fn names_wait(names: u64) -> String {
    if names == 1 { "1 name waits".to_owned() } else { format!("{names} names wait") }
}

/// Describes why a tree that was left cannot be read, and what to do.
pub fn problem(tree: &LeftTree, buffer: &Path) -> Option<String> {
    let what = if tree.path == PathBuf::new() { tree.directory.shown() } else { tree.path.shown() };
    let (id, buffer) = (&tree.id, shell::word(buffer));
    let problem = tree.problem.as_ref()?;
    Some(format!(
        "delegated directory {what}: {problem}; to save its files or give them up: forebay resolve {id} --keep global|both \
         --burst-buffer {buffer}"
    ))
}
