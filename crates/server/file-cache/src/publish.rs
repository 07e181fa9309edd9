//! `publish = atomic`: a stage-out into a hidden file, which then takes the place of the global copy in one rename.
//!
//! Who reads the global store sees all of the former content or all of the new one. The new file is another file: it has a
//! record of its own from before its first byte, of the same replica, whose hint is the hidden name.
//!
//! | step | what is done | what a crash after it leaves, and what the next start does |
//! | --- | --- | --- |
//! | A1 | a hidden file is made beside the global copy | that file; it goes when the file is staged out again, or with its directory |
//! | A2 | its record | the file and two records of a replica: file and record are removed |
//! | A3 | the data is written | the same |
//! | A4 | it has time, owner, mode and attributes, and is on the medium, and so is its record | the same |
//! | A5 | it takes the name | two records, and the new one leads to a file with an honest name: the old one is removed, and the stage-out ends as in W4 to W7, comparing |
//! | A6 | the directory is synced | the same |
//! | A7 | the replica's brand is taken away, one commit removes the old record and calls the new one clean | nothing to do |
//!
//! A5 happens with `names` locked for writing, which every change of names and attributes through us locks for reading, and
//! with the old file's gate: what was changed before is seen and makes the new file unfit, what comes later finds that the old
//! file is *superseded*, hears `ESTALE`, and the kernel looks the name up again. Nobody has the file open or mapped then.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use catalogue::{Change, Durability, Record, State};
use config::Verify;
use global_store::{Successor, hidden};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use types::{ByteRange, Fingerprint, Identity};

use crate::cache::{Counters, Inner};
use crate::copy::{Copy, Extent, Progress};
use crate::fault;
use crate::file::{Body, Descriptors, File};
use crate::lease::{self, Nobody};
use crate::limits::{NAMES_WAIT, SMALL_BYTES, SUPERSEDED_MAX};
use crate::replica::Replicas;
use crate::settle::is_time;
use crate::stage_out::{End, Job};

/// Whether a stage-out was taken over.
pub(crate) enum Told<'a> {
    /// It goes on in place.
    InPlace(Box<Job<'a>>),
    /// It ended.
    Over(End),
}

/// What became of a hidden file.
enum Outcome {
    Placed,
    /// The file is in use, or was changed: later.
    Busy,
    /// It cannot be given what the other has.
    Unfit,
}

/// Called with each file that lost its place.
type Tell = Box<dyn Fn(&Identity) + Send + Sync>;

/// What files that take others' places share.
#[derive(Default)]
pub(crate) struct Places {
    /// Before any gate: shared by changes of names and attributes, exclusive while a file takes another's place.
    pub(crate) names: RwLock<()>,
    pub(crate) superseded: Superseded,
    /// Files that are gone, whose records the next commit removes.
    pub(crate) obsolete: Mutex<Vec<Identity>>,
    /// Hears of each file that lost its place.
    pub(crate) told: OnceLock<Tell>,
}

/// Files whose place another has taken, through us and in this process's life. The kernel may know them for a while.
#[derive(Default)]
pub(crate) struct Superseded {
    any: AtomicBool,
    all: Mutex<(HashSet<Identity>, VecDeque<Identity>)>,
}

impl Superseded {
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.any.load(Ordering::Acquire) && self.all.lock().0.contains(identity)
    }

    fn add(&self, identity: &Identity) {
        let mut all = self.all.lock();
        if all.0.insert(identity.clone()) {
            all.1.push_back(identity.clone());
        }
        if all.1.len() > SUPERSEDED_MAX
            && let Some(oldest) = all.1.pop_front()
        {
            all.0.remove(&oldest);
        }
        self.any.store(true, Ordering::Release);
    }

    /// It has its place again.
    pub(crate) fn take_back(&self, identity: &Identity) {
        if !self.has(identity) {
            return;
        }
        let mut all = self.all.lock();
        all.0.remove(identity);
        all.1.retain(|other| other != identity);
    }
}

/// A copy into a file that nobody sees: the global copy is not touched.
struct Hidden<'a> {
    inner: &'a Inner,
    file: &'a File,
    record: &'a Record,
    interrupted: &'a dyn Fn() -> bool,
    rate: u64,
}

impl Progress for Hidden<'_> {
    fn before_write(&mut self, bytes: u64) -> io::Result<()> {
        if !self.inner.throttle.take(bytes, self.rate, &|| (self.interrupted)() || self.inner.is_dead()) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        Ok(())
    }

    fn looked(&mut self) -> io::Result<()> {
        if (self.interrupted)() || self.inner.is_dead() {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if !crate::announce::is_wanted(self.record, &self.file.live.lock()) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(())
    }

    /// The next try writes another file.
    fn lost(&mut self) {}
}

