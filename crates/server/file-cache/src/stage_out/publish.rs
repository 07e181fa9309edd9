//! `publish = atomic`: a stage-out into a hidden file, which then takes the place of the global copy in one rename.
//!
//! A reader of the global store sees either the whole former content or the whole new one. The new file is another
//! file, and nothing is known of it here. The former one counts as removed by a program, and `removal.rs` describes
//! what a crash makes of that. While there is a hidden file, its record says `removing`, so a start that finds both
//! removes the hidden one.
//!
//! | step | what is done | what a crash after it leaves, and what the next start does |
//! | --- | --- | --- |
//! | A1 | the hidden file is made | a dirty file; the hidden one goes with its next publication, or with its directory |
//! | A2 | the replica is on the medium, and so is a record that says `removing` | a dirty file; the hidden one goes. Where the former file is gone although there is a hidden one, somebody else removed it: an orphan |
//! | A3 | the data is written | the same |
//! | A4 | it has time, owner, mode and attributes, is on the medium and was looked at | the same |
//! | A5 | it takes the name | the former file is gone: as from `unlink.below` on. A crash of the store that takes the rename back leaves the former file, dirty, and its replica |
//! | A6 | the directory is synced | the same, but that the rename lasts. If that failed record and replica stay, and are told as an orphan while we live |
//! | `unlink.record` | the record is removed | nothing to do |
//!
//! A5 runs with the gate and with `names` locked for writing. Every change of names and attributes through the agent
//! locks `names` for reading. A change before A5 is therefore seen. A change after it finds a file without a name and
//! gets `ESTALE`, and the kernel looks the name up again.
//!
//! Somebody else may remove both files between A2 and A5, also the hidden one. If the agent dies then, the next start
//! takes the removal for the agent's own.
//!
//! A file is published only where all this is certain: it has one name, nobody has it open or mapped, it is not pinned
//! and was not begun in place, and the store finds files by identity. Every other file is written in place.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use catalogue::{Durability, Record};
use concurrency::RwLockWriteGuard;
use config::Verify;
use global_store::{Dressed, Successor, hidden};
use types::{ByteRange, Fingerprint, Identity, Moved, Shown};

use super::announce::is_wanted;
use super::copy::{Copy, CopyProgress, Extent};
use super::finish::date;
use super::pace::CopyPace;
use super::{StageOutJob, StageOutResult};
use crate::burst_buffer::lease::{self, Nobody};
use crate::cache::{CacheCounters, Inner};
use crate::errors::{errno, here, os};
use crate::fault;
use crate::global_copy::doubt::is_renamed;
use crate::limits::{NAMES_TRIES, NAMES_WAIT, SMALL_BYTES};
use crate::residency::{File, Gate, Live, NameHold};

/// Both locks. While they are held, nobody changes names or attributes, and nobody opens the file.
type Seized<'a> = (RwLockWriteGuard<'a, ()>, Gate<'a>);

enum Outcome {
    Placed,
    /// The file is in use, or something of it changed.
    Busy,
    /// The hidden file cannot have the owner, mode or attributes of the former one.
    Unfit,
    /// Whether the rename happened, or lasts, is unknown: the record and the replica stay, and the next start looks.
    Doubtful(io::Error),
}

/// Error of a copy whose file was changed, moved or removed meanwhile: the copy is useless.
const CHANGED: i32 = libc::ECANCELED;

/// A copy into a hidden file: the global copy is not changed.
struct Hidden<'a> {
    inner: &'a Inner,
    file: &'a File,
    record: &'a Record,
    changes: u64,
    interrupted: &'a dyn Fn() -> bool,
    rate: u64,
    pace: CopyPace,
}

