//! Stage-out: steps W2 to W8, for one large file or for a batch of small ones.
//!
//! The copy runs without the gate, so opens and writes go on. What they change is found at the end: a stage-out ends
//! `Clean` only if nobody could write when it began (a read lease was granted) and nobody opened for writing since. Else
//! the record stays `Dirty` with the fingerprint and the checksums of what was copied, and the next stage-out compares
//! with these.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use catalogue::{Change, Durability, Record, State};
use config::{OnConflict, Policy, Verify};
use global_store::{Access, Anchor, OpenFile};
use parking_lot::MutexGuard;
use types::{Fingerprint, Timestamp};

use crate::api::Residency;
use crate::cache::{Counters, Inner, errno};
use crate::copy::{Copied, Copy, Extent, Progress};
use crate::fault;
use crate::file::{Body, File};
use crate::lease::{self, Nobody};
use crate::limits::SMALL_BYTES;
use crate::replica::{self, How};
use crate::sums::Sums;

/// What a stage-out came to.
#[derive(Debug)]
pub(crate) enum End {
    /// The replica and the global copy are equal, and the record says so.
    Clean,
    /// Copied, but open for writing, mapped or changed meanwhile: it must be tried again.
    StillDirty,
    /// There was nothing to do.
    Nothing,
    /// It cannot be done now. The state tells a conflict from a failure.
    Stuck { state: Residency, orphaned: bool, error: io::Error },
}

/// One stage-out under way. Its file's drain lock is held.
pub(crate) struct Job<'a> {
    pub(crate) file: &'a Arc<File>,
    anchor: Arc<dyn Anchor>,
    policy: Arc<Policy>,
    record: Record,
    replica: OwnedFd,
    pub(crate) size: u64,
    mtime: Timestamp,
    extent: Extent,
    /// The global copy before.
    before: Fingerprint,
    /// As the file counted them when the job began.
    changes: u64,
    /// Nobody could write the replica when the job began.
    quiet: bool,
    /// The record says `Draining`.
    begun: bool,
    global: Option<Box<dyn OpenFile>>,
    copied: Copied,
    started: Instant,
}

fn stuck(state: Residency, error: io::Error) -> End {
    End::Stuck { state, orphaned: false, error }
}

