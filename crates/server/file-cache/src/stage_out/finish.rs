//! Steps W5 and W6: a copied file gets its time, is synced, and is checked.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use types::HasErrno;

use config::Verify;
use global_store::{Access, StoreFile};
use types::{Fingerprint, Moved, Timestamp};

use super::StageOutJob;
use crate::burst_buffer::replica;
use crate::cache::Inner;
use crate::clock::wall;
use crate::errors::os;
use crate::fault;
use crate::limits::{COARSE_SECONDS, SMALL_BYTES};
use global_store::now_of_files;

impl Inner {
    /// Does W5. The time is set before the sync, so the sync makes it durable too. Otherwise, after a crash of the
    /// machine, the global copy could have another time than the record, and a later dirty copy would be a conflict.
    pub(crate) fn set_time(&self, job: &mut StageOutJob<'_>, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        if !job.copied.changed && job.before.size == job.size && job.before.mtime == job.mtime {
            return Ok(());
        }
        self.announce(job, interrupted)?;
        let global = match job.global.take() {
            Some(global) => global,
            None => job.anchor.open(Access::Write)?,
        };
        // A network file system sends buffered bytes before it sets a time. Nobody shall wait at the gate for that.
        self.leave_behind(job, &*global)?;
        let _gate = job.file.gate();
        self.follow_time(job)?;
        let (mut timed, kept) = date(global.as_ref(), job.mtime)?;
        job.kept = kept;
        let given = job.file.live.lock().below.given_time == Some(job.mtime);
        if job.copied.changed && timed.same_content(&job.before) && job.mtime != job.before.mtime && !given {
            timed = self.tell_apart(job, &*global, timed)?;
        }
        job.kept = job.kept.map(|_| timed.mtime);
        job.timed = Some(timed);
        job.global = Some(global);
        fault::point("w5.mtime");
        Ok(())
    }

    /// Gives the file another time in a store with coarse times. Otherwise a changed file could look as before, and
    /// its readers would never look again. The file gets the present time, or the next one that the store can
    /// represent, if that is near.
    fn tell_apart(
        &self,
        job: &mut StageOutJob<'_>,
        global: &dyn StoreFile,
        mut timed: Fingerprint,
    ) -> io::Result<Fingerprint> {
        let (now, before, was) = (wall(), job.before.mtime, job.mtime);
        let later = |seconds| Timestamp { seconds: before.seconds + seconds, nanos: 0 };
        for mtime in [now.max(before.next()), later(1), later(COARSE_SECONDS)] {
            if mtime.seconds > now.seconds + COARSE_SECONDS {
                break;
            }
            job.mtime = mtime;
            global.set_mtime(mtime)?;
            timed = global.attributes()?.fingerprint;
            if !timed.same_content(&job.before) {
                break;
            }
        }
        job.mtime = timed.mtime;
        job.file.dated(|| {
            let found = replica::mtime_of(&rustix::fs::fstat(&job.replica)?);
            // A program that wrote the replica meanwhile must be told apart from this by the next stage-out.
            let mtime = if found == was { timed.mtime } else { found.max(timed.mtime.next()) };
            replica::set_mtime(job.replica.as_fd(), mtime)
        })?;
        Ok(timed)
    }

    /// Follows a program's own `utimens` since the job began, which changed the replica as well. Returns whether there
    /// was one. It is counted before it is made, and made with the gate held.
    fn follow_time(&self, job: &mut StageOutJob<'_>) -> io::Result<bool> {
        if job.file.live.lock().changes == job.changes {
            return Ok(false);
        }
        job.mtime = replica::mtime_of(&rustix::fs::fstat(&job.replica)?);
        Ok(true)
    }

    /// Does W6: syncs and checks. Returns the fingerprint that we left, or `None` if somebody else wrote.
    pub(crate) fn finish(
        &self,
        job: &mut StageOutJob<'_>,
        sync: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<Option<Fingerprint>> {
        let ours_alone = |job: &StageOutJob<'_>| job.file.live.lock().changes == job.changes;
        let (Some(timed), Some(global)) = (job.timed, job.global.take()) else {
            let _gate = job.file.gate();
            let looked = now_of_files();
            let now = job.anchor.attributes()?.fingerprint;
            job.racy = self.is_racy(&now, looked, Duration::ZERO);
            let moved = job.file.live.lock().moved(&job.before, &now);
            let now = if moved == Moved::Nothing { now } else { job.before.doubting(now) };
            return Ok(self.leave(job, now, !ours_alone(job) || moved != Moved::Content));
        };
        if sync {
            global.sync().inspect_err(|_| job.file.live.lock().below.unsynced = true)?;
            self.leave_behind(job, &*global)?;
            let unsynced = job.file.live.lock().synced.lacks_name;
            if unsynced {
                job.anchor.sync_name()?;
            }
        }
        job.file.live.lock().synced.lacks_name = false;
        fault::point("w6.synced");
        let full = job.policy.verify == Verify::Full;
        // From this look on no change is ours. Reading everything back takes too long for a gate.
        let mut gate = (!full).then(|| job.file.gate());
        let looked = now_of_files();
        let synced = global.attributes()?.fingerprint;
        job.racy = self.is_racy(&synced, looked, Duration::ZERO);
        // A network file system may move mtime when it sends buffered bytes; a local one may not. A store that
        // truncates times to its own unit only then has not been changed by another either.
        let moved = synced.mtime != timed.mtime && !is_time(synced.mtime, timed.mtime);
        if job.kept.is_none() || synced.size != job.size || (!self.store.is_shared() && moved && ours_alone(job)) {
            return Ok(None);
        }
        if full {
            if !self.verify(job, &*global, interrupted)? {
                return os(libc::EIO);
            }
            gate = Some(job.file.gate());
            if ours_alone(job) && !global.attributes()?.fingerprint.same_content(&synced) {
                return Ok(None);
            }
        }
        // Changes that somebody made through the agent meanwhile are accounted for already.
        let ours = job.file.live.lock().moved(&timed, &synced) == Moved::Nothing;
        let mut left = if ours { synced } else { timed.doubting(synced) };
        if self.follow_time(job)? || moved {
            let (_, kept) = date(&*global, job.mtime)?;
            job.kept = kept;
            global.sync().inspect_err(|_| job.file.live.lock().below.unsynced = true)?;
            let looked = now_of_files();
            left = global.attributes()?.fingerprint;
            job.racy = self.is_racy(&left, looked, Duration::ZERO);
        }
        if left.size != job.size || !job.kept.is_some_and(|kept| is_time(left.mtime, kept)) {
            return Ok(None);
        }
        fault::point("w7.verified");
        let left = self.leave(job, left, true);
        drop(gate);
        Ok(left)
    }

    /// Writes back the rest of a large copy, and drops it from memory.
    fn leave_behind(&self, job: &StageOutJob<'_>, global: &dyn StoreFile) -> io::Result<()> {
        if job.copied.bytes <= SMALL_BYTES {
            return Ok(());
        }
        let left = global.leave_behind(types::ByteRange::new(0, job.size));
        left.inspect_err(|_| job.file.live.lock().below.unsynced = true)
    }

    /// Records the state of the global copy that we know from now on. Our changes follow it until then. Gate held.
    fn leave(&self, job: &StageOutJob<'_>, left: Fingerprint, ours: bool) -> Option<Fingerprint> {
        if !ours {
            return None;
        }
        job.file.live.lock().below.left = Some(left);
        Some(left)
    }
}

/// Sets the time of the global copy. Whatever the store reports then is believed, for it may truncate or limit times,
/// or refuse them. Returns the fingerprint and the time that the store kept; no time if somebody else wrote meanwhile.
fn date(global: &dyn StoreFile, mtime: Timestamp) -> io::Result<(Fingerprint, Option<Timestamp>)> {
    let set = || match global.set_mtime(mtime) {
        Err(error) if is_refused(&error) => Ok(()),
        done => done,
    };
    set()?;
    let found = global.attributes()?.fingerprint;
    if is_time(found.mtime, mtime) {
        return Ok((found, Some(found.mtime)));
    }
    // A store gives the same answer twice. Another program's write is not repeated.
    set()?;
    let again = global.attributes()?.fingerprint;
    Ok((again, Some(again.mtime).filter(|time| *time == found.mtime)))
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

/// Returns whether a store may keep `wanted` as `found`: it may truncate to a coarser unit.
fn is_time(found: Timestamp, wanted: Timestamp) -> bool {
    found <= wanted && (found.seconds >= wanted.seconds - COARSE_SECONDS)
}
