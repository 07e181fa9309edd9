//! Files of trees that cannot be opened: what a killed agent left in windows comes into them nevertheless.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use concurrency::Mutex;
use delegation::log::{MountedLogDirectory, read_log};
use delegation::{DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind, NodeNumber, NodeState};
use global_store::{Access, StoreFile};
use namespace::FileSystemSpace;
use rustix::io::Errno;
use types::reported;

use crate::files::TreeFiles;
use crate::limits;
use crate::open_tree::{DATA, LOG};
use crate::unopened::Unopened;

/// Log and local files of a tree, without the global store.
pub(crate) struct LeftFiles {
    pub tree: DelegatedTree,
    pub files: TreeFiles,
}

/// Such trees, by the ids of their logs.
pub(crate) type OpenLeft = Mutex<HashMap<[u8; 16], Arc<LeftFiles>>>;

/// A global store that has nothing.
struct NothingBelow;

impl FilesBelow for NothingBelow {
    fn open(&self, _: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        Err(Errno::NOENT.into())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace::default())
    }
}

impl Drop for LeftFiles {
    fn drop(&mut self) {
        self.files.close();
    }
}

impl Unopened {
    /// Returns the id of the tree's log; `None` if it never had one. `EUCLEAN` if that cannot be told.
    pub fn log_id(&self) -> io::Result<Option<[u8; 16]>> {
        let log = self.directory.join(LOG);
        if !log.try_exists()? {
            return Ok(None);
        }
        let content = read_log(&MountedLogDirectory::new(log)?)?;
        match content.log {
            None if content.damage.is_some() => Err(reported(libc::EUCLEAN, "the name log is damaged")),
            id => Ok(id),
        }
    }

    /// Opens log and local files, without the global store.
    pub fn open_files(&self) -> io::Result<LeftFiles> {
        let log = MountedLogDirectory::new(self.directory.join(LOG))?;
        let settings = DelegationSettings { log_file_bytes: limits::LOG_FILE_BYTES, ..DelegationSettings::default() };
        // The log has a root.
        let root = NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o700, 0, 0), Moment(0));
        let (tree, _) = DelegatedTree::open(Box::new(log), Arc::new(NothingBelow), settings, root)?;
        let (files, _) = TreeFiles::open(&self.directory.join(DATA), tree.share())?;
        Ok(LeftFiles { tree, files })
    }
}