impl Inner {
    /// Stages files out; their drain locks are held. More than one file is a batch: the store is synced once.
    pub(crate) fn drain_locked(&self, files: &[&Arc<File>], interrupted: &dyn Fn() -> bool) -> Vec<End> {
        let mut ends: Vec<Option<End>> = Vec::new();
        let mut jobs: Vec<(usize, Job<'_>)> = Vec::new();
        for (index, file) in files.iter().enumerate() {
            match self.begin(file) {
                Ok(job) => {
                    jobs.push((index, job));
                    ends.push(None);
                }
                Err(end) => ends.push(Some(end)),
            }
        }
        let batch = files.len() > 1;
        if batch && let Err(error) = self.announce_all(&mut jobs) {
            jobs.drain(..).for_each(|(index, job)| ends[index] = Some(self.failed(job, clone_error(&error))));
        }
        for (index, mut job) in std::mem::take(&mut jobs) {
            match self.copy(&mut job, interrupted) {
                Ok(()) => jobs.push((index, job)),
                Err(error) => ends[index] = Some(self.failed(job, error)),
            }
        }
        if batch
            && !jobs.is_empty()
            && let Err(error) = self.store.sync()
        {
            jobs.drain(..).for_each(|(index, job)| ends[index] = Some(self.failed(job, clone_error(&error))));
        }
        let mut settled = Vec::new();
        for (index, mut job) in jobs {
            match self.settle(&mut job, !batch, interrupted) {
                Ok(Some(fingerprint)) => settled.push((index, job, fingerprint)),
                Ok(None) => ends[index] = Some(self.conflict(&job, "the global copy changed during the stage-out")),
                Err(error) => ends[index] = Some(self.failed(job, error)),
            }
        }
        self.conclude(settled, &mut ends);
        ends.into_iter().map(|end| end.unwrap_or(End::Nothing)).collect()
    }

    /// W3 without its commit: what is to be done, and whether it may be.
    fn begin<'a>(&self, file: &'a Arc<File>) -> Result<Job<'a>, End> {
        let fail = |error| self.note_failure(file, error, None);
        let started = Instant::now();
        {
            let live = file.live.lock();
            match &live.record {
                _ if live.unlinked => return Err(End::Nothing),
                None => return Err(End::Nothing),
                Some(record) if record.state == State::Clean => return Err(End::Nothing),
                Some(record) if record.state == State::Conflict => {
                    let error = io::Error::from_raw_os_error(libc::ESTALE);
                    return Err(stuck(Residency::Conflict, error));
                }
                Some(_) if matches!(live.body, Body::Lost) => {
                    return Err(stuck(Residency::Failed, io::Error::from_raw_os_error(libc::ENOENT)));
                }
                Some(_) => {}
            }
        }
        let _gate = file.gate.lock();
        let anchor = match self.anchor_of(file, false) {
            Ok(Some(anchor)) => anchor,
            Ok(None) => return Err(self.orphan(file)),
            Err(error) => return Err(fail(error)),
        };
        let found = anchor.attributes().map_err(fail)?;
        let (record, policy, left, changes, idle) = {
            let live = file.live.lock();
            let Some(record) = live.record.clone().filter(|_| live.is_unclean() && !live.unlinked) else {
                return Err(End::Nothing);
            };
            (record, Arc::clone(&live.policy), live.left, live.changes, live.writers == 0)
        };
        if found.links == 0 {
            return Err(self.orphan(file));
        }
        let mut extent = self.extent_of(&record);
        let expected = if record.state == State::Draining { left } else { Some(record.base) };
        if let Some(expected) = expected.filter(|expected| !expected.same_content(&found.fingerprint)) {
            if policy.on_conflict == OnConflict::Keep {
                let reason = difference(&expected, &found.fingerprint);
                return Err(self.record_conflict(file, record, &reason));
            }
            extent = Extent::Everything;
        }
        let replica = self.replicas.open_as(record.version, How::Read).map_err(fail)?;
        let stat = rustix::fs::fstat(&replica).map_err(|error| fail(error.into()))?;
        let quiet = idle && lease::probe(replica.as_fd(), Nobody::Writes).map_err(fail)?;
        Ok(Job {
            file,
            anchor,
            policy,
            begun: record.state == State::Draining,
            record,
            replica,
            size: stat.st_size as u64,
            mtime: replica::mtime_of(&stat),
            extent,
            before: found.fingerprint,
            changes,
            quiet,
            global: None,
            copied: Copied::default(),
            started,
        })
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

