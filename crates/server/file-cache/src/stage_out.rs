//! Stage-out: steps W2 to W8, for one large file or for a batch of small ones.
//!
//! The copy runs without the gate, so opens and writes continue. The end of the stage-out looks for their changes. It
//! ends `Clean` only if nobody could write when it began (a read lease was granted) and nobody opened for writing
//! since. Otherwise the record stays `Dirty` with the fingerprint and the checksums of the copied bytes, and the next
//! stage-out compares with these.

mod announce;
mod conclude;
mod copy;
mod drain;
mod finish;
mod outcome;
mod pace;
mod pass;
mod schedule;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::{Record, State};
use config::{OnConflict, Policy, StageOut};
use global_store::{Access, Anchor, StoreAttributes, StoreFile, descriptors};
use types::{Fingerprint, Moved, Timestamp};

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::{self, How};
use crate::burst_buffer::sums::Sums;
use crate::cache::Inner;
use crate::errors::{clone_error, errno, here};
use crate::fault;
use crate::global_copy::content::ContentOwner;
use crate::global_copy::doubt::new_place;
use crate::limits::{CONCLUDED_FILES, SMALL_BYTES};
use crate::medium::LACKS;
use crate::residency::{File, Gate, Live};
use announce::{Announcer, is_wanted};
use copy::{Copied, Copy, Extent};
use data_store::Residency;

#[derive(Debug)]
pub(crate) enum StageOutResult {
    /// The replica and the global copy are equal, and the record says so.
    Clean,
    /// Copied, but open for writing, mapped or changed meanwhile: it must be tried again.
    StillDirty,
    /// Nothing had to be done.
    Nothing,
    /// The stage-out cannot be done now. The state tells a conflict from a failure.
    Stuck { state: Residency, orphaned: bool, error: io::Error },
}

/// One stage-out under way. The file's drain lock is held.
pub(crate) struct StageOutJob<'a> {
    pub(crate) file: &'a Arc<File>,
    pub(crate) anchor: Arc<dyn Anchor>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) record: Record,
    pub(crate) replica: OwnedFd,
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    extent: Extent,
    /// Number of first bytes that nobody has changed since they were summed.
    unchanged: u64,
    pub(crate) before: Fingerprint,
    /// Value of `Live::changes` when the job started.
    pub(crate) changes: u64,
    /// Whether a read lease was granted at the start, so nobody could write the replica.
    pub(crate) quiet: bool,
    pub(crate) begun: bool,
    /// Whether this job wrote the copied data to the burst buffer's medium first.
    pub(crate) secured: bool,
    pub(crate) global: Option<Box<dyn StoreFile>>,
    pub(crate) copied: Copied,
    /// Time that the store keeps for `mtime`. `None`: somebody else wrote while it was set.
    pub(crate) kept: Option<Timestamp>,
    /// Whether a later content may have the fingerprint that was left.
    pub(crate) racy: bool,
    /// Fingerprint of the global copy with all bytes and its time, before the sync. `None` if nothing had to be done.
    pub(crate) timed: Option<Fingerprint>,
}

impl StageOutJob<'_> {
    /// Leaves earlier bytes for later, under `stage_out=size:N`: bytes written to an open file are copied as the file
    /// grows. Overwritten bytes of the part that is already copied are looked for when nobody writes any more.
    /// Otherwise each step would look at the whole file.
    fn leave_written_over(&mut self) {
        if !self.quiet && matches!(self.policy.stage_out, StageOut::Size(_)) {
            let copied = self.file.live.lock().copies.bytes;
            self.unchanged = self.unchanged.max(copied.min(self.size));
        }
    }

    /// Returns whether the file still has the replica that is being copied, and a record of it.
    pub(crate) fn is_wanted(&self, live: &Live) -> bool {
        is_wanted(&self.record, live)
    }
}

impl StageOutResult {
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, StageOutResult::Stuck { error, .. } if errno(error) == libc::EMFILE)
    }
}

