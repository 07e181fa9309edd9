//! Steps W2 and W3: before the first change of a global copy, its replacement is on the medium and the record says so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use catalogue::{Change, Durability, Record, State};
use global_store::StoreFile;

use super::StageOutJob;
use super::copy::{Copy, CopyProgress};
use super::pace::CopyPace;
use crate::cache::Inner;
use crate::errors::{here, os};
use crate::fault;
use crate::residency::{File, Gate, Live};

/// Returns whether the file still has the replica that is being copied, and a record of it.
pub(crate) fn is_wanted(copied: &Record, live: &Live) -> bool {
    !live.is_unlinked() && live.record().is_some_and(|record| record.version == copied.version)
}

/// Takes over changes that commands, renames and syncs made to the record since the stage-out began.
pub(crate) fn follow(copied: &mut Record, live: &Live) {
    if let Some(record) = live.record() {
        copied.pinned = record.pinned;
        copied.removing = record.removing;
        copied.synced |= record.synced;
        copied.synced_len = record.synced_len;
        copied.hint.clone_from(&record.hint);
    }
}

impl Inner {
    /// Does W2 and W3 for a batch: one sync, one commit. `lost` is called for each job whose replica is lost.
    pub(crate) fn announce_all<'a>(
        &self,
        jobs: &mut Vec<(usize, StageOutJob<'a>)>,
        lost: &mut dyn FnMut(usize, StageOutJob<'a>, io::Error),
    ) -> io::Result<()> {
        let announced = self.announce_recorded(jobs, lost);
        if !announced.as_ref().is_err_and(|error| self.refuses(error)) {
            return announced.map_err(here);
        }
        for (index, mut job) in std::mem::take(jobs) {
            match self.announce_unrecorded(job.file, &mut job.record, job.replica.as_fd()) {
                Ok(()) => {
                    (job.begun, job.secured) = (true, true);
                    jobs.push((index, job));
                }
                Err(error) => lost(index, job, here(error)),
            }
        }
        Ok(())
    }

    fn announce_recorded<'a>(
        &self,
        jobs: &mut Vec<(usize, StageOutJob<'a>)>,
        lost: &mut dyn FnMut(usize, StageOutJob<'a>, io::Error),
    ) -> io::Result<()> {
        let replicas: Vec<_> = jobs.iter().map(|(_, job)| (&**job.file, &job.record, job.replica.as_fd())).collect();
        let ends = self.secure_all(&replicas)?;
        for ((index, job), end) in std::mem::take(jobs).into_iter().zip(ends) {
            match end {
                Ok(()) => jobs.push((index, job)),
                Err(error) => lost(index, job, here(error)),
            }
        }
        fault::point("w2.synced");
        let gates: Vec<Gate<'_>> = jobs.iter().map(|(_, job)| job.file.gate()).collect();
        let mut changes = Vec::new();
        for (_, job) in jobs.iter_mut() {
            let live = job.file.live.lock();
            if job.is_wanted(&live) {
                follow(&mut job.record, &live);
                (job.record.state, job.record.synced) = (State::Draining, true);
                changes.push(Change::Put(job.file.identity.clone(), job.record.clone()));
            }
        }
        self.commit(changes, Durability::Machine)?;
        fault::point("w3.draining");
        for (_, job) in jobs.iter_mut() {
            let mut live = job.file.live.lock();
            if job.is_wanted(&live) {
                live.recorded(job.record.clone());
                live.synced.announced();
            }
            job.begun = true;
            job.secured = true;
        }
        drop(gates);
        Ok(())
    }

    /// Does W3 where nothing can be recorded: programs read the bytes that are copied, and a crash in the middle
    /// leaves a conflict. Gate not held.
    pub(crate) fn announce_unrecorded(
        &self,
        file: &File,
        copied: &mut Record,
        replica: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.secure_unsynced(file, copied, replica)?;
        let _gate = file.gate();
        let mut live = file.live.lock();
        if !is_wanted(copied, &live) {
            return os(libc::ENOENT);
        }
        follow(copied, &live);
        copied.state = State::Draining;
        live.recorded(copied.clone());
        Ok(())
    }

    /// Waits until `bytes` may be written at `rate` bytes a second. Errors: `EINTR`.
    fn take_turn_to_write(&self, bytes: u64, rate: u64, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let taken = self.throttle.take(bytes, rate, &|| interrupted() || self.is_dead());
        if taken { Ok(()) } else { os(libc::EINTR) }
    }

    pub(crate) fn announce(&self, job: &mut StageOutJob<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        Announcer::of(self, job, interrupted).before_write(0)
    }

    pub(crate) fn verify(
        &self,
        job: &mut StageOutJob<'_>,
        global: &dyn StoreFile,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let (size, quiet) = (job.size, job.quiet);
        let mut progress = Announcer::of(self, job, interrupted);
        // A file that is written meanwhile cannot be compared. It is staged out again anyway.
        Ok(!quiet || Copy::new(progress.replica, size, global, size, &mut progress).verify()?)
    }
}

/// Commits `Draining` before the first change of the global copy.
pub(super) struct Announcer<'a> {
    inner: &'a Inner,
    file: &'a File,
    record: &'a mut Record,
    pub(super) replica: &'a OwnedFd,
    begun: &'a mut bool,
    secured: &'a mut bool,
    interrupted: &'a dyn Fn() -> bool,
    rate: u64,
    pace: CopyPace,
}

impl CopyProgress for Announcer<'_> {
    fn before_write(&mut self, bytes: u64) -> io::Result<()> {
        self.inner.take_turn_to_write(bytes, self.rate, self.interrupted)?;
        if *self.secured {
            return Ok(());
        }
        match self.record() {
            Err(error) if self.inner.refuses(&error) => {
                self.inner.announce_unrecorded(self.file, self.record, self.replica.as_fd()).map_err(here)?;
            }
            recorded => recorded.map_err(here)?,
        }
        (*self.begun, *self.secured) = (true, true);
        Ok(())
    }

