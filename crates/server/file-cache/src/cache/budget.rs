//! The process's descriptors: their shares, and those of replicas that are kept for the next request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use global_store::descriptors;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::Inner;
use crate::limits::{
    ANCHORS_BY_PATH_SHARE, ANCHORS_KEPT, ANCHORS_SHARE, BATCH_FILES, BATCH_FILES_MIN, BATCHES_SHARE, DESCRIPTORS,
    KEPT_SHARE, POLL, ROOM_TRIES,
};
use crate::residency::{Descriptors, File};

/// The descriptors of this process that no open file holds, divided by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    /// Number of files in memory beyond which files that nobody has open lose their anchors.
    pub(crate) anchors: usize,
    /// Number of such files in a store that does not find files by identity.
    pub(crate) anchors_by_path: usize,
    pub(crate) batch: usize,
}

impl DescriptorBudget {
    /// Divides the descriptors that are free now. `streams` batches run at once. If the system refuses one all the
    /// same, the stage-out fails with `EMFILE` and is tried again.
    pub(crate) fn now(streams: usize) -> DescriptorBudget {
        DescriptorBudget::of(descriptors::spare(), streams)
    }

    pub(crate) fn raise() {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < DESCRIPTORS) {
            limit.current = limit.maximum.map_or(Some(DESCRIPTORS), |most| Some(most.min(DESCRIPTORS)));
            // If the system refuses, the limit stays as it is.
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }

    fn of(descriptors: u64, streams: usize) -> DescriptorBudget {
        let share = |divisor: u64, most: usize| usize::try_from(descriptors / divisor).unwrap_or(most).min(most);
        let batch = share(BATCHES_SHARE * streams.clamp(1, 64) as u64, BATCH_FILES);
        DescriptorBudget {
            anchors: share(ANCHORS_SHARE, ANCHORS_KEPT),
            anchors_by_path: share(ANCHORS_BY_PATH_SHARE, usize::MAX),
            batch: batch.max(BATCH_FILES_MIN),
        }
    }
}

impl Inner {
    /// Counts a replica's descriptor that stays open for the next request. When the bound is reached, all are closed.
    /// No `live` lock may be held.
    pub(crate) fn keeps_one(&self) {
        let most = descriptors::spare() / KEPT_SHARE;
        if self.counters.kept.fetch_add(1, Ordering::Relaxed) >= most
            && self.counters.kept.swap(0, Ordering::Relaxed) >= most
        {
            self.close_kept();
        }
    }

    /// Closes the descriptors that the next request on each file can open again.
    fn close_kept(&self) {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        let closed: Vec<Descriptors> = files.iter().map(|file| file.live.lock().fds.take_replicas()).collect();
        tracing::debug!(files = files.len(), "closed the replica descriptors of all files: too many were kept open");
        drop(closed);
    }

    /// Lets a stage-out wait a moment while only the last descriptors are left, which requests on open files need.
    pub(crate) fn wait_for_descriptors(&self, interrupted: &dyn Fn() -> bool) {
        if descriptors::are_scarce() {
            self.counters.kept.store(0, Ordering::Relaxed);
            self.close_kept();
        }
        for _ in 0..ROOM_TRIES {
            if self.is_dead() || interrupted() || !descriptors::are_scarce() {
                return;
            }
            concurrency::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared_out_and_many_are_bounded() {
        let many = DescriptorBudget::of(1 << 20, 4);
        assert_eq!(many, DescriptorBudget { anchors: ANCHORS_KEPT, anchors_by_path: 1 << 17, batch: BATCH_FILES });
        for descriptors in [1024, 4096, 16384] {
            let budget = DescriptorBudget::of(descriptors, 4);
            let held = 2 * budget.anchors.max(budget.anchors_by_path) + 3 * 4 * budget.batch;
            assert!(held as u64 <= descriptors / 2, "{budget:?} of {descriptors}");
        }
    }
}
