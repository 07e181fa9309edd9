//! Detection of damage to a dirty replica while no agent ran: it was cut, or its bytes were changed.
//!
//! Only the replica has these bytes, so only notes made earlier can tell. There are two notes:
//!
//! * the record has the length at a sync (`synced_len`): at the first one, and whenever it has grown by a sixteenth;
//! * an orderly end writes length and block checksums into `sums/xx/<version>.end`.
//!
//! | the agent before | what a start believes |
//! | --- | --- |
//! | ended in order, or died and the machine did not | both notes: the kernel still has what it had in memory |
//! | died with the machine | neither: the replica may be older than its notes. `search.rs` looks for what a crash leaves |
//!
//! Lengths are compared at the start. Checksums are compared before the first use of the file, as this reads all of
//! its data. They are removed before anybody may write the file. If a crash brings them back, it is one after which
//! nobody believes them.
//!
//! A damaged file is not opened and not staged out until `resolve` says which data is to be kept.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use catalogue::{Durability, Record, State};
use concurrency::Instant;
use rustix::fs::Stat;
use types::{Shown, Version};

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::How;
use crate::burst_buffer::sums::{self, Sums};
use crate::burst_buffer::superblock::Before;
use crate::cache::Inner;
use crate::errors::os;
use crate::limits::{LENGTH_STEP, SUM_AT_END_MAX};
use crate::residency::{Compared, File, Live};

impl Inner {
    /// Returns the record of a dirty file that a start has found, updated for damage, and whether there are checksums
    /// to compare.
    pub(crate) fn with_damage(&self, record: Record, replica: &Stat) -> (Record, bool) {
        let found = replica.st_size as u64;
        if self.superblock.before == Before::Crash {
            self.forget_end(&record);
            // A later start must not believe the noted length either.
            let synced_len = record.synced_len.min(found);
            return (Record { synced_len, ..record }, false);
        }
        let noted = match self.end_of(&record) {
            Some(end) if end.size == found => return (record, true),
            Some(end) => end.size,
            None if found < record.synced_len => record.synced_len,
            None => return (record, false),
        };
        (damaged(record, length_changed(noted, found)), false)
    }

    fn end_of(&self, record: &Record) -> Option<Sums> {
        Sums::load(&self.replicas.end_path(record.version))
    }

    fn forget_end(&self, record: &Record) {
        // Usually there is none.
        let _ = std::fs::remove_file(self.replicas.end_path(record.version));
    }

    /// Compares the replica with the checksums of the last orderly end, once. Errors: `EIO` if it is damaged; `EINTR`
    /// if `interrupted` says so. The gate is not held.
    pub(crate) fn check_end(&self, file: &File, interrupted: &dyn Fn() -> bool) -> io::Result<()> {
        let record = file.peek(|live| live.record().cloned().filter(|_| live.compared == Compared::AwaitsEnd));
        let (end, found) = match record.as_ref().and_then(|record| Some((record, self.end_of(record)?))) {
            Some((record, end)) => {
                let replica = self.replicas.open_as(record.version, How::Read)?;
                let found = sums::of_replica_while(&replica, end.size, &|| interrupted() || self.is_dead())?;
                let size = rustix::fs::fstat(&replica)?.st_size as u64;
                (Some(end), Some(Sums { size, ..found }))
            }
            None => (None, None),
        };
        let _gate = file.gate();
        let (now, is_first) = file.peek(|live| (live.record().cloned(), live.compared.end()));
        let Some(now) = now else { return Ok(()) };
        if now.damaged {
            return os(libc::EIO);
        }
        let (Some(end), Some(found)) = (end, found) else { return Ok(()) };
        // A thread that compared it meanwhile may have written it since.
        if !is_first || record.is_none_or(|record| record.version != now.version) {
            return Ok(());
        }
        if found == end {
            self.forget_end(&now);
            return Ok(());
        }
        let reason = if found.size == end.size {
            let differing = found.blocks.iter().zip(&end.blocks).filter(|(found, end)| found != end).count();
            format!("{CHANGED}: {differing} of {} blocks of 1 MiB differ", end.blocks.len())
        } else {
            length_changed(end.size, found.size)
        };
        tracing::error!(file = %now.hint.shown(), reason, "the replica of a dirty file is damaged: the file is not opened and not staged out until `forebay resolve` decides");
        if let Err(error) = self.put(file, damaged(now, reason), Durability::Machine) {
            // Until that works nobody may use the file.
            file.live.lock().compared = Compared::AwaitsEnd;
            return Err(error);
        }
        os(libc::EIO)
    }

