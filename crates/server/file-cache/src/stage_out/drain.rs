//! Stage-outs by background workers, and by commands that wait for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use concurrency::MutexGuard;

use super::{StageOutResult, stuck};
use crate::cache::{DescriptorBudget, Inner};
use crate::errors::{clone_error, errno};
use crate::limits::{BATCH_BYTES, POLL, ROOM_ROUNDS, SMALL_BYTES, TURN_MAX, TURN_PAUSE_MAX};
use crate::residency::File;
use data_store::{DrainProgress, Residency, Stuck};

/// Number of passes over files that changed while they were copied and that nobody writes now.
const PASSES: usize = 3;

impl Inner {
    pub(crate) fn drain_in_background(&self) {
        while self.queue.wait(self.now()) {
            let now = self.now();
            let Some(first) = self.queue.pop(now, &mut |_| true) else { continue };
            if first.live.lock().waits_for_close() {
                continue;
            }
            let mut bytes = self.replica_size(&first);
            let small = bytes <= SMALL_BYTES;
            if small && !self.take_turn(now) {
                self.queue.push(&first, Duration::ZERO);
                self.queue.rest(POLL);
                continue;
            }
            let mut batch = vec![first];
            if small {
                let mut fits = |file: &Arc<File>| {
                    let size = self.replica_size(file);
                    let fits =
                        !file.live.lock().waits_for_close() && size <= SMALL_BYTES && bytes + size <= BATCH_BYTES;
                    bytes += if fits { size } else { 0 };
                    fits
                };
                let most = DescriptorBudget::now(self.settings.streams).batch;
                while batch.len() < most
                    && let Some(file) = self.queue.pop(now, &mut fits)
                {
                    batch.push(file);
                }
            }
            let skipped = self.drain_batch(&batch, true, &|| self.is_dead(), &mut |_, _| {});
            skipped.iter().for_each(|file| self.queue.push(file, now + POLL));
            if small {
                let took = self.now().saturating_sub(now);
                *self.gathering.turn.lock() = self.now().saturating_add(took.min(TURN_PAUSE_MAX));
            }
        }
    }

    /// Returns whether this worker may take small files at `now`. If so, the others wait for it.
    fn take_turn(&self, now: Duration) -> bool {
        let mut turn = self.gathering.turn.lock();
        let free = now >= *turn;
        if free {
            *turn = now.saturating_add(TURN_MAX);
        }
        free
    }

    /// Stages out those of the files that nobody else is staging out, and returns the others.
    pub(crate) fn drain_batch(
        &self,
        files: &[Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Arc<File>, StageOutResult),
    ) -> Vec<Arc<File>> {
        let mut skipped = Vec::new();
        let mut held: Vec<&Arc<File>> = Vec::new();
        let mut locks: Vec<MutexGuard<'_, ()>> = Vec::new();
        for file in files {
            match file.drain.try_lock() {
                Some(lock) => {
                    locks.push(lock);
                    held.push(file);
                }
                None => skipped.push(Arc::clone(file)),
            }
        }
        let ends = if held.is_empty() { Vec::new() } else { self.drain_locked(&held, patient, interrupted) };
        drop(locks);
        for (file, end) in held.iter().zip(ends) {
            self.requeue(file, &end);
            tell(file, end);
        }
        skipped
    }

    /// Stages one file out in this thread, after a stage-out of it that is under way.
    pub(crate) fn drain_one(&self, file: &Arc<File>, interrupted: &dyn Fn() -> bool) -> StageOutResult {
        let lock = loop {
            if let Some(lock) = file.drain.try_lock_for(POLL) {
                break lock;
            }
            if interrupted() {
                return stuck(Residency::Draining, io::Error::from_raw_os_error(libc::EINTR));
            }
        };
        let end = self.drain_locked(&[file], false, interrupted).pop().unwrap_or(StageOutResult::Nothing);
        drop(lock);
        self.requeue(file, &end);
        end
    }

    /// Stages one file out and waits. Errors: the file's state and reason if it stays dirty.
    pub(crate) fn drain_for(&self, file: &Arc<File>, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        match self.drain_one(file, interrupted) {
            StageOutResult::Stuck { state, orphaned, error } => Err(self.stuck(file, state, orphaned, &error)),
            StageOutResult::Clean | StageOutResult::StillDirty | StageOutResult::Nothing => Ok(()),
        }
    }

    /// Stages everything out. Returns the files that are still dirty.
    pub(crate) fn drain_everything(
        self: &Arc<Inner>,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<Stuck> {
        let mut state = DrainProgress::default();
        let mut files = self.unclean_files();
        let mut stuck = Vec::new();
        for pass in 0..PASSES {
            let again = self.drain_pass(&files, &mut state, progress, interrupted, &mut stuck);
            let last = pass + 1 == PASSES || again.is_empty() || interrupted();
            if last {
                let busy = io::Error::from_raw_os_error(libc::EBUSY);
                stuck.extend(again.iter().map(|file| self.stuck(file, Residency::Dirty, false, &busy)));
                break;
            }
            files = again;
        }
        self.settle_open_reads_unless(interrupted);
        stuck
    }

    /// Stages files out; their drain locks are held. If the process has no descriptors for all of them at once, the
    /// rest follows when the first have released theirs. A file that found no descriptor is tried again, alone.
    pub(crate) fn drain_locked(
        &self,
        files: &[&Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<StageOutResult> {
        let _working = self.counters.draining.enter();
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
}
