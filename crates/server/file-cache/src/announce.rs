//! Steps W2 and W3: before the first change of a global copy, what replaces it is on the medium, and the record says so.

use std::io;
use std::os::fd::OwnedFd;

use catalogue::{Change, Durability, Record, State};
use global_store::OpenFile;
use parking_lot::MutexGuard;

use crate::cache::Inner;
use crate::copy::{Copy, Progress};
use crate::fault;
use crate::file::{File, Live};
use crate::stage_out::Job;

/// Whether the file still has the replica that is being copied, and a record of it.
pub(crate) fn is_wanted(copied: &Record, live: &Live) -> bool {
    !live.unlinked && live.record.as_ref().is_some_and(|record| record.version == copied.version)
}

/// What commands and renames changed in the record since the stage-out began.
pub(crate) fn follow(copied: &mut Record, live: &Live) {
    if let Some(record) = &live.record {
        copied.pinned = record.pinned;
        copied.hint.clone_from(&record.hint);
    }
}

impl Inner {
    /// W2 and W3 for a batch: one sync, one commit.
    pub(crate) fn announce_all(&self, jobs: &mut [(usize, Job<'_>)]) -> io::Result<()> {
        self.replicas.sync()?;
        fault::point("w2.synced");
        let gates: Vec<MutexGuard<'_, ()>> = jobs.iter().map(|(_, job)| job.file.gate.lock()).collect();
        let mut changes = Vec::new();
        for (_, job) in jobs.iter_mut() {
            let live = job.file.live.lock();
            if job.is_wanted(&live) {
                follow(&mut job.record, &live);
                job.record.state = State::Draining;
                changes.push(Change::Put(job.file.identity.clone(), job.record.clone()));
            }
        }
        self.commit(changes, Durability::Machine)?;
        fault::point("w3.draining");
        for (_, job) in jobs.iter_mut() {
            let mut live = job.file.live.lock();
            if job.is_wanted(&live) {
                live.record = Some(job.record.clone());
                live.synced = true;
                live.intent_synced = true;
            }
            job.begun = true;
        }
        drop(gates);
        Ok(())
    }

    pub(crate) fn announce(&self, job: &mut Job<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let rate = job.policy.rate_bytes_per_s;
        let (inner, file, record, replica, begun) = (self, job.file, &mut job.record, &job.replica, &mut job.begun);
        Announcer { inner, file, record, replica, begun, interrupted, rate }.before_write(0)
    }

    pub(crate) fn verify(
        &self,
        job: &mut Job<'_>,
        global: &dyn OpenFile,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let rate = job.policy.rate_bytes_per_s;
        let (inner, file, record, replica, begun) = (self, job.file, &mut job.record, &job.replica, &mut job.begun);
        let mut progress = Announcer { inner, file, record, replica, begun, interrupted, rate };
        let (size, global_size) = (job.size, job.size);
        // A file that is written meanwhile cannot be compared; it is staged out again anyway.
        Ok(!job.quiet || Copy { replica, size, global, global_size, progress: &mut progress }.verify()?)
    }
}

/// Commits `Draining` before the first change of the global copy.
pub(crate) struct Announcer<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) file: &'a File,
    pub(crate) record: &'a mut Record,
    pub(crate) replica: &'a OwnedFd,
    pub(crate) begun: &'a mut bool,
    pub(crate) interrupted: &'a dyn Fn() -> bool,
    pub(crate) rate: u64,
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
        {
            let live = self.file.live.lock();
            if !is_wanted(self.record, &live) {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            follow(self.record, &live);
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
        if !is_wanted(self.record, &self.file.live.lock()) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(())
    }
}
