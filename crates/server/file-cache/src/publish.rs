//! `publish = atomic`: a stage-out into a hidden file, which then takes the place of the global copy in one rename.
//!
//! Who reads the global store sees all of the former content or all of the new one. The new file is another file. While it is
//! made, the record of the old one says so (`Record::successor`), so that there is one record of a replica at any moment.
//!
//! | step | what is done | what a crash after it leaves, and what the next start does |
//! | --- | --- | --- |
//! | A1 | the record says that a hidden file may be beside the global copy | a dirty file; a hidden file is looked for and removed |
//! | A2 | that file is made | the same |
//! | A3 | the data is written | the same |
//! | A4 | it has time, owner, mode and attributes, and is on the medium, and so is the record, with who it is and what it looks like | the same |
//! | A5 | it takes the name | the file of which the record tells has an honest name: that is synced, the record becomes its own, dirty over what A4 saw, and all is written and synced once more in place, unless somebody changed it since |
//! | A6 | the directory is synced | the same |
//! | A7 | one commit removes the old record and calls the new file clean | nothing to do |
//!
//! A5 happens with `names` locked for writing, which every change of names and attributes through us locks for reading, and
//! with the old file's gate: what was changed before is seen, what comes later finds a file without a name, hears `ESTALE`, and
//! the kernel looks the name up again. Both gates are held until A7: who comes by the old file does not find its record any more, and
//! who finds the new one by its name opens it when it is known to be clean, or is dirty with its mark and its brand.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::{Change, Durability, Record, State, Successor as Named};
use config::Verify;
use global_store::{Dressed, Successor, hidden};
use parking_lot::{MutexGuard, RwLockWriteGuard};
use types::{ByteRange, Fingerprint};

use crate::announce::is_wanted;
use crate::cache::{Counters, Inner, errno};
use crate::copy::{Copy, Extent, Progress};
use crate::fault;
use crate::file::{Body, Descriptors, File};
use crate::lease::{self, Nobody};
use crate::limits::{NAMES_TRIES, NAMES_WAIT, REDRESSES, SMALL_BYTES};
use crate::marks;
use crate::pace::Pace;
use crate::replica::Replicas;
use crate::settle::is_time;
use crate::stage_out::{End, Job};

/// While both are held nobody changes names or attributes, and nobody opens the old file.
type Seized<'a> = (RwLockWriteGuard<'a, ()>, MutexGuard<'a, ()>);

/// What became of a hidden file.
enum Outcome {
    Placed(End),
    /// The file is in use, or something of it changed.
    Busy,
    /// Something was changed of the file, and it has that now, but not on the medium.
    Redressed,
    /// It cannot have what the other has.
    Unfit,
    /// The rename failed, and it cannot be found out whether it happened: the record goes on telling of it, for the next start.
    Doubtful(io::Error),
}

/// A copy into a file that nobody sees: the global copy is not touched.
struct Hidden<'a> {
    inner: &'a Inner,
    file: &'a File,
    record: &'a Record,
    interrupted: &'a dyn Fn() -> bool,
    rate: u64,
    pace: Pace,
}

impl Progress for Hidden<'_> {
    fn before_write(&mut self, bytes: u64) -> io::Result<()> {
        if !self.inner.throttle.take(bytes, self.rate, &|| (self.interrupted)() || self.inner.is_dead()) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        Ok(())
    }

    fn looked(&mut self, end: u64) -> io::Result<()> {
        self.file.passed.store(end, Ordering::Relaxed);
        self.pace.make_room(self.inner.open_for_writing.load(Ordering::Relaxed));
        if (self.interrupted)() || self.inner.is_dead() {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if !is_wanted(self.record, &self.file.live.lock()) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(())
    }

    /// The next try writes another file.
    fn lost(&mut self) {}
}

