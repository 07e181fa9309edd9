//! Who stages out: the background workers, and commands that wait for it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use types::Identity;

use crate::api::{DrainProgress, Residency, Stuck};
use crate::cache::Inner;
use crate::file::File;
use crate::limits::{BATCH_BYTES, DRAIN_BATCH_FILES_MIN, POLL, SMALL_BYTES, TURN_MAX, TURN_PAUSE_MAX};
use crate::stage_out::{End, clone_error};

/// Files with their sizes, small ones by the batch.
type Batches = VecDeque<Vec<(Arc<File>, u64)>>;

/// The files that a drain is at, with their sizes.
#[derive(Default)]
struct UnderWay(Mutex<HashMap<Identity, (Arc<File>, u64)>>);

impl UnderWay {
    fn begin(&self, batch: &[(Arc<File>, u64)]) {
        let one = |(file, size): &(Arc<File>, u64)| (file.identity().clone(), (Arc::clone(file), *size));
        self.0.lock().extend(batch.iter().map(one));
    }

    /// Its size.
    fn end(&self, file: &File) -> u64 {
        self.0.lock().remove(file.identity()).map_or(0, |(_, size)| size)
    }

    /// Bytes of them that have been passed.
    fn passed(&self) -> u64 {
        self.0.lock().values().map(|(file, size)| file.passed.load(Ordering::Relaxed).min(*size)).sum()
    }
}

/// Passes over files that changed while they were copied and that nobody writes now.
const PASSES: usize = 3;

impl Inner {
    pub(crate) fn replica_size(&self, file: &File) -> u64 {
        let version = file.live.lock().version;
        version.and_then(|version| self.replicas.stat(version).ok()).map_or(0, |stat| stat.st_size as u64)
    }