    /// Notes the length of a replica that was synced, if it has grown by [`LENGTH_STEP`] since the last note. If that
    /// would wait for another thread, or fails, nothing is noted: the bytes are safe without it. The gate is not held.
    pub(crate) fn note_length(&self, file: &File, replica: impl AsFd) {
        let Ok(now) = rustix::fs::fstat(&replica) else { return };
        let grown = |live: &Live, len: u64| {
            let noted = live.record().map_or(u64::MAX, |record| record.synced_len);
            live.is_unclean() && len > noted && len - noted >= noted / LENGTH_STEP
        };
        if !grown(&file.live.lock(), now.st_size as u64) {
            return;
        }
        let Some(_gate) = file.try_gate() else { return };
        // The replica may have been cut meanwhile.
        let Ok(now) = rustix::fs::fstat(&replica) else { return };
        let len = now.st_size as u64;
        let record = file.peek(|live| live.record().cloned().filter(|_| grown(live, len)));
        if let Some(record) = record
            && let Err(error) = self.put(file, Record { synced_len: len, ..record }, Durability::Process)
        {
            tracing::debug!(%error, file = %file.identity, "could not record the length of a synced replica");
        }
    }

    /// Prepares a cut of the replica to `len` bytes: the record must not say that it was longer. Gate held.
    pub(crate) fn lower_length(&self, file: &File, len: u64) -> io::Result<()> {
        let record = file.live.lock().record().cloned().filter(|record| record.synced_len > len);
        match record {
            Some(record) => self.put(file, Record { synced_len: len, ..record }, Durability::Process),
            None => Ok(()),
        }
    }