/// Returns the result for a file that is in the global store.
fn stuck(state: Residency, error: io::Error) -> StageOutResult {
    StageOutResult::Stuck { state, orphaned: false, error }
}

impl Inner {
    /// Begins the stage-outs of the first files, and returns them with the ends of those that cannot begin. The files
    /// behind the last end are postponed, because no descriptors are left for them.
    fn begin_first<'a>(
        &self,
        files: &[&'a Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> (Vec<(usize, StageOutJob<'a>)>, Vec<Option<StageOutResult>>) {
        let mut jobs: Vec<(usize, StageOutJob<'a>)> = Vec::new();
        let mut ends = Vec::new();
        for (index, file) in files.iter().enumerate() {
            file.passed.store(0, Ordering::Relaxed);
            match self.begin_knowing(file, None) {
                Ok(mut job) => {
                    if patient {
                        job.leave_written_over();
                    }
                    let is_last = descriptors::is_last(&job.replica);
                    let is_first = jobs.is_empty();
                    jobs.push((index, job));
                    ends.push(None);
                    if is_last && is_first {
                        self.wait_for_descriptors(interrupted);
                    } else if is_last {
                        break;
                    }
                }
                Err(end) if end.lacks_descriptors() && !jobs.is_empty() => break,
                Err(end) => ends.push(Some(end)),
            }
        }
        (jobs, ends)
    }

    /// Stages out the first of the files, all if there are descriptors for them. Their drain locks are held. More than
    /// one file is a batch, which syncs the store once. `patient`: bytes written over in growing files may be left for
    /// later.
    pub(crate) fn drain_first(
        &self,
        files: &[&Arc<File>],
        patient: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Vec<StageOutResult> {
        let (mut jobs, mut ends) = self.begin_first(files, patient, interrupted);
        let batch = files.len() > 1;
        // Before the first byte: each batch must hear itself of failed write-backs.
        let ready = if batch && !jobs.is_empty() {
            let mut lost = |index: usize, job, error| ends[index] = Some(self.failed(job, error));
            self.store.sync_point().and_then(|point| self.announce_all(&mut jobs, &mut lost).map(|()| Some(point)))
        } else {
            Ok(None)
        };
        let point = ready.unwrap_or_else(|error| {
            jobs.drain(..).for_each(|(index, job)| ends[index] = Some(self.failed(job, clone_error(&error))));
            None
        });
        for (index, mut job) in std::mem::take(&mut jobs) {
            match self.copy(&mut job, interrupted).and_then(|()| self.set_time(&mut job, interrupted)) {
                Ok(()) => jobs.push((index, job)),
                Err(error) => {
                    // The sync of the others may report the loss of this file's bytes, and no later sync does.
                    job.file.live.lock().below.unsynced |= batch && job.begun;
                    ends[index] = Some(self.failed(job, error));
                }
            }
        }
        if !jobs.is_empty()
            && let Some(point) = point
            && let Err(error) = point.sync()
        {
            jobs.iter().for_each(|(_, job)| job.file.live.lock().below.unsynced = true);
            jobs.drain(..).for_each(|(index, job)| ends[index] = Some(self.failed(job, clone_error(&error))));
        }
        let mut settled = Vec::new();
        for (index, mut job) in jobs {
            match self.finish(&mut job, !batch, interrupted) {
                Ok(Some(fingerprint)) => settled.push((index, job, fingerprint)),
                Ok(None) => ends[index] = Some(self.conflict(&job, "the global copy changed during the stage-out")),
                Err(error) => ends[index] = Some(self.failed(job, error)),
            }
        }
        while !settled.is_empty() {
            let rest = settled.split_off(settled.len().min(CONCLUDED_FILES));
            self.conclude(std::mem::replace(&mut settled, rest), &mut ends);
        }
        ends.into_iter().map(|end| end.unwrap_or(StageOutResult::Nothing)).collect()
    }

    /// Compares a global copy that does not look as it was left. Possibly only its attributes changed, or a crash of
    /// the machine took the record of a time that was set through the agent.
    fn begin_looking<'a>(
        &self,
        file: &'a Arc<File>,
        record: &Record,
        anchor: &dyn Anchor,
        found: Fingerprint,
    ) -> Result<StageOutJob<'a>, StageOutResult> {
        match self.whose_bytes(record, anchor, found.size) {
            Ok(bytes) => self.begin_knowing(file, Some((found, bytes))),
            Err(error) => {
                let _gate = file.gate();
                Err(self.note_failure(file, error, None))
            }
        }
    }

    /// Plans step W3 (mark draining) without committing it. Returns the plan, or why staging out is not allowed now.
    /// `known`: a comparison has shown whose bytes the global copy with this fingerprint holds.
    pub(crate) fn begin_knowing<'a>(
        &self,
        file: &'a Arc<File>,
        known: Option<(Fingerprint, ContentOwner)>,
    ) -> Result<StageOutJob<'a>, StageOutResult> {
        let fail = |error| self.note_failure(file, error, None);
        if let Some(end) = nothing_to_do(&file.live.lock()) {
            return Err(end);
        }
        if let Err(error) = self.check_end(file, &|| false) {
            let _gate = file.gate();
            let known = nothing_to_do(&file.live.lock());
            return Err(known.unwrap_or_else(|| fail(here(error))));
        }
        let (gate, below) = self.look_below(file);
        let Some((anchor, found, foreign)) = below.map_err(fail)? else {
            return Err(self.end_doubt(file, true).unwrap_or_else(|| self.orphan(file)));
        };
        self.end_doubt(file, found.links == 0).map_or(Ok(()), Err)?;
        // Another thread may have found meanwhile that the file is damaged.
        if let Some(end) = nothing_to_do(&file.live.lock()) {
            return Err(end);
        }
        let (mut record, policy, left, changes, idle) = {
            let mut live = file.live.lock();
            let Some(record) = live.record().cloned().filter(|_| live.is_unclean() && !live.is_unlinked()) else {
                return Err(StageOutResult::Nothing);
            };
            // The replica may have changed since its last sync. A file that becomes clean without a copy is not.
            live.synced.content = false;
            (record, Arc::clone(&live.policy), live.below.left, live.changes, !live.is_written())
        };
        if found.links == 0 {
            return Err(self.orphan(file));
        }
        if let Some(whose) = foreign {
            let reason = format!("the global copy is marked as dirty by {whose}");
            return Err(self.record_conflict(file, record, &reason));
        }
        // After a failed sync the system takes the bytes for written. Only writing them again lets a sync fail.
        let rewrite = file.live.lock().below.unsynced;
        let mut extent = if rewrite { Extent::Everything } else { self.extent_of(&record) };
        let expected = if record.state == State::Draining { left } else { Some(record.base) };
        let moved = |expected: &Fingerprint| file.live.lock().moved(expected, &found.fingerprint);
        if let Some((expected, moved)) = expected.map(|expected| (expected, moved(&expected))) {
            let keep = policy.on_conflict == OnConflict::Keep;
            if moved != Moved::Nothing && known.is_none() && keep {
                // Reading the copy may take long.
                drop(gate);
                return self.begin_looking(file, &record, &*anchor, found.fingerprint);
            }
            let bytes = known.filter(|(then, _)| then.moved(&found.fingerprint) == Moved::Nothing);
            let bytes = bytes.map_or(ContentOwner::Others, |(_, bytes)| bytes);
            let untold = moved == Moved::ChangeTime && bytes == ContentOwner::Untold;
            let renamed = untold.then(|| new_place(&record, &*anchor, found.links)).flatten();
            let harmless = renamed.is_some() || is_harmless(moved, bytes, &expected, &found.fingerprint);
            if !harmless && keep {
                let reason = difference(&expected, &found.fingerprint);
                return Err(self.record_conflict(file, record, &reason));
            }
            let same = moved == Moved::Nothing || (moved == Moved::ChangeTime && bytes == ContentOwner::Base);
            if same || (harmless && moved == Moved::ChangeTime) {
                // Only once: the next try finds the global copy as it was left.
                let mut live = file.live.lock();
                live.believe(&found.fingerprint);
                if let Some(now) = live.record_mut() {
                    // One rename explains one change time.
                    now.hint = renamed.unwrap_or_else(|| now.hint.clone());
                    (record.base, record.hint) = (now.base, now.hint.clone());
                }
            }
            if !same {
                // The recorded checksums are not those of the present blocks.
                let compares = extent != Extent::Everything && (harmless || moved == Moved::ChangeTime);
                extent = if compares { Extent::Differing } else { Extent::Everything };
            }
        }
        let replica = self.replicas.open_as(record.version, How::Read).map_err(|error| fail(here(error)))?;
        let stat = rustix::fs::fstat(&replica).map_err(|error| fail(here(error.into())))?;
        let quiet = idle && lease::probe(replica.as_fd(), Nobody::Writes).map_err(|error| fail(here(error)))?;
        let unchanged = file.live.lock().copies.untouched.begin(stat.st_size as u64, quiet);
        if let Some(error) = self.refusal().filter(|_| quiet && self.is_copied(file, changes, &found.fingerprint)) {
            return Err(stuck(Residency::Queued, error));
        }
        Ok(StageOutJob {
            file,
            anchor,
            policy,
            begun: record.state == State::Draining,
            secured: false,
            record,
            replica,
            size: stat.st_size as u64,
            mtime: replica::mtime_of(&stat),
            extent,
            unchanged,
            before: found.fingerprint,
            changes,
            quiet,
            global: None,
            copied: Copied::default(),
            kept: None,
            racy: false,
            timed: None,
        })
    }

    /// Locks the file's gate and looks up its global copy. Returns the copy, its attributes, and the owner of a
    /// foreign mark, if any.
    fn look_below<'a>(&self, file: &'a Arc<File>) -> (Gate<'a>, io::Result<Option<Below>>) {
        let look = || {
            let Some(anchor) = self.anchor_of(file, false)? else { return Ok(None) };
            let shared = self.store.is_shared();
            let foreign =
                if shared { crate::global_copy::marks::foreign(&*anchor, &self.settings.agent_id)? } else { None };
            // The write must not destroy others' changes, however long the store's client caches attributes.
            let found = anchor.attributes_now()?;
            Ok(Some((anchor, found, foreign)))
        };
        // A file without a name may be getting one.
        let is_final = |found: &io::Result<Option<Below>>| match found {
            Ok(found) => found.as_ref().is_some_and(|(_, found, _)| found.links > 0),
            Err(_) => true,
        };
        ask_ungated(file, look, is_final)
    }

    fn extent_of(&self, record: &Record) -> Extent {
        match record.state {
            State::Draining => Extent::Differing,
            _ if !record.was_clean => Extent::Everything,
            _ if record.base.size <= SMALL_BYTES => Extent::Differing,
            _ => match Sums::load(&self.replicas.sums_path(record.version)) {
                Some(sums) if sums.size == record.base.size => Extent::Changed(sums),
                _ => Extent::Differing,
            },
        }
    }

    /// Does W4.
    fn copy(&self, job: &mut StageOutJob<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let untouched = job.extent == Extent::Everything && job.size == 0 && job.before.size == 0;
        if untouched {
            job.copied = Copied::default();
            return Ok(());
        }
        let global = job.anchor.open(Access::Write)?;
        let (size, former, unchanged) = (job.size, job.before.size, job.unchanged);
        let extent = std::mem::replace(&mut job.extent, Extent::Everything);
        let mut announcer = Announcer::of(self, job, interrupted);
        let mut copy = Copy::new(announcer.replica, size, &*global, former, &mut announcer);
        copy.unchanged = unchanged;
        let copied = copy.run(&extent);
        job.global = Some(global);
        job.copied = copied?;
        fault::point("w4.written");
        Ok(())
    }

    /// Notes a copy that did not end. Its state of the global copy is remembered, so that the next try does not take
    /// it for an outsider's change.
    fn failed(&self, job: StageOutJob<'_>, error: io::Error) -> StageOutResult {
        let look = || if job.begun { job.anchor.attributes().ok() } else { None };
        let (_gate, found) = ask_ungated(job.file, look, |_| true);
        let unwanted = !job.is_wanted(&job.file.live.lock());
        if unwanted {
            return StageOutResult::Nothing;
        }
        let doubtful = job.record.base.size > 0 && job.file.live.lock().medium.is_doubtful();
        if doubtful {
            return self.record_conflict(job.file, job.record.clone(), LACKS);
        }
        drop(job.global);
        self.note_failure(job.file, error, found.map(|found| found.fingerprint))
    }

    fn conflict(&self, job: &StageOutJob<'_>, reason: &str) -> StageOutResult {
        let _gate = job.file.gate();
        let unwanted = !job.is_wanted(&job.file.live.lock());
        if unwanted {
            return StageOutResult::Nothing;
        }
        self.record_conflict(job.file, job.record.clone(), reason)
    }
}