    fn before_cut(&mut self) -> io::Result<()> {
        self.before_write(0)?;
        // Bytes of a replica that the file system forgot look like a hole, or like the end of the file.
        self.inner.refusal().map_or(Ok(()), |error| Err(here(error)))
    }

    fn looked(&mut self, end: u64) -> io::Result<()> {
        self.file.passed.store(end, Ordering::Relaxed);
        if (self.interrupted)() || self.inner.is_dead() {
            return os(libc::EINTR);
        }
        if !is_wanted(self.record, &self.file.live.lock()) {
            return os(libc::ENOENT);
        }
        self.pace.make_room(self.inner.counters.open_for_writing.load(Ordering::Relaxed));
        Ok(())
    }

    fn lost(&mut self) {
        self.file.live.lock().below.unsynced = true;
    }
}

impl<'a> Announcer<'a> {
    pub(super) fn of(
        inner: &'a Inner,
        job: &'a mut StageOutJob<'_>,
        interrupted: &'a dyn Fn() -> bool,
    ) -> Announcer<'a> {
        let (file, rate, pace) = (job.file, job.policy.rate_bytes_per_s, CopyPace::new());
        let StageOutJob { record, replica, begun, secured, .. } = job;
        Announcer { inner, file, record, replica, begun, secured, interrupted, rate, pace }
    }

    fn record(&mut self) -> io::Result<()> {
        // W2: the data that is about to replace the global copy must survive a crash of the machine.
        self.inner.secure(self.file, self.record, self.replica.as_fd())?;
        fault::point("w2.synced");
        let _gate = self.file.gate();
        {
            let live = self.file.live.lock();
            if !is_wanted(self.record, &live) {
                return os(libc::ENOENT);
            }
            follow(self.record, &live);
        }
        (self.record.state, self.record.synced) = (State::Draining, true);
        self.inner.put(self.file, self.record.clone(), Durability::Machine)?;
        self.file.live.lock().synced.announced();
        fault::point("w3.draining");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use models::DataStoreExt;
    use models::global::{Fault, StoreOperation};

    use crate::world::World;
    use data_store::{NewTime, Residency};

    fn is_synced(world: &World) -> bool {
        assert_eq!(world.state(), Residency::Clean);
        let identity = world.store.identity("f").unwrap();
        world.cache.inner.known(&identity).unwrap().live.lock().synced.content
    }

    /// The next intent relies on this: a dirty record over bytes that never reached the medium destroys the global
    /// copy.
    #[test]
    fn a_clean_replica_counts_as_synced_only_if_its_own_stage_out_synced_it() {
        let world = World::new();
        world.store.put("f", b"old");
        world.write(b"new");
        assert_eq!(world.drain(), 0);
        assert!(is_synced(&world));
        let before = world.store.attributes("f").unwrap().fingerprint.mtime;
        world.write(b"new");
        let anchor = world.store.anchor("f").unwrap();
        world.cache.date(&anchor, Some(NewTime::At(before)), &mut || world.store.set_mtime("f", before)).unwrap();
        world.store.clear_journal();
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.journal(), [], "nothing was copied");
        assert!(!is_synced(&world));
    }

    #[test]
    fn what_a_second_try_copies_is_on_the_medium_before() {
        let world = World::new();
        world.store.put("f", b"old");
        world.write(b"new");
        let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Write(_));
        world.store.fail(Fault { matching, ..Fault::default() });
        assert_eq!(world.drain(), 1);
        world.write(b"NEW");
        let commits = world.catalogue.commits();
        assert_eq!(world.drain(), 0);
        assert_eq!(world.catalogue.commits() - commits, 2, "announced again, and concluded");
        assert!(is_synced(&world));
        assert_eq!(world.store.read("f").unwrap(), b"NEW");
    }
}
