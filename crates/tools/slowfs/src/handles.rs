//! Open files and directories, by the handle that the kernel uses for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse_protocol::{Errno, Handle};
use parking_lot::RwLock;

/// Table of open objects of one kind. Handles are never reused.
pub struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<Handle, Arc<T>>>,
}

impl<T> Handles<T> {
    pub fn new() -> Handles<T> {
        Handles { next: AtomicU64::new(1), open: RwLock::default() }
    }

    pub fn insert(&self, thing: T) -> Handle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().insert(handle, Arc::new(thing));
        handle
    }

    /// Returns the object of a handle. Errors: `EBADF` if it is not open.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>, Errno> {
        self.open.read().get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// Removes a handle. The object is closed when its last user has finished.
    pub fn remove(&self, handle: Handle) {
        let thing = self.open.write().remove(&handle);
        // Closing may take time, so the lock is not held here.
        drop(thing);
    }
}