    /// Sums dirty replicas at an orderly end, the small ones first, for at most [`SUM_AT_END_MAX`].
    pub(crate) fn sum_at_end(&self) {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        let mut dirty: Vec<_> = files.into_iter().filter(|file| file.live.lock().is_unclean()).collect();
        dirty.sort_by_cached_key(|file| self.replica_size(file));
        let until = Instant::now() + SUM_AT_END_MAX;
        for file in dirty {
            let (version, wanted, ended) = file.peek(|live| {
                // Only the replica has the file's data, and it is complete.
                let sound = live.record().is_some_and(|record| !record.damaged);
                let wanted = sound && live.is_whole() && !live.is_unlinked();
                (live.version(), wanted, live.compared == Compared::AwaitsEnd)
            });
            let Some(version) = version else { continue };
            // Nobody has used the file: the former checksums are valid.
            if ended && wanted {
                continue;
            }
            let path = self.replicas.end_path(version);
            let summed = if wanted { self.sum_whole(version, until) } else { None };
            if summed.is_none_or(|sums| sums.store(&path).is_err()) {
                tracing::debug!(file = %file.identity, "did not compute the checksums of a dirty replica at the end: it is in use, or that takes too long");
                // The checksums of an earlier end would be believed.
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// Returns the checksums of a whole replica, or `None` if that is impossible or takes too long.
    fn sum_whole(&self, version: Version, until: Instant) -> Option<Sums> {
        let replica = self.replicas.open_as(version, How::Read).ok()?;
        if !lease::probe(replica.as_fd(), Nobody::Writes).ok()? {
            return None;
        }
        let size = rustix::fs::fstat(&replica).ok()?.st_size as u64;
        sums::of_replica_while(&replica, size, &|| Instant::now() >= until).ok()
    }
}

fn damaged(record: Record, reason: String) -> Record {
    Record { state: State::Conflict, damaged: true, reason, ..record }
}

const CHANGED: &str = "its data was changed in the burst buffer while no agent ran";

fn length_changed(noted: u64, found: u64) -> String {
    format!("{CHANGED}: {found} bytes where there were {noted}")
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use models::{DataStoreExt, OpenDataExt};
    use types::HasErrno;

    use crate::limits::BLOCK_BYTES;
    use crate::world::World;
    use data_store::{Keep, OpenData, Residency};

    const LEN: usize = 2 * BLOCK_BYTES as usize + 5000;

    fn dirty() -> World {
        let world = World::new();
        world.store.put("f", b"old");
        world.write(&vec![7; LEN]);
        world
    }

    fn set_len(len: u64) -> impl Fn(&Path) {
        move |replica| OpenOptions::new().write(true).open(replica).unwrap().set_len(len).unwrap()
    }

    fn flip(replica: &Path) {
        let file = OpenOptions::new().write(true).open(replica).unwrap();
        file.write_all_at(b"?", BLOCK_BYTES + 17).unwrap();
    }

    fn is_damaged(world: &World, reason: &str) {
        assert_eq!(world.open(false, false).err().and_then(|error| error.errno()), Some(libc::EIO));
        assert_eq!(world.open(true, true).err().and_then(|error| error.errno()), Some(libc::EIO));
        assert_eq!((world.drain(), world.state()), (1, Residency::Failed));
        assert_eq!(world.store.read("f").unwrap(), b"old", "staged out as if it were right");
        let status = world.cache.counters();
        assert_eq!(status.stuck[0].state, "damaged");
        assert!(status.stuck[0].reason.contains(reason), "{}", status.stuck[0].reason);
    }

    #[test] // S70
    fn what_was_changed_after_an_orderly_end_is_neither_opened_nor_staged_out() {
        for uses_it in [false, true] {
            let mut world = dirty();
            // The second agent ends, and it may have used the file or not.
            world.restart(true, |_| {});
            if uses_it {
                world.write(&vec![8; LEN]);
            }
            world.restart(true, flip);
            is_damaged(&world, "1 of 3 blocks");
        }
        let mut world = dirty();
        world.restart(true, set_len(LEN as u64 - 1));
        is_damaged(&world, "2102151 bytes where there were 2102152");
        // The checksums survive the death of that agent, and its end.
        world.restart(false, |_| {});
        world.restart(true, |_| {});
        is_damaged(&world, "2102151 bytes");
        let mut world = dirty();
        world.restart(true, set_len(LEN as u64 + 1));
        is_damaged(&world, "2102153 bytes");
    }

    #[test]
    fn what_nobody_changed_is_opened_and_staged_out() {
        for orderly in [true, false] {
            let mut world = dirty();
            world.restart(orderly, |_| {});
            assert_eq!(world.drain(), 0);
            assert_eq!(world.store.read("f").unwrap(), vec![7; LEN]);
        }
        let mut world = dirty();
        world.restart(true, |_| {});
        // Written after the comparison: the next one does not use the earlier note.
        world.write(b"new");
        assert_eq!(world.drain(), 0);
        world.write(b"newer");
        world.restart(false, |_| {});
        assert_eq!(world.drain(), 0);
        assert!(world.store.read("f").unwrap().starts_with(b"newer"));
    }

    #[test]
    fn what_was_noted_holds_for_who_comes_after_an_agent_that_died_before_it_used_the_file() {
        let mut world = dirty();
        world.restart(true, |_| {});
        world.restart(false, flip);
        is_damaged(&world, "1 of 3 blocks");
    }

    #[test]
    fn a_length_is_noted_again_when_it_has_grown_by_a_sixteenth() {
        let noted = |world: &World| {
            let file = world.cache.inner.known(&world.store.identity("f").unwrap()).unwrap();
            let live = file.live.lock();
            live.record().unwrap().synced_len
        };
        let world = World::new();
        world.store.put("f", b"");
        let file = world.open(true, false).unwrap();
        for (len, wanted) in [(1600, 1600), (1601, 1600), (1700, 1700), (1700, 1700)] {
            file.write(&vec![1; len], 0).unwrap();
            file.fdatasync().unwrap();
            assert_eq!(noted(&world), wanted);
        }
        file.set_len(1650).unwrap();
        assert_eq!(noted(&world), 1650);
    }

    #[test] // S70
    fn a_synced_file_that_was_cut_after_the_death_of_its_agent_is_damaged() {
        let mut world = dirty();
        world.open(true, false).unwrap().fdatasync().unwrap();
        world.restart(false, set_len(LEN as u64 - 1));
        is_damaged(&world, "2102151 bytes");
        // A longer replica is valid: the bytes behind the note were not synced.
        let mut world = dirty();
        world.open(true, false).unwrap().fdatasync().unwrap();
        world.restart(false, set_len(LEN as u64 + 1));
        assert_eq!(world.drain(), 0);
        // Neither were these.
        let mut world = dirty();
        world.restart(false, set_len(5));
        assert_eq!(world.drain(), 0);
    }

    #[test]
    fn a_program_that_cuts_a_synced_file_does_no_damage() {
        for opens in [false, true] {
            let mut world = dirty();
            world.open(true, false).unwrap().fdatasync().unwrap();
            if opens {
                world.open(true, true).unwrap();
            } else {
                world.open(true, false).unwrap().set_len(10).unwrap();
            }
            world.restart(false, |_| {});
            assert_eq!(world.drain(), 0, "opens: {opens}");
            assert_eq!(world.store.read("f").unwrap().len(), if opens { 0 } else { 10 });
        }
    }

    #[test]
    fn what_is_kept_of_a_damaged_file_is_for_people_to_say() {
        let identity = |world: &World| world.store.identity("f").unwrap();
        let mut world = dirty();
        world.restart(true, flip);
        is_damaged(&world, "blocks");
        world.cache.resolve(&identity(&world), Keep::BurstBuffer).unwrap();
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.read("f").unwrap().len(), LEN);
        let mut world = dirty();
        world.restart(true, flip);
        is_damaged(&world, "blocks");
        let saved = world.cache.resolve(&identity(&world), Keep::Both).unwrap().unwrap();
        assert_eq!(std::fs::read(saved).unwrap().len(), LEN);
        assert_eq!((world.drain(), world.state()), (0, Residency::Absent));
        assert_eq!(world.store.read("f").unwrap(), b"old");
    }
}