/// The global copy, its attributes, and the owner of a foreign mark, if any.
type Below = (Arc<dyn Anchor>, StoreAttributes, Option<String>);

/// Locks the gate and calls `ask`, which asks the store. Asks without the gate first, for an open of the file would
/// otherwise wait for a store that hangs. Our own changes of times would look like an outsider's. They are counted
/// before they are made, and made with the gate held. So `ask` is called again with the gate if one came in between,
/// or if the first answer is not `is_final`.
fn ask_ungated<T>(file: &File, ask: impl Fn() -> T, is_final: impl Fn(&T) -> bool) -> (Gate<'_>, T) {
    let counted = |_gate: &Gate<'_>| file.live.lock().changes;
    let before = counted(&file.gate());
    let said = ask();
    let gate = file.gate();
    if counted(&gate) == before && is_final(&said) {
        return (gate, said);
    }
    drop(said);
    let said = ask();
    (gate, said)
}

/// Returns why a file is not staged out at all, if there is a reason.
fn nothing_to_do(live: &Live) -> Option<StageOutResult> {
    match live.record() {
        _ if live.is_unlinked() => Some(StageOutResult::Nothing),
        None => Some(StageOutResult::Nothing),
        Some(record) if record.state == State::Clean => Some(StageOutResult::Nothing),
        Some(record) if record.damaged => Some(stuck(Residency::Failed, io::Error::from_raw_os_error(libc::EIO))),
        Some(record) if record.state == State::Conflict => {
            Some(stuck(Residency::Conflict, io::Error::from_raw_os_error(libc::ESTALE)))
        }
        Some(_) if live.is_lost() => Some(stuck(Residency::Failed, io::Error::from_raw_os_error(libc::ENOENT))),
        Some(_) => None,
    }
}

/// Returns whether overwriting a global copy that is not as it was left loses nobody's bytes.
fn is_harmless(moved: Moved, bytes: ContentOwner, expected: &Fingerprint, found: &Fingerprint) -> bool {
    match bytes {
        _ if moved == Moved::Nothing => true,
        ContentOwner::Base | ContentOwner::Replica => true,
        ContentOwner::Others => false,
        // A change of attributes explains a ctime that moved alone.
        ContentOwner::Untold => {
            let explained = expected.attributes == 0 || expected.attributes != found.attributes;
            moved == Moved::ChangeTime && explained
        }
    }
}

/// Describes the difference between two fingerprints, for an operator who reads of a conflict.
fn difference(expected: &Fingerprint, found: &Fingerprint) -> String {
    let time = |stamp: &Timestamp| format!("{}.{:09}", stamp.seconds, stamp.nanos);
    if expected.same_content(found) {
        return format!(
            "the global copy was changed at {} and kept its size and its time: its bytes are others, or nothing tells that they are not",
            time(&found.ctime)
        );
    }
    format!(
        "the global copy changed: expected {} bytes of {}, found {} bytes of {}",
        expected.size,
        time(&expected.mtime),
        found.size,
        time(&found.mtime)
    )
}
