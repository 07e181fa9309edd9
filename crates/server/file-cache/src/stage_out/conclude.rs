//! Step W7: the record after a verified copy.

use std::io;
use std::os::fd::AsFd;

use catalogue::{Change, Durability, Record, State};
use rustix::fs::Stat;
use types::{Fingerprint, Moved};

use super::announce::follow;
use super::{StageOutJob, StageOutResult, stuck};
use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::{self, Replicas};
use crate::cache::{CacheCounters, Inner};
use crate::clock::wall_s;
use crate::errors::{clone_error, here};
use crate::fault;
use crate::limits::SMALL_BYTES;
use crate::medium::LACKS;
use crate::residency::{Compared, File, Gate};
use data_store::Residency;

impl Inner {
    /// Does W7 for files whose copies were checked, at most [`CONCLUDED_FILES`]: one commit. Their gates are held
    /// meanwhile, also over the calls to the global store for each. An open of one of them waits for the others, and
    /// for no more than these.
    ///
    /// [`CONCLUDED_FILES`]: crate::limits::CONCLUDED_FILES
    pub(crate) fn conclude(
        &self,
        mut staged_count: Vec<(usize, StageOutJob<'_>, Fingerprint)>,
        ends: &mut [Option<StageOutResult>],
    ) {
        let gates: Vec<Gate<'_>> = staged_count.iter().map(|(_, job, _)| job.file.gate()).collect();
        let mut changes = Vec::new();
        for (index, job, left) in staged_count.iter_mut() {
            let (current, unwanted) = job.file.peek(|live| {
                // The gate was free since the check: our own utimens may have followed.
                *left = live.below.left.unwrap_or(*left);
                (live.changes == job.changes && !live.is_written(), !job.is_wanted(live))
            });
            if unwanted {
                ends[*index] = Some(StageOutResult::Nothing);
                continue;
            }
            follow(&mut job.record, &job.file.live.lock());
            if let Some(error) = self.refusal() {
                ends[*index] = Some(self.concluded_unrecorded(job, *left, error));
                continue;
            }
            let quiet = job.quiet && current;
            // A file that is still being written is asked about at its next stage-out. Waiting may never end.
            let lost = if quiet {
                self.lost_nothing(job.file, job.replica.as_fd()).is_err()
            } else {
                job.file.live.lock().medium.is_doubtful()
            };
            if lost {
                let record = Record { base: *left, was_clean: false, sum: None, ..job.record.clone() };
                ends[*index] = Some(self.record_conflict(job.file, record, LACKS));
                continue;
            }
            let mut done = quiet && lease::probe(job.replica.as_fd(), Nobody::Writes).unwrap_or(false);
            if done && self.store.is_shared() {
                // Not earlier: a file that is written again must not lose its mark. This moves ctime alone.
                let before = job.anchor.attributes();
                done = job
                    .anchor
                    .set_mark(None)
                    .inspect_err(|error| tracing::warn!(%error, "could not remove a file's mark: tried again later"))
                    .is_ok();
                fault::point("w6.unmarked");
                // Changes that another node made since the last look are not ours, and must still be noticed.
                if let (Ok(before), Ok(after)) = (before, job.anchor.attributes()) {
                    let (before, after) = (before.fingerprint, after.fingerprint);
                    let mut live = job.file.live.lock();
                    if before.same_content(&after) {
                        live.follow(&before, after);
                    }
                    *left = live.below.left.unwrap_or(*left);
                }
            }
            job.record = self.verdict(job, *left, done);
            changes.push(Change::Put(job.file.identity.clone(), job.record.clone()));
            ends[*index] = Some(if done { StageOutResult::Clean } else { StageOutResult::StillDirty });
        }
        let failure = if changes.is_empty() { None } else { self.commit(changes, Durability::Process).err() };
        fault::point("w7.committed");
        for (index, job, left) in staged_count {
            if matches!(ends[index], Some(StageOutResult::Nothing | StageOutResult::Stuck { .. })) {
                continue;
            }
            match &failure {
                Some(error) if self.refuses(error) => {
                    ends[index] = Some(self.concluded_unrecorded(&job, left, clone_error(error)));
                }
                Some(error) => ends[index] = Some(self.note_failure(job.file, here(clone_error(error)), Some(left))),
                None => self.concluded(job, matches!(ends[index], Some(StageOutResult::Clean))),
            }
        }
        drop(gates);
    }

    /// Returns the record that follows a verified copy. The checksums are written first: after a crash in between, the
    /// record says `Draining`.
    fn verdict(&self, job: &StageOutJob<'_>, left: Fingerprint, done: bool) -> Record {
        let mut summed = true;
        if job.size > SMALL_BYTES && (job.copied.changed || job.copied.sums.size == job.size) {
            summed = job.copied.sums.keep(&self.replicas.sums_path(job.record.version));
        }
        fault::point("w7.sums");
        let stat = rustix::fs::fstat(&job.replica);
        let coarser = done && left.mtime != job.mtime;
        if coarser {
            // A store with coarser times: both copies have the same time from now on.
            let _ = replica::set_mtime(job.replica.as_fd(), left.mtime);
        }
        let kept = |stat: &Stat| if coarser { left.mtime } else { replica::mtime_of(stat) };
        let shown = stat.ok().and_then(|stat| job.file.live.lock().show_left(&stat, &left, kept(&stat)));
        Record {
            state: if done { State::Clean } else { State::Dirty },
            base: left,
            epoch: if done { job.record.epoch } else { job.record.epoch.next() },
            was_clean: summed || done,
            racy: done && job.racy,
            shown,
            sum: job
                .copied
                .sums
                .blocks
                .first()
                .copied()
                .filter(|_| job.copied.sums.size == job.size && job.size <= SMALL_BYTES),
            used_s: wall_s(),
            orphaned: false,
            removing: job.record.removing && !done,
            synced: job.record.synced && !done,
            synced_len: if done { 0 } else { job.record.synced_len },
            damaged: false,
            reason: String::new(),
            ..job.record.clone()
        }
    }

    /// Finishes after the commit of W7. Gate held.
    fn concluded(&self, job: StageOutJob<'_>, clean: bool) {
        CacheCounters::add(&self.counters.staged_count, 1);
        {
            let mut live = job.file.live.lock();
            live.recorded(job.record.clone());
            live.below.synced(None);
            live.copies.concluded(job.size);
            live.below.checked = Some(self.now());
            live.compared = Compared::Yes;
            live.told.succeed();
            live.clean_commit = self.commits.done.load(std::sync::atomic::Ordering::Acquire);
            if !clean {
                live.dirty_since = self.now();
            }
        }
        CacheCounters::add(&self.counters.out_files, 1);
        CacheCounters::add(&self.counters.out_bytes, job.copied.bytes);
        if !clean {
            return;
        }
        self.settle_reads(job.file);
        Replicas::remove_identity_attribute(job.replica.as_fd());
        let file = job.file;
        // Our own descriptor of the replica would look like a use of it.
        drop(job);
        let unused = !file.live.lock().is_open();
        if unused {
            file.live.lock().reads.watched = None;
            self.drop_or_keep(file);
            fault::point("w8.dropped");
        }
    }

    /// Returns whether a file that nobody can write was completely copied since its last change, and the copy stayed.
    pub(crate) fn is_copied(&self, file: &File, changes: u64, found: &Fingerprint) -> bool {
        let live = file.live.lock();
        live.copies.unrecorded == Some(changes)
            && live.below.left.is_some_and(|left| live.moved(&left, found) == Moved::Nothing)
    }

    /// Does W7 where nothing can be recorded: the copy is complete, and the file stays dirty. Gate held.
    pub(crate) fn concluded_unrecorded(
        &self,
        job: &StageOutJob<'_>,
        left: Fingerprint,
        error: io::Error,
    ) -> StageOutResult {
        if let Err(lost) = self.lost_nothing(job.file, job.replica.as_fd()) {
            return self.note_failure(job.file, here(lost), Some(left));
        }
        let mut live = job.file.live.lock();
        live.below.synced(Some(left));
        live.told.succeed();
        let current = live.changes == job.changes && !live.is_written();
        live.copies.unrecorded = (job.quiet && current).then_some(job.changes);
        let reason = format!(
            "what can be read of it is in the global store, but the burst buffer takes no writes, so it is not clean: {error}"
        );
        live.recorded(Record { reason, state: State::Draining, ..job.record.clone() });
        stuck(Residency::Queued, error)
    }
}