impl CopyProgress for Hidden<'_> {
    fn before_write(&mut self, bytes: u64) -> io::Result<()> {
        self.inner.take_turn_to_write(bytes, self.rate, self.interrupted)
    }

    /// The hidden file is empty at first, so nothing is cut off.
    fn before_cut(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn looked(&mut self, end: u64) -> io::Result<()> {
        self.file.passed.store(end, Ordering::Relaxed);
        self.pace.make_room(self.inner.counters.open_for_writing.load(Ordering::Relaxed));
        if (self.interrupted)() || self.inner.is_dead() {
            return os(libc::EINTR);
        }
        let live = self.file.live.lock();
        let same = live.changes == self.changes && live.place == NameHold::GivenUp && is_wanted(self.record, &live);
        if same { Ok(()) } else { os(CHANGED) }
    }

    /// The next try writes another file.
    fn lost(&mut self) {}
}

impl Inner {
    fn hidden_name(&self, record: &Record) -> OsString {
        hidden::name(&self.settings.agent_id, record.version.0)
    }

    /// Removes the hidden file of a record after the agent died during a publication. Returns whether there was one.
    /// It has not taken the place. If the former file is gone nevertheless, somebody else removed it.
    pub(crate) fn take_hidden_away(&self, record: &Record) -> io::Result<bool> {
        self.store.remove_hidden(&record.hint.with_file_name(self.hidden_name(record)))
    }

    /// Returns whether a file without a name may have lost it to a published successor. A caller that asks for the
    /// file by this identity gets `ESTALE` and must look the name up again. A file that was removed through the agent
    /// is known while it is open.
    pub(crate) fn replica_may_be_gone(&self, identity: &Identity) -> bool {
        let in_use = |file: &File| {
            let live = file.live.lock();
            live.place != NameHold::Lost && (live.is_open() || live.is_unlinked())
        };
        self.places.any.load(Ordering::Acquire) && !self.known(identity).is_some_and(|file| in_use(&file))
    }

    pub(crate) fn is_published(&self, live: &Live) -> bool {
        live.policy.publish_atomic && self.places.begun.load(Ordering::Acquire) && self.store.finds_by_identity()
    }