impl Inner {
    /// Held while names or attributes of files are changed through us: no file takes another's place meanwhile.
    pub(crate) fn steady_names(&self) -> RwLockReadGuard<'_, ()> {
        // One thread may take it twice, and nobody shall wait for a stage-out that waits.
        self.places.names.read_recursive()
    }

    /// Stages a file out into a successor, if its policy says so and it can have one. `patient`: it can wait until nobody uses the
    /// file; else what is in use is written in place.
    pub(crate) fn publish<'a>(&self, job: Job<'a>, patient: bool, interrupted: &dyn Fn() -> bool) -> Told<'a> {
        let mut job = Box::new(job);
        // What was begun in place must be ended there, and what is empty on both sides is not written.
        let in_place = !job.policy.publish_atomic || self.settings.in_place || job.begun;
        if in_place || (job.size == 0 && job.before.size == 0) {
            return Told::InPlace(job);
        }
        if !self.is_unused(&job) {
            return if patient { Told::Over(End::StillDirty) } else { Told::InPlace(job) };
        }
        let hidden = hidden::name(&self.settings.agent_id, job.record.version.0);
        let mut next = match job.anchor.begin_successor(&hidden) {
            Ok(Some(next)) => next,
            Ok(None) => return Told::InPlace(job),
            Err(error) => return Told::Over(self.failed(*job, error)),
        };
        fault::point("a1.begun");
        let outcome = match self.fill(&mut job, &mut *next, interrupted) {
            Ok(Outcome::Placed) => return Told::Over(self.succeed(*job, &*next, interrupted)),
            other => other,
        };
        let identity = next.identity().clone();
        drop(next);
        self.forget_record(&identity);
        match outcome {
            Ok(Outcome::Unfit) => Told::InPlace(job),
            Ok(_) => Told::Over(End::StillDirty),
            Err(error) => Told::Over(self.failed(*job, error)),
        }
    }

    /// Whether nobody has the file open or mapped, and it is what it was when the job began.
    fn is_unused(&self, job: &Job<'_>) -> bool {
        let idle = {
            let live = job.file.live.lock();
            live.handles == 0 && live.changes == job.changes && job.is_wanted(&live)
        };
        idle && lease::probe(job.replica.as_fd(), Nobody::Uses).unwrap_or(false)
    }

    /// A1 to A5.
    fn fill(&self, job: &mut Job<'_>, next: &mut dyn Successor, interrupted: &dyn Fn() -> bool) -> io::Result<Outcome> {
        let mut record = Record { state: State::Draining, hint: next.path_hint(), ..job.record.clone() };
        self.commit(vec![Change::Put(next.identity().clone(), record.clone())], Durability::Process)?;
        fault::point("a2.recorded");
        // What replaces the global copy must outlive a crash of the machine, as in W2.
        rustix::fs::fdatasync(&job.replica)?;
        let rate = job.policy.rate_bytes_per_s;
        let mut progress = Hidden { inner: self, file: job.file, record: &job.record, interrupted, rate };
        job.copied = Copy::new(&job.replica, job.size, next.file(), 0, &mut progress).run(&Extent::Everything)?;
        if job.size > SMALL_BYTES {
            next.file().leave_behind(ByteRange::new(0, job.size))?;
        }
        fault::point("a3.written");
        next.file().set_mtime(job.mtime)?;
        if !next.dress()? {
            return Ok(Outcome::Unfit);
        }
        next.file().sync()?;
        let found = next.file().attributes()?.fingerprint;
        let complete = found.size == job.size && is_time(found.mtime, job.mtime);
        let verified = job.policy.verify != Verify::Full
            || Copy::new(&job.replica, job.size, next.file(), job.size, &mut progress).verify()?;
        if !complete || !verified {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        (record.base, record.synced) = (found, true);
        self.commit(vec![Change::Put(next.identity().clone(), record)], Durability::Machine)?;
        fault::point("a4.synced");
        self.take_place(job, next)
    }

    /// A5. Both locks are waited for only so long: who holds `names` may be in a call to the store, and may want the gate.
    fn take_place(&self, job: &Job<'_>, next: &mut dyn Successor) -> io::Result<Outcome> {
        let Some(_names) = self.places.names.try_write_for(NAMES_WAIT) else { return Ok(Outcome::Busy) };
        let Some(_gate) = job.file.gate.try_lock_for(NAMES_WAIT) else { return Ok(Outcome::Busy) };
        // Who changed the global copy meanwhile is found out by the next try, and is a conflict.
        if !self.is_unused(job) || !job.anchor.attributes()?.fingerprint.same_content(&job.before) {
            return Ok(Outcome::Busy);
        }
        let identity = &job.file.identity;
        self.places.superseded.add(identity);
        match next.take_place() {
            Ok(true) => {}
            other => {
                self.places.superseded.take_back(identity);
                return other.map(|_| Outcome::Busy);
            }
        }
        // Where files are known by numbers that are used again, it may be called as one that lost its place before.
        self.places.superseded.take_back(next.identity());
        fault::point("a5.placed");
        Counters::add(&self.counters.settled, 1);
        self.queue.remove(job.file);
        self.expiry.forget(identity);
        {
            let mut live = job.file.live.lock();
            (live.record, live.version, live.anchor) = (None, None, None);
            live.body = Body::Empty;
            live.fds = Descriptors::default();
            live.succeed();
        }
        self.retire(job.file);
        Ok(Outcome::Placed)
    }

    /// A6 and A7, with whatever programs do to the new file already.
    fn succeed(&self, job: Job<'_>, next: &dyn Successor, interrupted: &dyn Fn() -> bool) -> End {
        let old = job.file.identity.clone();
        self.places.told.get().iter().for_each(|tell| tell(&old));
        let left = next.sync_name().and_then(|()| Ok(next.file().attributes()?.fingerprint));
        fault::point("a6.synced");
        // Who finds a brand takes the replica for dirty, and its file for the old one.
        Replicas::unbrand_open(job.replica.as_fd());
        let left = left.and_then(|left| rustix::fs::fsync(&job.replica).map(|()| left).map_err(io::Error::from));
        let inherited = self.gated(next.identity(), false, |file, _| {
            let clean = self.inherit(file, job, left);
            if !clean {
                self.forget_record(&old);
            }
            (Arc::clone(file), clean)
        });
        fault::point("a7.committed");
        match inherited {
            Ok((_, true)) => End::Clean,
            // It ends in place, where all is by now.
            Ok((file, false)) => self.drain_one(&file, interrupted),
            Err(error) => {
                self.forget_record(&old);
                End::Stuck { state: crate::api::Residency::Draining, orphaned: false, error }
            }
        }
    }

    /// The new file has the replica from now on; whether it is clean. Its gate is held.
    fn inherit(&self, file: &Arc<File>, job: Job<'_>, left: io::Result<Fingerprint>) -> bool {
        let (record, untouched) = {
            let mut live = file.live.lock();
            live.policy = Arc::clone(&job.policy);
            (live.record.clone(), live.changes == 0)
        };
        let Some(record) = record else { return false };
        let clean = left.ok().filter(|_| untouched && record.version == job.record.version);
        let Some(left) = clean else {
            let _ = self.put(file, Record { hint: job.record.hint, ..record }, Durability::Process);
            return false;
        };
        let record = self.verdict(&job, left, true);
        let changes =
            vec![Change::Remove(job.file.identity.clone()), Change::Put(file.identity.clone(), record.clone())];
        if let Err(error) = self.commit(changes, Durability::Process) {
            tracing::warn!(%error, "a published file is not recorded as clean; it is compared again");
            return false;
        }
        let unused = {
            let mut live = file.live.lock();
            live.record = Some(record);
            live.checked = Some(self.now());
            (live.verified, live.synced) = (true, true);
            live.clean_commit = self.commits.load(Ordering::Acquire);
            live.handles == 0
        };
        Counters::add(&self.counters.settled, 1);
        Counters::add(&self.counters.out_files, 1);
        Counters::add(&self.counters.out_bytes, job.copied.bytes);
        // Our own descriptor of the replica would pass for somebody's use of it.
        drop(job);
        if unused {
            self.drop_or_keep(file);
        }
        true
    }

    /// Removes a record that no file has any more; with a later commit if this one fails.
    fn forget_record(&self, identity: &Identity) {
        if let Err(error) = self.commit(vec![Change::Remove(identity.clone())], Durability::Process) {
            tracing::warn!(%error, "the record of a file that is gone stays until another is written");
            self.places.obsolete.lock().push(identity.clone());
        }
    }

    /// We died while files had successors: what the records of both say is brought together.
    pub(crate) fn settle_successors(&self, found: &mut Vec<(Identity, Record)>) -> io::Result<()> {
        let is_hidden = |record: &Record| record.hint.file_name().is_some_and(hidden::is_hidden);
        let hidden: Vec<_> = found.extract_if(.., |(_, record)| is_hidden(record)).collect();
        for (identity, mut record) in hidden {
            let old = found.iter().position(|(_, other)| other.version == record.version);
            let hint = old.map_or(&record.hint, |old| &found[old].1.hint);
            let path = self.store.locate(&identity, hint, false)?.map(|anchor| anchor.path_hint()).unwrap_or_default();
            if path.file_name().is_none_or(hidden::is_hidden) {
                self.store.remove_hidden(&record.hint)?;
                self.store.remove_hidden(&path)?;
                self.commit(vec![Change::Remove(identity)], Durability::Machine)?;
                continue;
            }
            record.hint = path;
            let mut changes = vec![Change::Put(identity.clone(), record.clone())];
            if let Some(old) = old {
                changes.push(Change::Remove(found.swap_remove(old).0));
            }
            self.commit(changes, Durability::Machine)?;
            found.push((identity, record));
        }
        Ok(())
    }
}
