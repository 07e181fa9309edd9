//! Consequences of a stage-out that failed, and of one that ended clean.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use catalogue::{Durability, Record, State};
use config::StageOut;
use types::Shown;

use super::{StageOutResult, stuck};
use crate::cache::{CacheCounters, Inner};
use crate::errors::{Trouble, errno, here};
use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, FAILURES_MAX};
use crate::residency::File;
use data_store::{Residency, Stuck};

fn backoff(tries: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(BACKOFF_MAX)
}

impl Inner {
    /// Notes a failed stage-out. `left`: the fingerprint that it left on the global copy, if it changed anything.
    /// After an interruption or a lack of descriptors the stage-out only has to be tried again. Gate held.
    pub(crate) fn note_failure(
        &self,
        file: &File,
        error: io::Error,
        left: Option<types::Fingerprint>,
    ) -> StageOutResult {
        let is_known = file.peek(|live| {
            if left.is_some() {
                live.below.left = left;
            }
            live.record().is_some()
        });
        match errno(&error) {
            libc::EINTR | libc::EMFILE if is_known => stuck(Residency::Queued, error),
            _ => self.count_failure(file, error),
        }
    }

    /// Counts a failed stage-out, so that status and commands report it.
    pub(crate) fn count_failure(&self, file: &File, error: io::Error) -> StageOutResult {
        let (record, failures) = file.peek(|live| {
            live.told.fail(errno(&error), Some(Trouble::of(&error)));
            (live.record().cloned(), live.told.failures)
        });
        let Some(record) = record else { return StageOutResult::Nothing };
        CacheCounters::add(&self.counters.errors, 1);
        tracing::warn!(%error, file = %record.hint.shown(), failures, "a stage-out failed; it will be tried again");
        let reason = Trouble::of(&error).reason;
        *self.counters.failure.lock() = Some((record.hint.to_string_lossy().into_owned(), reason.clone()));
        let mut next = Record { reason, ..record.clone() };
        if failures >= FAILURES_MAX {
            match (record.state, file.live.lock().below.left) {
                (State::Dirty, _) => next.state = State::Failed,
                (State::Draining, Some(left)) => {
                    next = Record { state: State::Failed, base: left, was_clean: false, sum: None, ..next };
                }
                _ => {}
            }
        }
        let state = if next.state == State::Failed { Residency::Failed } else { Residency::Queued };
        if next != record && (next.state != record.state || record.reason.is_empty()) {
            // The data is safe without the record; the reason is shown from memory.
            let _ = self.put(file, next, Durability::Process);
        }
        StageOutResult::Stuck { state, orphaned: record.orphaned, error }
    }

    /// Makes a file an orphan, because it is not in the global store: its data is kept. Gate held.
    pub(crate) fn orphan(&self, file: &File) -> StageOutResult {
        let record = file.live.lock().record().cloned();
        let Some(record) = record else { return StageOutResult::Nothing };
        {
            let mut live = file.live.lock();
            (live.anchor, live.told.trouble) = (None, None);
        }
        if !record.orphaned {
            tracing::warn!(file = %record.hint.shown(), "a dirty file was removed from the global store: its data is kept as an orphan, see `forebay resolve`");
            let reason = "the file is not in the global store".to_owned();
            let _ = self.put(file, Record { orphaned: true, reason, ..record.clone() }, Durability::Process);
        }
        let state = if record.state == State::Failed { Residency::Failed } else { Residency::Queued };
        StageOutResult::Stuck { state, orphaned: true, error: io::Error::from_raw_os_error(libc::ENOENT) }
    }