    /// The body of a stage-out worker.
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
                while batch.len() < self.budget.batch
                    && let Some(file) = self.queue.pop(now, &mut fits)
                {
                    batch.push(file);
                }
            }
            let skipped = self.drain_batch(&batch, true, &|| self.is_dead(), &mut |_, _| {});
            skipped.iter().for_each(|file| self.queue.push(file, now + POLL));
            if small {
                let took = self.now().saturating_sub(now);
                *self.turn.lock() = self.now().saturating_add(took.min(TURN_PAUSE_MAX));
            }
        }
    }

    /// Whether this worker may take small files at `now`; the others then wait for it.
    fn take_turn(&self, now: Duration) -> bool {
        let mut turn = self.turn.lock();
        let free = now >= *turn;
        if free {
            *turn = now.saturating_add(TURN_MAX);
        }
        free
    }

    /// Stages out those of the files that nobody else stages out now; returns the others. Those that are published come first, each
    /// on its own: that takes long, and nobody's locks are held meanwhile.
    fn drain_batch(
        &self,
        files: &[Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Arc<File>, &End),
    ) -> Vec<Arc<File>> {
        let published = |file: &Arc<File>| self.is_published(&file.live.lock());
        if !files.iter().any(published) {
            return self.drain_together(files, patient, interrupted, tell);
        }
        let (apart, together): (Vec<_>, Vec<_>) = files.iter().cloned().partition(published);
        let each = apart.iter().map(std::slice::from_ref);
        let mut skipped: Vec<_> = each.flat_map(|file| self.drain_together(file, patient, interrupted, tell)).collect();
        skipped.append(&mut self.drain_together(&together, patient, interrupted, tell));
        skipped
    }

    fn drain_together(
        &self,
        files: &[Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Arc<File>, &End),
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
        for (file, end) in held.iter().zip(&ends) {
            self.requeue(file, end);
            tell(file, end);
        }
        skipped
    }

    /// Stages one file out in this thread, after whoever does now.
    pub(crate) fn drain_one(&self, file: &Arc<File>, interrupted: &dyn Fn() -> bool) -> End {
        let lock = loop {
            if let Some(lock) = file.drain.try_lock_for(POLL) {
                break lock;
            }
            if interrupted() {
                let error = io::Error::from_raw_os_error(libc::EINTR);
                return End::Stuck { state: Residency::Draining, orphaned: false, error };
            }
        };
        let end = self.drain_locked(&[file], false, interrupted).pop().unwrap_or(End::Nothing);
        drop(lock);
        self.requeue(file, &end);
        end
    }

    /// Stages one file out and waits.
    pub(crate) fn drain_for(&self, file: &Arc<File>, interrupted: &dyn Fn() -> bool) -> Result<(), Stuck> {
        match self.drain_one(file, interrupted) {
            End::Stuck { state, orphaned, error } => Err(self.stuck(file, state, orphaned, &error)),
            End::Clean | End::StillDirty | End::Nothing => Ok(()),
        }
    }

    pub(crate) fn unclean_files(&self) -> Vec<Arc<File>> {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        files.into_iter().filter(|file| file.live.lock().is_unclean()).collect()
    }

    /// Stages out everything; returns what still is not.
    pub(crate) fn drain_everything(
        &self,
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
        self.settle_open_reads();
        stuck
    }

    /// Returns the files that are copied and still dirty.
    fn drain_pass(
        &self,
        files: &[Arc<File>],
        state: &mut DrainProgress,
        progress: &mut dyn FnMut(DrainProgress),
        interrupted: &dyn Fn() -> bool,
        stuck: &mut Vec<Stuck>,
    ) -> Vec<Arc<File>> {
        let (batches, bytes) = self.batches(files);
        state.files_left = files.len() as u64;
        state.bytes_left = bytes;
        progress(*state);
        let (stop, under_way) = (AtomicBool::new(false), UnderWay::default());
        let work = Mutex::new(batches);
        let (tell, told) = mpsc::channel::<(Arc<File>, End)>();
        let mut again = Vec::new();
        let mut told_at = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.settings.streams.clamp(1, 64) {
                let (tell, work, stop, under_way) = (tell.clone(), &work, &stop, &under_way);
                scope.spawn(move || self.drain_share(work, under_way, stop, &tell));
            }
            drop(tell);
            loop {
                match told.recv_timeout(POLL) {
                    Ok((file, end)) => {
                        state.files_left = state.files_left.saturating_sub(1);
                        state.bytes_left = state.bytes_left.saturating_sub(under_way.end(&file));
                        match end {
                            End::Clean | End::Nothing => state.files_done += 1,
                            End::StillDirty => again.push(file),
                            End::Stuck { state, orphaned, error } => {
                                stuck.push(self.stuck(&file, state, orphaned, &error))
                            }
                        }
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
                // A word for each of many small files would cost more than the file.
                if told_at.elapsed() >= POLL {
                    told_at = Instant::now();
                    let bytes_left = state.bytes_left.saturating_sub(under_way.passed());
                    progress(DrainProgress { bytes_left, ..*state });
                    if interrupted() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
        progress(*state);
        again
    }

    fn drain_share(
        &self,
        work: &Mutex<Batches>,
        under_way: &UnderWay,
        stop: &AtomicBool,
        tell: &mpsc::Sender<(Arc<File>, End)>,
    ) {
        let interrupted = || stop.load(Ordering::Relaxed);
        let next = || work.lock().pop_front();
        while let Some(batch) = next() {
            under_way.begin(&batch);
            let files: Vec<Arc<File>> = batch.into_iter().map(|(file, _)| file).collect();
            let mut done = Vec::new();
            let skipped = self.drain_batch(&files, false, &interrupted, &mut |file, end| {
                done.push((Arc::clone(file), copy_of(end)));
            });
            for file in skipped {
                let end = self.drain_one(&file, &interrupted);
                done.push((file, end));
            }
            // The receiver lives as long as the scope.
            done.into_iter().for_each(|ended| _ = tell.send(ended));
        }
    }

    /// Small files by the batch, large ones alone, and the sum of their sizes.
    fn batches(&self, files: &[Arc<File>]) -> (Batches, u64) {
        let (mut batches, mut batch, mut held, mut total) = (VecDeque::new(), Vec::new(), 0, 0);
        // Two for each stream: while one is synced another is copied, and none waits long for the last.
        let share = files.len() / (2 * self.settings.streams.clamp(1, 64));
        let most = share.max(DRAIN_BATCH_FILES_MIN).min(self.budget.batch);
        for file in files {
            let size = self.replica_size(file);
            total += size;
            if size > SMALL_BYTES {
                batches.push_back(vec![(Arc::clone(file), size)]);
                continue;
            }
            if batch.len() == most || held + size > BATCH_BYTES {
                batches.push_back(std::mem::take(&mut batch));
                held = 0;
            }
            held += size;
            batch.push((Arc::clone(file), size));
        }
        if !batch.is_empty() {
            batches.push_back(batch);
        }
        (batches, total)
    }
}

fn copy_of(end: &End) -> End {
    match end {
        End::Clean => End::Clean,
        End::StillDirty => End::StillDirty,
        End::Nothing => End::Nothing,
        End::Stuck { state, orphaned, error } => {
            End::Stuck { state: *state, orphaned: *orphaned, error: clone_error(error) }
        }
    }
}
