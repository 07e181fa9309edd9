//! The directory that a thread has made, until its next lookup: the agent looks at what it has made.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use namespace::Inode;

use crate::open_tree::OpenTree;

thread_local! {
    static JUST_MADE: Cell<Option<JustMade>> = const { Cell::new(None) };
}

/// A directory that was made just now.
pub struct JustMade {
    /// Inode number of its parent.
    parent: u64,
    name: OsString,
    /// The tree that it has become.
    pub tree: Option<Arc<OpenTree>>,
}

impl JustMade {
    /// Notes what this thread has made.
    pub fn note(parent: &Inode, name: &OsStr, tree: Option<Arc<OpenTree>>) {
        JUST_MADE.set(Some(JustMade { parent: parent.ino(), name: name.to_os_string(), tree }));
    }

    /// Returns what this thread has made if it has this name, and forgets it.
    pub fn take(parent: &Inode, name: &OsStr) -> Option<JustMade> {
        JUST_MADE.take().filter(|made| made.parent == parent.ino() && made.name == name)
    }
}
