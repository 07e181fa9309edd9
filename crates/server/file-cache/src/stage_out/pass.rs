//! One pass of a drain over many files.
//!
//! The threads of a pass belong to the cache. A caller that gives the drain up does not wait for files that a store
//! holds up, for nobody can end a call to a store that does not answer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};

use concurrency::{Instant, Mutex};
use types::Identity;

use super::StageOutResult;
use crate::cache::{DescriptorBudget, Inner};
use crate::limits::{BATCH_BYTES, DRAIN_BATCH_FILES_MIN, GIVEN_UP_WAIT, POLL, SMALL_BYTES};
use crate::residency::File;
use data_store::{DrainProgress, Residency, Stuck};

/// Batches of files with their sizes: small files together, large ones alone.
type Batches = VecDeque<Vec<(Arc<File>, u64)>>;

/// The files that a drain is working on, with their sizes.
#[derive(Default)]
struct UnderWay(Mutex<HashMap<Identity, (Arc<File>, u64)>>);

impl UnderWay {
    fn begin(&self, batch: &[(Arc<File>, u64)]) {
        let one = |(file, size): &(Arc<File>, u64)| (file.identity.clone(), (Arc::clone(file), *size));
        self.0.lock().extend(batch.iter().map(one));
    }

    /// Takes the file out. Returns its size in bytes.
    fn end(&self, file: &File) -> u64 {
        self.0.lock().remove(&file.identity).map_or(0, |(_, size)| size)
    }

    /// Returns how many bytes of these files have been passed.
    fn passed(&self) -> u64 {
        self.0.lock().values().map(|(file, size)| file.passed.load(Ordering::Relaxed).min(*size)).sum()
    }
}

/// State shared by the threads of a pass and the caller that waits for them.
#[derive(Default)]
struct Pass {
    work: Mutex<Batches>,
    under_way: UnderWay,
    given_up: AtomicBool,
}

impl Pass {
    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns the next batch, which is under way from then on.
    fn next(&self) -> Option<Vec<(Arc<File>, u64)>> {
        let mut work = self.work.lock();
        let batch = if self.is_given_up() { None } else { work.pop_front() }?;
        self.under_way.begin(&batch);
        Some(batch)
    }

    /// Returns the files without a result: those that nobody has begun, and those under way.
    fn left(&self) -> (Vec<Arc<File>>, Vec<Arc<File>>) {
        let waiting = std::mem::take(&mut *self.work.lock());
        let under_way = std::mem::take(&mut *self.under_way.0.lock());
        let waiting = waiting.into_iter().flatten().map(|(file, _)| file).collect();
        (waiting, under_way.into_values().map(|(file, _)| file).collect())
    }
}

/// Reason reported for a file whose stage-out the store holds up.
const UNANSWERED: &str = "a call to the global store has not come back";

impl Inner {
    /// Runs one pass. Returns the files that are copied and still dirty.
    pub(crate) fn drain_pass(
        self: &Arc<Inner>,
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
        let pass = Arc::new(Pass { work: Mutex::new(batches), ..Pass::default() });
        let (told, none) = self.begin_pass(&pass);
        let mut again = Vec::new();
        let mut told_at = Instant::now();
        let mut given_up: Option<Instant> = None;
        while given_up.is_none_or(|then| then.elapsed() < GIVEN_UP_WAIT) {
            match told.recv_timeout(POLL) {
                Ok((file, end)) => {
                    state.files_left = state.files_left.saturating_sub(1);
                    state.bytes_left = state.bytes_left.saturating_sub(pass.under_way.end(&file));
                    match end {
                        StageOutResult::Clean | StageOutResult::Nothing => state.files_done += 1,
                        StageOutResult::StillDirty => again.push(file),
                        StageOutResult::Stuck { state, orphaned, error } => {
                            stuck.push(self.stuck(&file, state, orphaned, &error))
                        }
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // A report for each of many small files would cost more than the file.
            if told_at.elapsed() >= POLL {
                told_at = Instant::now();
                let bytes_left = state.bytes_left.saturating_sub(pass.under_way.passed());
                progress(DrainProgress { bytes_left, ..*state });
                if given_up.is_none() && interrupted() {
                    given_up = Some(told_at);
                    pass.given_up.store(true, Ordering::Relaxed);
                }
            }
        }
        self.tell_left(&pass, none, stuck);
        progress(*state);
        again
    }

    /// Starts the threads. Returns the channel of their results, or why there are no threads.
    fn begin_pass(
        self: &Arc<Inner>,
        pass: &Arc<Pass>,
    ) -> (mpsc::Receiver<(Arc<File>, StageOutResult)>, Option<io::Error>) {
        let (tell, told) = mpsc::channel();
        let mut none = None;
        for started in 0..self.settings.streams.clamp(1, 64) {
            let (inner, pass, tell) = (Arc::clone(self), Arc::clone(pass), tell.clone());
            if let Err(error) = self.threads.start("drain", move || inner.drain_share(&pass, &tell)) {
                none = (started == 0).then_some(error);
                break;
            }
        }
        (told, none)
    }

    fn tell_left(&self, pass: &Pass, none: Option<io::Error>, stuck: &mut Vec<Stuck>) {
        let error = none.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINTR));
        let (waiting, under_way) = pass.left();
        // A background worker may have staged some out.
        let is_left = |file: &&Arc<File>| file.live.lock().is_unclean();
        for file in waiting.iter().filter(is_left) {
            let state = file.live.lock().residency();
            stuck.push(self.stuck(file, state, false, &error));
        }
        for file in under_way.iter().filter(is_left) {
            let told = self.stuck(file, Residency::Draining, false, &error);
            stuck.push(Stuck { reason: UNANSWERED.to_owned(), ..told });
        }
    }

    fn drain_share(&self, pass: &Pass, tell: &mpsc::Sender<(Arc<File>, StageOutResult)>) {
        let interrupted = || pass.is_given_up() || self.is_dead();
        while !self.is_dead()
            && let Some(batch) = pass.next()
        {
            let files: Vec<Arc<File>> = batch.into_iter().map(|(file, _)| file).collect();
            let mut done = Vec::new();
            let skipped = self.drain_batch(&files, false, &interrupted, &mut |file, end| {
                done.push((Arc::clone(file), end));
            });
            for file in skipped {
                let end = self.drain_one(&file, &interrupted);
                done.push((file, end));
            }
            // Nobody listens any more if the drain was given up.
            done.into_iter().for_each(|ended| _ = tell.send(ended));
        }
    }

    /// Makes batches of small files, puts large ones alone, and returns the sum of their sizes.
    fn batches(&self, files: &[Arc<File>]) -> (Batches, u64) {
        let (mut batches, mut batch, mut held, mut total) = (VecDeque::new(), Vec::new(), 0, 0);
        // Two for each stream: while one is synced another is copied, and none waits long for the last.
        let share = files.len() / (2 * self.settings.streams.clamp(1, 64));
        let most = share.max(DRAIN_BATCH_FILES_MIN).min(DescriptorBudget::now(self.settings.streams).batch);
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
