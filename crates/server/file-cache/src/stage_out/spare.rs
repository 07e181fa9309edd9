//! Descriptors of replicas: kept for the next request while there are plenty, and released by stage-outs when there
//! are few.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use global_store::descriptors;

use super::StageOutResult;
use crate::cache::Inner;
use crate::errors::{clone_error, errno};
use crate::limits::{KEPT_SHARE, POLL, ROOM_ROUNDS, ROOM_TRIES};
use crate::residency::{Descriptors, File};

impl Inner {
    /// Counts a replica's descriptor that stays open for the next request. When the bound is reached, all are closed.
    /// No `live` lock may be held.
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
        tracing::debug!(files = files.len(), "closed the replica descriptors of all files: too many were kept open");
        drop(closed);
    }

    /// Stages files out; their drain locks are held. If the process has no descriptors for all of them at once, the
    /// rest follows when the first have released theirs. A file that found no descriptor is tried again, alone.
    pub(crate) fn drain_locked(
        &self,
        files: &[&Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<StageOutResult> {
        let _working = self.draining.enter(&self.counters.out_us);
        let mut ends = Vec::new();
        while ends.len() < files.len() {
            ends.append(&mut self.drain_first(&files[ends.len()..], patient, interrupted));
        }
        let mut tries = ROOM_ROUNDS;
        for (file, end) in files.iter().zip(&mut ends) {
            while end.lacks_descriptors() && tries > 0 && !interrupted() {
                tries -= 1;
                self.wait_for_descriptors(interrupted);
                *end = self.drain_first(&[file], patient, interrupted).pop().unwrap_or(StageOutResult::Nothing);
            }
            match end {
                StageOutResult::Stuck { error, .. } if errno(error) == libc::EMFILE => {
                    let _gate = file.gate();
                    *end = self.count_failure(file, clone_error(error));
                }
                // Other threads release theirs.
                _ => tries = ROOM_ROUNDS,
            }
        }
        ends
    }

    /// Lets a stage-out wait a moment while only the last descriptors are left, which requests on open files need.
    pub(crate) fn wait_for_descriptors(&self, interrupted: &dyn Fn() -> bool) {
        if descriptors::are_scarce() {
            self.kept.store(0, Ordering::Relaxed);
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
