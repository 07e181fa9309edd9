//! Descriptors of replicas, which are kept for the next request while there are plenty.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use global_store::descriptors;

use crate::cache::Inner;
use crate::file::{Descriptors, File};
use crate::limits::{KEPT_SHARE, POLL, ROOM_TRIES};

impl Inner {
    /// A descriptor of a replica stays open for the next request. When as many were kept as there is room for, all are closed. No `live`
    /// lock may be held.
    pub(crate) fn keeps_one(&self) {
        let most = descriptors::spare() / KEPT_SHARE;
        if self.kept.fetch_add(1, Ordering::Relaxed) >= most && self.kept.swap(0, Ordering::Relaxed) >= most {
            self.close_kept();
        }
    }

    /// Closes the descriptors that the next request on each file can open again.
    fn close_kept(&self) {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        let closed: Vec<Descriptors> = files.iter().map(|file| file.live.lock().fds.take_replicas()).collect();
        tracing::debug!(files = files.len(), "many descriptors of replicas were kept: they are closed");
        drop(closed);
    }

    /// A batch of a stage-out waits a moment while only the last descriptors are left: requests on open files need them.
    pub(crate) fn wait_for_descriptors(&self, last: &OwnedFd) {
        let mut last = last.try_clone();
        for _ in 0..ROOM_TRIES {
            if self.is_dead() || last.as_ref().is_ok_and(|fd| !descriptors::is_last(fd)) {
                return;
            }
            std::thread::sleep(POLL);
            // The lowest that is free.
            last = last.and_then(|fd| fd.try_clone());
        }
    }
}
