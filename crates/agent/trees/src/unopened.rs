//! Trees of a burst buffer that could not be opened.

use std::io;
use std::path::PathBuf;

use types::{HasErrno, Identity};

use crate::open_tree::id_of;
use crate::record::TreeRecord;

/// A tree that could not be opened.
pub(crate) struct Unopened {
    pub directory: PathBuf,
    /// `None` if it cannot be read.
    pub record: Option<TreeRecord>,
    pub error: io::Error,
}

impl Unopened {
    /// Whether commands call the tree, or its directory, so.
    pub fn is_named(&self, identity: &Identity) -> bool {
        let root = self.record.as_ref().map(|record| &record.identity);
        id_of(&self.directory) == *identity || root == Some(identity)
    }

    /// Path of the directory below the accelerated directory, as last known.
    pub fn path(&self) -> PathBuf {
        self.record.as_ref().map(|record| record.path.clone()).unwrap_or_default()
    }

    /// Whether the tree could be used if the mark of its directory were set again.
    pub fn lacks_mark(&self) -> bool {
        self.error.errno() == Some(libc::EBUSY)
    }
}

/// Whether an identity names a file or directory of a delegated tree.
pub fn is_of_tree(identity: &Identity) -> bool {
    delegation::node_of_key(identity).is_some()
}