impl Inner {
    /// Stages a file out into a successor, if its policy says so and it can have one. `patient`: it can wait until nobody uses the
    /// file; else what is in use is written in place. `None`: it is to be staged out in place.
    pub(crate) fn publish(&self, file: &Arc<File>, patient: bool, interrupted: &dyn Fn() -> bool) -> Option<End> {
        if self.settings.in_place || !file.live.lock().policy.publish_atomic {
            return None;
        }
        file.passed.store(0, Ordering::Relaxed);
        let mut job = match self.begin(file) {
            Ok(job) => job,
            Err(end) => return Some(end),
        };
        // What was begun in place must be ended there, and what is empty on both sides is not written.
        if job.begun || file.live.lock().unsynced_below || (job.size == 0 && job.before.size == 0) {
            return None;
        }
        if !self.is_unused(&job) || (patient && !self.may_publish()) {
            return patient.then_some(End::StillDirty);
        }
        let outcome = match self.prepare(&mut job, interrupted) {
            Ok(Some((next, left))) => self.succeed(job, next, left, interrupted),
            Ok(None) => Ok(Outcome::Unfit),
            Err(error) => Err(error),
        };
        // Ours is the gate from here on: a change of attributes that came between would pass for an outsider's.
        let _gate = file.gate.lock();
        match outcome {
            Ok(Outcome::Placed(end)) => return Some(end),
            Ok(Outcome::Doubtful(error)) => return Some(self.note_failure(file, error, None)),
            Ok(Outcome::Busy | Outcome::Redressed | Outcome::Unfit) | Err(_) => self.forget_successor(file),
        }
        match outcome {
            Ok(Outcome::Busy | Outcome::Redressed) if patient => Some(End::StillDirty),
            Err(_) if file.live.lock().unlinked => Some(End::Nothing),
            Err(error) => Some(self.note_failure(file, error, None)),
            Ok(_) => None,
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

    /// A1 to A4: a file that has all that it is to have, and what it looks like. `None`: there can be no such file.
    fn prepare(
        &self,
        job: &mut Job<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<(Box<dyn Successor>, Fingerprint)>> {
        self.record_successor(job, Named::default(), Durability::Process)?;
        fault::point("a1.recorded");
        let hidden = hidden::name(&self.settings.agent_id, job.record.version.0);
        let Some(next) = job.anchor.begin_successor(&hidden)? else { return Ok(None) };
        fault::point("a2.begun");
        // What cannot be had is known before much is written.
        if job.size > SMALL_BYTES && !next.is_fit()? {
            return Ok(None);
        }
        // What replaces the global copy must outlive a crash of the machine, as in W2.
        rustix::fs::fdatasync(&job.replica)?;
        let (file, record, rate) = (job.file, &job.record, job.policy.rate_bytes_per_s);
        let mut progress = Hidden { inner: self, file, record, interrupted, rate, pace: Pace::new() };
        job.copied = Copy::new(&job.replica, job.size, next.file(), 0, &mut progress).run(&Extent::Everything)?;
        if job.size > SMALL_BYTES {
            next.file().leave_behind(ByteRange::new(0, job.size))?;
        }
        fault::point("a3.written");
        next.file().set_mtime(job.mtime)?;
        if next.dress()? == Dressed::Unfit {
            return Ok(None);
        }
        next.file().sync()?;
        let left = next.file().attributes()?.fingerprint;
        let complete = left.size == job.size && is_time(left.mtime, job.mtime);
        let full = job.policy.verify == Verify::Full;
        if !complete || (full && !Copy::new(&job.replica, job.size, next.file(), job.size, &mut progress).verify()?) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let named = Named { identity: Some(next.identity().clone()), left };
        self.record_successor(job, named, Durability::Machine)?;
        fault::point("a4.synced");
        Ok(Some((next, left)))
    }

    /// Says in the record what is being made beside the file.
    fn record_successor(&self, job: &mut Job<'_>, named: Named, durability: Durability) -> io::Result<()> {
        let path = job.anchor.path_hint();
        let _gate = job.file.gate.lock();
        let wanted = {
            let live = job.file.live.lock();
            live.record.clone().filter(|_| is_wanted(&job.record, &live))
        };
        let Some(record) = wanted else { return Err(io::Error::from_raw_os_error(libc::ENOENT)) };
        let hint = if path.as_os_str().is_empty() { record.hint.clone() } else { path };
        let synced = record.synced || durability == Durability::Machine;
        job.record = Record { successor: Some(named), hint, synced, ..record };
        self.put(job.file, job.record.clone(), durability)
    }

    /// Nothing is being made any more. Gate held.
    fn forget_successor(&self, file: &File) {
        let record = file.live.lock().record.clone();
        if let Some(record) = record.filter(|record| record.successor.is_some()) {
            // One that stays leads the next start to nothing.
            let _ = self.put(file, Record { successor: None, ..record }, Durability::Process);
        }
    }

    /// A5 to A7, with the gate of the new file.
    fn succeed(
        &self,
        job: Job<'_>,
        mut next: Box<dyn Successor>,
        left: Fingerprint,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Outcome> {
        let (old, heir) = (job.file, self.file_for(next.identity()));
        let (Some(drain), Some(gate)) = (heir.drain.try_lock(), heir.gate.try_lock()) else { return Ok(Outcome::Busy) };
        let Some((names, old_gate)) = self.seize(&job, interrupted) else { return Ok(Outcome::Busy) };
        let mut held = (names, old_gate);
        let mut redressed = 0;
        while let Some(refused) = self.take_place(&job, &mut *next, left, &heir)? {
            if !matches!(refused, Outcome::Redressed) || redressed == REDRESSES {
                return Ok(refused);
            }
            redressed += 1;
            // That takes long: nobody waits for it.
            drop(held);
            next.file().sync()?;
            let Some(again) = self.seize(&job, interrupted) else { return Ok(Outcome::Busy) };
            held = again;
        }
        let (names, old_gate) = held;
        drop(names);
        self.places.told.get().iter().for_each(|tell| tell(&old.identity));
        let clean = self.inherit(&heir, job, &*next, left);
        // Not before: until its record is gone from the catalogue who comes by it waits for its gate.
        self.retire(old);
        fault::point("a7.committed");
        drop((old_gate, gate, drain));
        // It ends in place, where all is by now.
        Ok(Outcome::Placed(if clean { End::Clean } else { self.drain_one(&heir, interrupted) }))
    }

    /// `names` and the old file's gate. Both are waited for only so long: who has `names` may be in a call to the store, and may want
    /// the gate.
    fn seize<'a>(&'a self, job: &Job<'a>, interrupted: &dyn Fn() -> bool) -> Option<Seized<'a>> {
        let mut tries = (0..NAMES_TRIES).take_while(|_| self.is_unused(job) && !interrupted() && !self.is_dead());
        let names = tries.find_map(|_| self.places.names.try_write_for(NAMES_WAIT))?;
        Some((names, job.file.gate.try_lock_for(NAMES_WAIT)?))
    }

    /// A5, unless something is in the way. `names` and both gates are held.
    fn take_place(
        &self,
        job: &Job<'_>,
        next: &mut dyn Successor,
        left: Fingerprint,
        heir: &Arc<File>,
    ) -> io::Result<Option<Outcome>> {
        // What was read of the file is told by the time that the new one gets.
        self.settle_reads(job.file);
        // Times of changes are too coarse to tell whether there was one since.
        match next.dress()? {
            Dressed::Unfit => return Ok(Some(Outcome::Unfit)),
            Dressed::Changed => return Ok(Some(Outcome::Redressed)),
            Dressed::Same => {}
        }
        // Last: who changed the global copy is found out by the next try, and is a conflict.
        let same = self.is_unused(job) && job.anchor.attributes()?.fingerprint.same_content(&job.before);
        if !same || !is_free(heir) {
            return Ok(Some(Outcome::Busy));
        }
        self.places.any.store(true, Ordering::Release);
        match next.take_place() {
            Ok(true) => {}
            Ok(false) => return Ok(Some(Outcome::Busy)),
            Err(error) if next.is_placed() != Some(false) => return Ok(Some(Outcome::Doubtful(error))),
            // A directory may take files and give none away.
            Err(error) if matches!(errno(&error), libc::EPERM | libc::EACCES) => return Ok(Some(Outcome::Unfit)),
            Err(error) => return Err(error),
        }
        fault::point("a5.placed");
        self.hand_over(job, left, heir);
        Ok(None)
    }

    /// The replica is the new file's from now on, which is dirty over what A4 saw. Both gates are held.
    fn hand_over(&self, job: &Job<'_>, left: Fingerprint, heir: &Arc<File>) {
        Counters::add(&self.counters.settled, 1);
        self.queue.remove(job.file);
        self.expiry.forget(&job.file.identity);
        self.expiry.forget(&heir.identity);
        let (record, version) = {
            let mut live = job.file.live.lock();
            (live.anchor, live.left) = (None, None);
            live.body = Body::Empty;
            live.fds = Descriptors::default();
            live.succeed();
            (live.record.take(), live.version.take())
        };
        // Whoever asks for the old one's end hears of the new one's.
        let _ = job.file.heir.set(Arc::clone(heir));
        let now = self.now();
        let mut live = heir.live.lock();
        live.loaded = true;
        live.policy = Arc::clone(&job.policy);
        (live.body, live.version) = (Body::Whole, version);
        live.record = record.map(|record| Record {
            state: State::Dirty,
            base: left,
            was_clean: false,
            orphaned: false,
            successor: None,
            reason: String::new(),
            ..record
        });
        (live.name_unsynced, live.dirty_since) = (true, now);
    }

    /// A6 and A7; whether the new file is clean. Its gate is held.
    fn inherit(&self, heir: &Arc<File>, mut job: Job<'_>, next: &dyn Successor, left: Fingerprint) -> bool {
        let named = next.sync_name();
        let record = {
            let mut live = heir.live.lock();
            live.name_unsynced = named.is_err();
            if named.is_err()
                && let Some(record) = &mut live.record
            {
                // After a crash the next start looks whether it has the name.
                record.successor = Some(Named { identity: Some(heir.identity.clone()), left });
            }
            live.record.clone()
        };
        fault::point("a6.synced");
        let found = named.and_then(|()| next.file().attributes());
        let found = found.inspect_err(|error| tracing::warn!(%error, "a published file is written again in place"));
        let Some(record) = record else { return false };
        job.record = record;
        let unchanged = found.ok().map(|found| found.fingerprint).filter(|found| found.same_content(&left));
        if let Some(found) = unchanged
            && self.inherit_clean(heir, &job, found).inspect_err(|error| tracing::warn!(%error, "not clean")).is_ok()
        {
            // Our own descriptor of the replica would pass for somebody's use of it.
            drop(job);
            self.drop_or_keep(heir);
            return true;
        }
        self.inherit_dirty(heir, &job, next);
        false
    }

    fn inherit_clean(&self, heir: &Arc<File>, job: &Job<'_>, found: Fingerprint) -> io::Result<()> {
        // Who finds a brand takes the replica for dirty, and its file for the old one: it goes first, for good.
        Replicas::unbrand_open(job.replica.as_fd());
        rustix::fs::fsync(&job.replica)?;
        let record = self.verdict(job, found, true);
        let old = job.file.identity.clone();
        let changes = vec![Change::Remove(old), Change::Put(heir.identity.clone(), record.clone())];
        self.commit(changes, Durability::Process)?;
        {
            let mut live = heir.live.lock();
            live.record = Some(record);
            live.checked = Some(self.now());
            (live.verified, live.synced) = (true, true);
            live.clean_commit = self.commits.load(Ordering::Acquire);
        }
        Counters::add(&self.counters.settled, 1);
        Counters::add(&self.counters.out_files, 1);
        Counters::add(&self.counters.out_bytes, job.copied.bytes);
        Ok(())
    }

    /// The new file is dirty like any other before somebody can open it: with a mark, a brand and a record.
    fn inherit_dirty(&self, heir: &Arc<File>, job: &Job<'_>, next: &dyn Successor) {
        let record = &job.record;
        // The next stage-out writes and syncs all in place, and the name if need be.
        heir.live.lock().unsynced_below = true;
        if self.store.is_shared()
            && let Err(error) = marks::set(&*next.anchor(), &self.settings.agent_id, record.epoch)
        {
            tracing::warn!(%error, file = %record.hint.display(), "a published file has no mark; who changes it is a conflict");
        }
        self.brand(heir, job.replica.as_fd(), record);
        let old = job.file.identity.clone();
        let changes = vec![Change::Remove(old), Change::Put(heir.identity.clone(), record.clone())];
        if self.commit(changes.clone(), Durability::Process).is_err() {
            self.places.owed.lock().extend(changes);
        }
    }
}

/// Whether nothing is known of a file but its identity, which may have been another's. Gate held.
fn is_free(file: &File) -> bool {
    let live = file.live.lock();
    let nothing = live.record.is_none() && live.version.is_none() && matches!(live.body, Body::Empty);
    nothing && live.handles == 0 && !live.unlinked && !live.retired
}