    /// Stages a file out into a successor, if its policy says so and that is possible. `patient`: the caller can wait
    /// until nobody uses the file; otherwise a file in use is written in place. Returns `None` if the file must be
    /// staged out in place.
    pub(crate) fn publish(
        &self,
        file: &Arc<File>,
        patient: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<StageOutResult> {
        // A burst buffer that takes no writes cannot record what becomes of the file.
        if !self.is_published(&file.live.lock()) || self.refusal().is_some() {
            return None;
        }
        file.passed.store(0, Ordering::Relaxed);
        let mut job = match self.begin_knowing(file, None) {
            Ok(job) => job,
            Err(end) => return Some(end),
        };
        // A copy begun in place must be finished in place, and a file that is empty on both sides is not written.
        let in_place = job.begun || job.record.pinned || (job.size == 0 && job.before.size == 0);
        if in_place || file.live.lock().below.unsynced {
            return None;
        }
        if !self.is_unused(&job) {
            return patient.then_some(StageOutResult::StillDirty);
        }
        let outcome = match self.prepare(&mut job, interrupted) {
            Ok(Some(mut next)) => self.succeed(&job, &mut *next, interrupted),
            Ok(None) => Ok(Outcome::Unfit),
            Err(error) if errno(&error) == CHANGED => Ok(Outcome::Busy),
            Err(error) => Err(error),
        };
        let _gate = file.gate();
        match outcome {
            Ok(Outcome::Placed) => return Some(StageOutResult::Clean),
            Ok(Outcome::Doubtful(error)) => return Some(self.note_failure(file, error, None)),
            Ok(Outcome::Busy | Outcome::Unfit) | Err(_) => self.keep_place(file),
        }
        match outcome {
            _ if file.live.lock().is_unlinked() => Some(StageOutResult::Nothing),
            Ok(Outcome::Busy) if patient => Some(StageOutResult::StillDirty),
            Err(error) if !self.refuses(&error) => Some(self.note_failure(file, error, None)),
            _ => None,
        }
    }

    /// Returns whether nobody has the file open or mapped, and it has not changed since the job began.
    fn is_unused(&self, job: &StageOutJob<'_>) -> bool {
        let idle = job.file.peek(|live| !live.is_open() && live.changes == job.changes && job.is_wanted(live));
        idle && lease::probe(job.replica.as_fd(), Nobody::Uses).unwrap_or(false)
    }

    /// Does A1 to A4: makes a complete hidden file. Returns `None` if there can be no such file.
    fn prepare(
        &self,
        job: &mut StageOutJob<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Box<dyn Successor>>> {
        let Some(next) = job.anchor.begin_successor(&self.hidden_name(&job.record))? else { return Ok(None) };
        fault::point("a1.begun");
        // The replacement of the global copy must survive a crash of the machine, as in W2.
        let secured = self.secure(job.file, &job.record, job.replica.as_fd());
        // A stage-out in place reports bytes that the medium did not take.
        if secured.is_err() || job.file.live.lock().medium.lacks_some() || !self.give_place_up(job)? {
            return Ok(None);
        }
        fault::point("a2.recorded");
        let (file, record, rate) = (job.file, &job.record, job.policy.rate_bytes_per_s);
        let changes = job.changes;
        let mut progress = Hidden { inner: self, file, record, changes, interrupted, rate, pace: CopyPace::new() };
        job.copied = Copy::new(&job.replica, job.size, next.file(), 0, &mut progress).run(&Extent::Everything)?;
        if job.size > SMALL_BYTES {
            next.file().leave_behind(ByteRange::new(0, job.size))?;
        }
        fault::point("a3.written");
        date(next.file(), job.mtime)?;
        if next.dress()? == Dressed::Unfit {
            return Ok(None);
        }
        next.file().sync()?;
        let found = next.file().attributes()?.fingerprint;
        let complete = found.size == job.size;
        let full = job.policy.verify == Verify::Full;
        if !complete || (full && !Copy::new(&job.replica, job.size, next.file(), job.size, &mut progress).verify()?) {
            return os(libc::EIO);
        }
        job.timed = Some(found);
        fault::point("a4.synced");
        Ok(Some(next))
    }

    /// Makes durable in the record that the file is about to go, and where it is. Returns false if somebody else
    /// removes it, or tried to.
    fn give_place_up(&self, job: &mut StageOutJob<'_>) -> io::Result<bool> {
        let hint = job.anchor.path_hint();
        let _gate = job.file.gate();
        let wanted = job.file.peek(|live| {
            let free = |record: &Record| !record.removing || live.place == NameHold::GivenUp;
            live.record().cloned().filter(|record| job.is_wanted(live) && free(record))
        });
        let Some(mut record) = wanted else { return Ok(false) };
        if is_renamed(&record.hint, &hint) {
            // The attributes may have changed since the job looked. The next look must know that this moved the ctime.
            record.base.attributes = 0;
        }
        job.record = Record { removing: true, synced: true, hint, ..record };
        self.put(job.file, job.record.clone(), Durability::Machine).map_err(here)?;
        job.file.live.lock().place = NameHold::GivenUp;
        Ok(true)
    }

    /// Withdraws the publication, unless somebody else removes the file now. Gate held.
    fn keep_place(&self, file: &File) {
        let record = file.peek(|live| {
            let ours = std::mem::replace(&mut live.place, NameHold::Own) == NameHold::GivenUp;
            live.record().cloned().filter(|record| ours && record.removing && !live.is_unlinked())
        });
        if let Some(record) = record {
            // If this fails, the next start, or a change of the name, finds that the record is wrong.
            let _ = self.put(file, Record { removing: false, ..record }, Durability::Process);
        }
    }

    /// Does A5 and A6.
    fn succeed(
        &self,
        job: &StageOutJob<'_>,
        next: &mut dyn Successor,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Outcome> {
        let Some(seized) = self.seize(job, interrupted) else { return Ok(Outcome::Busy) };
        if let Some(refused) = self.take_place(job, next)? {
            return Ok(refused);
        }
        let (file, name) = (job.file, job.record.hint.shown());
        // Counted before the former file is forgotten: callers that have just asked the store for it ask again.
        CacheCounters::add(&self.counters.staged_count, 1);
        {
            let mut live = file.live.lock();
            live.place = NameHold::Lost;
            live.told.succeed();
        }
        // Callers that come with the former file are sent away from now on, and do not wait for the sync.
        drop(seized);
        // Only this sync: a later one says nothing of what an earlier one lost.
        let synced = next.sync_name();
        fault::point("a6.synced");
        if let Err(error) = synced {
            tracing::error!(%error, file = %name, "could not sync the directory of a published file: its replica is kept");
            return Ok(Outcome::Doubtful(error));
        }
        let _gate = file.gate();
        if let Err(error) = self.unlinked(file, true) {
            tracing::error!(%error, file = %name, "could not remove the replica of a published file: the next start removes it");
        }
        CacheCounters::add(&self.counters.out_files, 1);
        CacheCounters::add(&self.counters.out_bytes, job.copied.bytes);
        Ok(Outcome::Placed)
    }

    /// Locks `names` and the gate. The wait for both is bounded, because a holder of `names` may be in a call to the
    /// store, and may want the gate.
    fn seize<'a>(&'a self, job: &StageOutJob<'a>, interrupted: &dyn Fn() -> bool) -> Option<Seized<'a>> {
        let mut tries = (0..NAMES_TRIES).take_while(|_| self.is_unused(job) && !interrupted() && !self.is_dead());
        let names = tries.find_map(|_| self.places.names.try_write_for(NAMES_WAIT))?;
        Some((names, job.file.try_gate_for(NAMES_WAIT)?))
    }

    /// Does A5, unless something prevents it. `names` and the gate are held.
    fn take_place(&self, job: &StageOutJob<'_>, next: &mut dyn Successor) -> io::Result<Option<Outcome>> {
        // The new file gets the access time, with the reads of the former one.
        self.settle_reads(job.file);
        // Change times are too coarse to tell whether there was a change since.
        match next.dress()? {
            Dressed::Unfit => return Ok(Some(Outcome::Unfit)),
            Dressed::Changed => return Ok(Some(Outcome::Busy)),
            Dressed::Same => {}
        }
        let given_up = job.file.peek(|live| {
            let record = live.record().filter(|record| record.removing && !record.pinned);
            live.place == NameHold::GivenUp && record.is_some()
        });
        // Bytes of a replica that its file system forgot before it refused writes look like a hole.
        let takes_writes = self.refusal().is_none();
        // Last: a change of the global copy is found by the next try, and is a conflict.
        let is_ours =
            job.timed.is_some_and(|left| next.file().attributes().is_ok_and(|now| now.fingerprint.same_content(&left)));
        let is_unchanged = |found: Fingerprint| {
            let live = job.file.live.lock();
            // The expected fingerprint follows the change that we made just now.
            let ours = live.record().map(|record| record.base).filter(|ours| ours.same_content(&job.before));
            live.moved(&ours.unwrap_or(job.before), &found) == Moved::Nothing
        };
        if !given_up
            || !takes_writes
            || !self.is_unused(job)
            || !is_ours
            || !is_unchanged(job.anchor.attributes_now()?.fingerprint)
        {
            return Ok(Some(Outcome::Busy));
        }
        // Set before: callers that find the file without its name shall ask.
        self.places.any.store(true, Ordering::Release);
        match next.take_place() {
            Ok(true) => {}
            Ok(false) => return Ok(Some(Outcome::Busy)),
            Err(error) if next.is_placed() != Some(false) => return Ok(Some(Outcome::Doubtful(error))),
            // A directory may accept files and release none, or something may be mounted on the file.
            Err(error)
                if matches!(
                    errno(&error),
                    libc::EPERM | libc::EACCES | libc::EBUSY | libc::ETXTBSY | libc::EXDEV | libc::EROFS
                ) =>
            {
                return Ok(Some(Outcome::Unfit));
            }
            Err(error) => return Err(error),
        }
        fault::point("a5.placed");
        Ok(None)
    }
}
