//! What is open, by the number that the kernel gives back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse_protocol::{Errno, Handle};
use parking_lot::RwLock;

/// Open things of one kind; numbers are never used twice.
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

    /// `EBADF` when it is not open.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>, Errno> {
        self.open.read().get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// Closes it, once those who use it have ended.
    pub fn remove(&self, handle: Handle) {
        let thing = self.open.write().remove(&handle);
        // Closing may take its time: not under the lock.
        drop(thing);
    }
}