    /// Records a conflict: both copies changed, and both are kept. Gate held.
    pub(crate) fn record_conflict(&self, file: &File, record: Record, reason: &str) -> StageOutResult {
        tracing::warn!(file = %record.hint.shown(), reason, "conflict: the global copy and the replica both changed; both are kept, see `forebay resolve`");
        let mut record = Record { state: State::Conflict, reason: reason.to_owned(), ..record };
        {
            let mut live = file.live.lock();
            // The replica may have been cut since a stage-out began.
            record.synced_len = live.record().map_or(0, |now| now.synced_len);
            live.told.fail(libc::ESTALE, None);
        }
        *self.counters.failure.lock() = Some((record.hint.to_string_lossy().into_owned(), reason.to_owned()));
        CacheCounters::add(&self.counters.errors, 1);
        match self.put(file, record, Durability::Machine) {
            Ok(()) => stuck(Residency::Conflict, io::Error::from_raw_os_error(libc::ESTALE)),
            Err(error) => self.note_failure(file, here(error), None),
        }
    }

    /// Drops or keeps the replica of a clean file that nobody has open, as its policy says. Gate held.
    pub(crate) fn drop_or_keep(&self, file: &Arc<File>) {
        let drops = !file.live.lock().stays_clean();
        if drops {
            self.drop_clean(file)
        } else {
            self.keep(file)
        }
        file.live.lock().anchor = None;
    }

    /// Drops a clean replica that nobody has open, or tries again later: later writes of the file must be visible
    /// through mappings that are left. Gate held.
    pub(crate) fn drop_clean(&self, file: &Arc<File>) {
        if let Err(error) = self.evict_gated(file) {
            self.evict_later(file, &error, BACKOFF_MIN);
        }
    }

    /// Queues the file for its next try, after a stage-out.
    pub(crate) fn requeue(&self, file: &Arc<File>, end: &StageOutResult) {
        let now = self.now();
        let (policy, open, failures, decided) = file.peek(|live| {
            // A complete copy that could not be recorded has time.
            let failures = if live.copies.unrecorded.is_some() { u32::MAX } else { live.told.failures };
            let decided = live.record().is_none_or(|record| record.state != State::Conflict);
            (Arc::clone(&live.policy), live.is_written(), failures, decided)
        });
        match end {
            StageOutResult::Clean | StageOutResult::Nothing => {
                self.queue.remove(file);
                // A program that wrote the file after that, and closed it before this, had queued it again.
                let again = file.peek(|live| {
                    live.told.meet_mapping(false);
                    live.is_unclean() && !live.is_written() && !live.is_unlinked() && decided
                });
                if again {
                    self.schedule_stage_out(file);
                }
            }
            StageOutResult::StillDirty if open => {
                if let StageOut::Age(wait) = policy.stage_out {
                    self.queue.push(file, now.saturating_add(wait));
                }
            }
            StageOutResult::StillDirty => {
                let tries = file.live.lock().told.meet_mapping(true);
                // The first time a write during the copy may be the only reason.
                let wait = if tries == 1 { Duration::ZERO } else { backoff(tries - 1) };
                self.queue.push(file, now.saturating_add(wait));
            }
            // An operator must decide.
            StageOutResult::Stuck { .. } if !decided => self.queue.remove(file),
            StageOutResult::Stuck { orphaned: true, .. } => self.queue.push(file, now.saturating_add(BACKOFF_MAX)),
            StageOutResult::Stuck { error, .. } if errno(error) == libc::EINTR => self.schedule_stage_out(file),
            StageOutResult::Stuck { .. } => self.queue.push(file, now.saturating_add(backoff(failures))),
        }
    }

    pub(crate) fn stuck(&self, file: &File, state: Residency, orphaned: bool, error: &io::Error) -> Stuck {
        let (record, trouble) = file.peek(|live| (live.record().cloned(), live.told.trouble.clone()));
        let replica = record.as_ref().map_or_else(PathBuf::new, |record| self.replicas.path(record.version));
        let reason = record.as_ref().map_or("", |record| &record.reason);
        let reason = trouble.as_ref().map_or(reason, |trouble| &trouble.reason);
        Stuck {
            path_hint: record.as_ref().map_or_else(PathBuf::new, |record| record.hint.clone()),
            identity: file.identity.clone(),
            state,
            orphaned,
            reason: if reason.is_empty() { error.to_string() } else { reason.to_owned() },
            errno: errno(error),
            replica,
        }
    }
}