    /// W2 and W3 for a batch: one sync, one commit.
    fn announce_all(&self, jobs: &mut [(usize, Job<'_>)]) -> io::Result<()> {
        self.replicas.sync()?;
        fault::point("w2.synced");
        let gates: Vec<MutexGuard<'_, ()>> = jobs.iter().map(|(_, job)| job.file.gate.lock()).collect();
        let mut changes = Vec::new();
        for (_, job) in jobs.iter_mut() {
            if !job.file.live.lock().unlinked {
                job.record.state = State::Draining;
                changes.push(Change::Put(job.file.identity.clone(), job.record.clone()));
            }
        }
        self.commit(changes, Durability::Machine)?;
        fault::point("w3.draining");
        for (_, job) in jobs.iter_mut() {
            let mut live = job.file.live.lock();
            if !live.unlinked {
                live.record = Some(job.record.clone());
                live.synced = true;
                live.intent_synced = true;
            }
            job.begun = true;
        }
        drop(gates);
        Ok(())
    }

    /// W4.
    fn copy(&self, job: &mut Job<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let untouched = job.extent == Extent::Everything && job.size == 0 && job.before.size == 0;
        if untouched {
            job.copied = Copied::default();
            return Ok(());
        }
        let global = job.anchor.open(Access::Write)?;
        let mut announcer = Announcer {
            inner: self,
            file: job.file,
            record: &mut job.record,
            replica: &job.replica,
            begun: &mut job.begun,
            interrupted,
            rate: job.policy.rate_bytes_per_s,
        };
        let mut copy = Copy {
            replica: &job.replica,
            size: job.size,
            global: &*global,
            global_size: job.before.size,
            progress: &mut announcer,
        };
        let copied = copy.run(&job.extent);
        job.global = Some(global);
        job.copied = copied?;
        fault::point("w4.written");
        Ok(())
    }

    /// W5 and W6: syncs, checks, sets the time. The fingerprint of what we left, or `None` if somebody else wrote.
    fn settle(&self, job: &mut Job<'_>, sync: bool, interrupted: &dyn Fn() -> bool) -> io::Result<Option<Fingerprint>> {
        let marked = self.store.is_shared();
        if !job.copied.changed && job.before.size == job.size && job.before.mtime == job.mtime {
            if marked && job.quiet {
                job.anchor.set_mark(None)?;
            }
            let now = job.anchor.attributes()?.fingerprint;
            return Ok(now.same_content(&job.before).then_some(now));
        }
        self.announce(job, interrupted)?;
        let global = match job.global.take() {
            Some(global) => global,
            None => job.anchor.open(Access::Write)?,
        };
        let written = global.attributes()?.fingerprint;
        if sync {
            global.sync()?;
            let unsynced = job.file.live.lock().name_unsynced;
            if unsynced {
                job.anchor.sync_name()?;
            }
        }
        job.file.live.lock().name_unsynced = false;
        fault::point("w5.synced");
        let synced = global.attributes()?.fingerprint;
        // A network file system may move mtime when it sends what it buffered; a local one may not.
        let ours_alone = |job: &Job<'_>| job.file.live.lock().changes == job.changes;
        if synced.size != job.size || (!marked && synced.mtime != written.mtime && ours_alone(job)) {
            return Ok(None);
        }
        if job.policy.verify == Verify::Full && !self.verify(job, &*global, interrupted)? {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let _gate = job.file.gate.lock();
        if ours_alone(job) && !global.attributes()?.fingerprint.same_content(&synced) {
            return Ok(None);
        }
        global.set_mtime(job.mtime)?;
        fault::point("w6.mtime");
        if marked && job.quiet {
            job.anchor.set_mark(None)?;
            fault::point("w6.unmarked");
        }
        let left = global.attributes()?.fingerprint;
        if left.size != job.size || !is_time(left.mtime, job.mtime) {
            return Ok(None);
        }
        fault::point("w7.verified");
        Ok(Some(left))
    }

    fn announce(&self, job: &mut Job<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let rate = job.policy.rate_bytes_per_s;
        let (inner, file, record, replica, begun) = (self, job.file, &mut job.record, &job.replica, &mut job.begun);
        Announcer { inner, file, record, replica, begun, interrupted, rate }.before_write(0)
    }

    fn verify(&self, job: &mut Job<'_>, global: &dyn OpenFile, interrupted: &dyn Fn() -> bool) -> io::Result<bool> {
        let rate = job.policy.rate_bytes_per_s;
        let (inner, file, record, replica, begun) = (self, job.file, &mut job.record, &job.replica, &mut job.begun);
        let mut progress = Announcer { inner, file, record, replica, begun, interrupted, rate };
        let (size, global_size) = (job.size, job.size);
        // A file that is written meanwhile cannot be compared; it is staged out again anyway.
        Ok(!job.quiet || Copy { replica, size, global, global_size, progress: &mut progress }.verify()?)
    }

    /// W7 for all that were settled: one commit.
    fn conclude(&self, mut settled: Vec<(usize, Job<'_>, Fingerprint)>, ends: &mut [Option<End>]) {
        let gates: Vec<MutexGuard<'_, ()>> = settled.iter().map(|(_, job, _)| job.file.gate.lock()).collect();
        let mut changes = Vec::new();
        for (index, job, left) in settled.iter_mut() {
            let (current, unlinked) = {
                let live = job.file.live.lock();
                (live.changes == job.changes && live.writers == 0, live.unlinked)
            };
            if unlinked {
                ends[*index] = Some(End::Nothing);
                continue;
            }
            let done = job.quiet && current && lease::probe(job.replica.as_fd(), Nobody::Writes).unwrap_or(false);
            job.record = self.verdict(job, *left, done);
            changes.push(Change::Put(job.file.identity.clone(), job.record.clone()));
            ends[*index] = Some(if done { End::Clean } else { End::StillDirty });
        }
        let failure = if changes.is_empty() { None } else { self.commit(changes, Durability::Process).err() };
        fault::point("w7.committed");
        for (index, job, left) in &settled {
            if matches!(ends[*index], Some(End::Nothing)) {
                continue;
            }
            match &failure {
                Some(error) => ends[*index] = Some(self.note_failure(job.file, clone_error(error), Some(*left))),
                None => self.concluded(job, matches!(ends[*index], Some(End::Clean))),
            }
        }
        drop(gates);
    }

    /// The record that follows a verified copy. The checksums go first: a crash between finds `Draining`.
    fn verdict(&self, job: &Job<'_>, left: Fingerprint, done: bool) -> Record {
        let mut summed = true;
        if job.size > SMALL_BYTES && (job.copied.changed || job.copied.sums.size == job.size) {
            let stored = job.copied.sums.store(&self.replicas.sums_path(job.record.version));
            summed = stored.inspect_err(|error| tracing::warn!(%error, "cannot keep checksums")).is_ok();
        }
        fault::point("w7.sums");
        if done && left.mtime != job.mtime {
            // A store with coarser times: both copies say the same from now on.
            let _ = replica::set_mtime(job.replica.as_fd(), left.mtime);
        }
        Record {
            state: if done { State::Clean } else { State::Dirty },
            base: left,
            epoch: if done { job.record.epoch } else { job.record.epoch.next() },
            was_clean: summed || done,
            orphaned: false,
            reason: String::new(),
            ..job.record.clone()
        }
    }

    /// W7 is committed. Gate held.
    fn concluded(&self, job: &Job<'_>, clean: bool) {
        {
            let mut live = job.file.live.lock();
            live.record = Some(job.record.clone());
            live.left = None;
            live.checked = Some(self.now());
            live.verified = true;
            live.succeed();
            if !clean {
                live.dirty_since = self.now();
            }
        }
        Counters::add(&self.counters.out_files, 1);
        Counters::add(&self.counters.out_bytes, job.copied.bytes);
        Counters::add(&self.counters.out_us, job.started.elapsed().as_micros() as u64);
        if !clean {
            return;
        }
        self.replicas.unbrand(job.record.version);
        let unused = job.file.live.lock().handles == 0;
        if unused {
            self.drop_or_keep(job.file);
            fault::point("w8.dropped");
        }
    }

    /// The copy did not end: what it left below is remembered, so that the next try does not take it for an outsider's.
    fn failed(&self, job: Job<'_>, error: io::Error) -> End {
        if job.file.live.lock().unlinked {
            return End::Nothing;
        }
        let left = if job.begun { job.anchor.attributes().ok().map(|found| found.fingerprint) } else { None };
        drop(job.global);
        let _gate = job.file.gate.lock();
        self.note_failure(job.file, error, left)
    }

    fn conflict(&self, job: &Job<'_>, reason: &str) -> End {
        let _gate = job.file.gate.lock();
        if job.file.live.lock().unlinked {
            return End::Nothing;
        }
        self.record_conflict(job.file, job.record.clone(), reason)
    }
}

/// Commits `Draining` before the first change of the global copy.
struct Announcer<'a> {
    inner: &'a Inner,
    file: &'a File,
    record: &'a mut Record,
    replica: &'a OwnedFd,
    begun: &'a mut bool,
    interrupted: &'a dyn Fn() -> bool,
    rate: u64,
}

impl Progress for Announcer<'_> {
    fn before_write(&mut self, bytes: u64) -> io::Result<()> {
        self.inner.throttle.take(bytes, self.rate);
        if *self.begun {
            return Ok(());
        }
        // W2: what is about to replace the global copy must outlive a crash of the machine.
        rustix::fs::fdatasync(self.replica)?;
        fault::point("w2.synced");
        let _gate = self.file.gate.lock();
        if self.file.live.lock().unlinked {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.record.state = State::Draining;
        self.inner.put(self.file, self.record.clone(), Durability::Machine)?;
        {
            let mut live = self.file.live.lock();
            live.synced = true;
            live.intent_synced = true;
        }
        fault::point("w3.draining");
        *self.begun = true;
        Ok(())
    }

    fn looked(&mut self) -> io::Result<()> {
        if (self.interrupted)() || self.inner.is_dead() {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if self.file.live.lock().unlinked {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(())
    }
}

/// Whether a store keeps `wanted` as `found`: it may cut to a coarser unit, at most two seconds.
fn is_time(found: Timestamp, wanted: Timestamp) -> bool {
    found <= wanted && (found.seconds >= wanted.seconds - 2)
}

fn clone_error(error: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(errno(error))
}

/// What an operator reads of a conflict.
fn difference(expected: &Fingerprint, found: &Fingerprint) -> String {
    let time = |stamp: &Timestamp| format!("{}.{:09}", stamp.seconds, stamp.nanos);
    format!(
        "the global copy changed: expected {} bytes of {}, found {} bytes of {}",
        expected.size,
        time(&expected.mtime),
        found.size,
        time(&found.mtime)
    )
}
