//! Table of the kernel's handles: the open file or directory of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::descriptors::Charge;
use agent::{OpenDirectory, OpenFile};
use concurrency::RwLock;
use fuse_protocol::{Errno, Handle};

use crate::nodes::Known;

/// Open file, with the node through which it was opened.
pub struct FileOf {
    /// Node through which the file was opened.
    pub known: Arc<Known>,
    /// The open file.
    pub open: OpenFile,
    /// Whether the open bypasses a page cache that others may use.
    pub bypasses: bool,
}

/// Open directory, with its node, which stays in use meanwhile.
struct DirectoryOf {
    _known: Arc<Known>,
    _charge: Option<Charge>,
    open: Arc<dyn OpenDirectory>,
}

/// All open files and directories by handle. A number is never used twice.
pub struct DoorHandles {
    last: Arc<AtomicU64>,
    /// Error for an unknown handle. A client of a former server may send handles that are unknown here.
    unknown: Errno,
    files: RwLock<HashMap<Handle, Arc<FileOf>>>,
    directories: RwLock<HashMap<Handle, DirectoryOf>>,
}

impl Default for DoorHandles {
    fn default() -> DoorHandles {
        DoorHandles::of(Arc::default(), Errno::EBADF)
    }
}

impl DoorHandles {
    /// Creates a table whose numbers come from `last`, which others may share. `unknown`: the error for unknown
    /// handles.
    pub fn of(last: Arc<AtomicU64>, unknown: Errno) -> DoorHandles {
        DoorHandles { last, unknown, files: RwLock::default(), directories: RwLock::default() }
    }

    fn mint(&self) -> Handle {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds an open file and returns its new handle.
    pub fn add_file(&self, file: FileOf) -> Handle {
        let handle = self.mint();
        self.files.write().insert(handle, Arc::new(file));
        handle
    }

    /// Returns the open file of a handle. Errors: `EBADF`, or `ESTALE` for another machine's kernel, if there is
    /// none.
    pub fn file(&self, handle: Handle) -> Result<Arc<FileOf>, Errno> {
        self.files.read().get(&handle).cloned().ok_or(self.unknown)
    }

    /// Removes an open file and returns it.
    pub fn remove_file(&self, handle: Handle) -> Option<Arc<FileOf>> {
        self.files.write().remove(&handle)
    }

    /// Returns the error for unknown handles: `EBADF`, or `ESTALE` for another machine's kernel.
    pub fn unknown(&self) -> Errno {
        self.unknown
    }

    /// Returns whether a handle is known.
    pub fn has(&self, handle: Handle) -> bool {
        self.files.read().contains_key(&handle) || self.directories.read().contains_key(&handle)
    }

    /// Adds an open file under the handle that an earlier process gave.
    pub fn reclaim_file(&self, handle: Handle, file: FileOf) {
        self.files.write().insert(handle, Arc::new(file));
    }

    /// Adds an open directory under the handle that an earlier process gave.
    pub fn reclaim_directory(
        &self,
        handle: Handle,
        known: Arc<Known>,
        directory: Box<dyn OpenDirectory>,
        charge: Option<Charge>,
    ) {
        let directory = DirectoryOf { _known: known, _charge: charge, open: Arc::from(directory) };
        self.directories.write().insert(handle, directory);
    }

    /// Adds an open directory and returns its new handle.
    pub fn add_directory(
        &self,
        known: Arc<Known>,
        directory: Box<dyn OpenDirectory>,
        charge: Option<Charge>,
    ) -> Handle {
        let handle = self.mint();
        self.reclaim_directory(handle, known, directory, charge);
        handle
    }

    /// Returns the open directory of a handle. Errors as for files.
    pub fn directory(&self, handle: Handle) -> Result<Arc<dyn OpenDirectory>, Errno> {
        self.directories.read().get(&handle).map(|directory| directory.open.clone()).ok_or(self.unknown)
    }

    /// Removes an open directory.
    pub fn remove_directory(&self, handle: Handle) {
        let gone = self.directories.write().remove(&handle);
        drop(gone);
    }

    /// Returns an open file of the node whose data is an outdated version, if any. Searches all files, so it is
    /// called for retired nodes only.
    pub fn outdated(&self, known: &Known) -> Option<Arc<FileOf>> {
        let files = self.files.read();
        let mut of_node = files.values().filter(|file| file.known.id == known.id);
        of_node.find(|file| !file.open.data().is_current).cloned()
    }

    /// Returns an open file of the node whose data is in a complete replica, if any. Searches all files, so it is
    /// called only while the global store hangs.
    pub fn of_replica(&self, known: &Known) -> Option<Arc<FileOf>> {
        self.of_replica_where(known, |_| true)
    }

    /// Returns an open file of the node in a complete replica for which `is` holds, if any. Searches all files.
    pub fn of_replica_where(&self, known: &Known, is: impl Fn(&OpenFile) -> bool) -> Option<Arc<FileOf>> {
        let files = self.files.read();
        let mut of_node = files.values().filter(|file| file.known.id == known.id);
        of_node.find(|file| file.open.version().is_some() && is(&file.open)).cloned()
    }

    /// Returns the handles of all open files.
    pub fn all_files(&self) -> Vec<Handle> {
        self.files.read().keys().copied().collect()
    }

    /// Removes all open directories.
    pub fn clear_directories(&self) {
        let gone = std::mem::take(&mut *self.directories.write());
        drop(gone);
    }
}
