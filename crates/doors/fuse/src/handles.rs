//! Which open file or directory each handle of the kernel means.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::descriptors::Charge;
use agent::{OpenDirectory, OpenFile};
use concurrency::RwLock;
use fuse_protocol::{Errno, Handle};

use crate::nodes::Known;

/// An open file with the node through which it was opened.
pub struct FileOf {
    /// The node.
    pub known: Arc<Known>,
    /// The open file.
    pub open: OpenFile,
    /// It was answered past a page cache that others may use.
    pub bypasses: bool,
}

/// An open directory with its node, which is in use as long.
struct DirectoryOf {
    _known: Arc<Known>,
    _charge: Option<Charge>,
    open: Arc<OpenDirectory>,
}

/// All handles. A number is never used twice.
pub struct DoorHandles {
    last: Arc<AtomicU64>,
    /// What a number says that is none of ours: a client of a former server asks with numbers of that.
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
    /// With numbers that others may mint too.
    pub fn of(last: Arc<AtomicU64>, unknown: Errno) -> DoorHandles {
        DoorHandles { last, unknown, files: RwLock::default(), directories: RwLock::default() }
    }

    fn mint(&self) -> Handle {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Keeps an open file.
    pub fn add_file(&self, file: FileOf) -> Handle {
        let handle = self.mint();
        self.files.write().insert(handle, Arc::new(file));
        handle
    }

    /// The open file of a handle; `EBADF`, or for another machine's kernel `ESTALE`, if there is none.
    pub fn file(&self, handle: Handle) -> Result<Arc<FileOf>, Errno> {
        self.files.read().get(&handle).cloned().ok_or(self.unknown)
    }

    /// Lets an open file go.
    pub fn remove_file(&self, handle: Handle) -> Option<Arc<FileOf>> {
        self.files.write().remove(&handle)
    }

    /// What is said of a handle that means nothing: `EBADF`, or to another machine's kernel `ESTALE`.
    pub fn unknown(&self) -> Errno {
        self.unknown
    }

    /// Whether a handle means something.
    pub fn has(&self, handle: Handle) -> bool {
        self.files.read().contains_key(&handle) || self.directories.read().contains_key(&handle)
    }

    /// Keeps an open file under the handle that an earlier process gave.
    pub fn reclaim_file(&self, handle: Handle, file: FileOf) {
        self.files.write().insert(handle, Arc::new(file));
    }

    /// The same of a directory.
    pub fn reclaim_directory(
        &self,
        handle: Handle,
        known: Arc<Known>,
        directory: OpenDirectory,
        charge: Option<Charge>,
    ) {
        let directory = DirectoryOf { _known: known, _charge: charge, open: Arc::new(directory) };
        self.directories.write().insert(handle, directory);
    }

    /// Keeps an open directory.
    pub fn add_directory(&self, known: Arc<Known>, directory: OpenDirectory, charge: Option<Charge>) -> Handle {
        let handle = self.mint();
        self.reclaim_directory(handle, known, directory, charge);
        handle
    }

    /// The open directory of a handle; errors as for files.
    pub fn directory(&self, handle: Handle) -> Result<Arc<OpenDirectory>, Errno> {
        self.directories.read().get(&handle).map(|directory| directory.open.clone()).ok_or(self.unknown)
    }

    /// Lets an open directory go.
    pub fn remove_directory(&self, handle: Handle) {
        let gone = self.directories.write().remove(&handle);
        drop(gone);
    }

    /// An open file of a node with a version of the data that is not the newest. Looks at all: for retired nodes only.
    pub fn outdated(&self, known: &Known) -> Option<Arc<FileOf>> {
        let files = self.files.read();
        let mut of_node = files.values().filter(|file| file.known.id == known.id);
        of_node.find(|file| !file.open.data().is_current()).cloned()
    }

    /// An open file of a node whose data is in a complete replica. Looks at all: while the global store hangs only.
    pub fn of_replica(&self, known: &Known) -> Option<Arc<FileOf>> {
        self.of_replica_where(known, |_| true)
    }

    /// The same of one that is so.
    pub fn of_replica_where(&self, known: &Known, is: impl Fn(&OpenFile) -> bool) -> Option<Arc<FileOf>> {
        let files = self.files.read();
        let mut of_node = files.values().filter(|file| file.known.id == known.id);
        of_node.find(|file| file.open.version().is_some() && is(&file.open)).cloned()
    }

    /// All open files.
    pub fn all_files(&self) -> Vec<Handle> {
        self.files.read().keys().copied().collect()
    }

    /// Lets all open directories go.
    pub fn clear_directories(&self) {
        let gone = std::mem::take(&mut *self.directories.write());
        drop(gone);
    }
}
