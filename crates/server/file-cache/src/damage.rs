//! Damage that a dirty replica took while no agent ran: it was cut, or its bytes are others.
//!
//! Nothing but the replica has these bytes, so that only what was noted before tells. There are two notes:
//!
//! * the record has the length at the last sync that found the replica longer than before (`synced_len`);
//! * an orderly end writes length and block checksums into `sums/xx/<version>.end`.
//!
//! | the agent before | what a start believes |
//! | --- | --- |
//! | ended in order | both notes: everything was on the medium when the superblock said so |
//! | died, and the machine did not | the length: what the kernel had in memory it has still |
//! | died with the machine | neither: the replica may be older than the note. `search.rs` looks for what a crash leaves |
//!
//! The superblock says that the last agent ended in order until the next one starts. So checksums of an earlier end are never believed,
//! and nobody has to remove them. Lengths are compared at the start, checksums before the first use of the file: they take a read of all of
//! its data.
//!
//! A damaged file is not opened and not staged out until `resolve` says what is to be kept.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use catalogue::{Durability, Record, State};
use rustix::fs::Stat;
use types::Shown;

use crate::cache::Inner;
use crate::file::{Body, File, Live};
use crate::lease::{self, Nobody};
use crate::limits::SUM_AT_END_MAX;
use crate::replica::How;
use crate::sums::{self, Sums};
use crate::superblock::Before;

impl Inner {
    /// The record of a dirty file that a start has found, with what is wrong with the length of its replica, if anything is.
    pub(crate) fn with_damage(&self, record: Record, replica: &Stat) -> (Record, bool) {
        let found = replica.st_size as u64;
        let ended = (self.superblock.before == Before::End).then(|| self.end_of(&record)).flatten();
        let reason = match (self.superblock.before, &ended) {
            (Before::Crash, _) => None,
            (_, Some(end)) if end.size != found => Some(length_changed(end.size, found)),
            _ if found < record.synced_len => Some(length_changed(record.synced_len, found)),
            _ => None,
        };
        match reason {
            Some(reason) => (damaged(record, reason), false),
            None => (record, ended.is_some()),
        }
    }

    fn end_of(&self, record: &Record) -> Option<Sums> {
        Sums::load(&self.replicas.end_path(record.version))
    }

    /// Compares the replica with the checksums of the last orderly end, once. `EIO`: it is damaged. The gate is not held.
    pub(crate) fn check_end(&self, file: &File) -> io::Result<()> {
        let record = {
            let live = file.live.lock();
            live.record.clone().filter(|_| live.ended)
        };
        let Some(record) = record else { return Ok(()) };
        let Some(end) = self.end_of(&record) else {
            file.live.lock().ended = false;
            return Ok(());
        };
        let replica = self.replicas.open_as(record.version, How::Read)?;
        let found = Sums { size: rustix::fs::fstat(&replica)?.st_size as u64, ..sums::of_replica(&replica, end.size)? };
        let _gate = file.gate.lock();
        let now = {
            let mut live = file.live.lock();
            // Somebody else has compared it meanwhile, and it may have been written since.
            if !std::mem::take(&mut live.ended) || found == end {
                return Ok(());
            }
            live.record.clone()
        };
        let Some(now) = now.filter(|now| now.version == record.version) else { return Ok(()) };
        let differing = found.blocks.iter().zip(&end.blocks).filter(|(found, end)| found != end).count();
        let blocks = end.blocks.len();
        let reason = if found.size == end.size {
            format!(
                "its data was changed in the burst buffer while no agent ran: {differing} of {blocks} blocks of 1 MiB differ"
            )
        } else {
            length_changed(end.size, found.size)
        };
        tracing::error!(file = %now.hint.shown(), reason, "damaged: it is neither opened nor staged out until it is resolved");
        if let Err(error) = self.put(file, damaged(now, reason), Durability::Machine) {
            // Nobody may use it meanwhile.
            file.live.lock().ended = true;
            return Err(error);
        }
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    /// Notes the length of a replica that was synced, where it has grown since it was noted last. Gate not held.
    pub(crate) fn note_length(&self, file: &File, replica: impl AsFd) -> io::Result<()> {
        let grown = |live: &Live, len: u64| {
            live.is_unclean() && live.record.as_ref().is_some_and(|record| len > record.synced_len)
        };
        let len = rustix::fs::fstat(&replica)?.st_size as u64;
        if !grown(&file.live.lock(), len) {
            return Ok(());
        }
        let _gate = file.gate.lock();
        // It may have been cut meanwhile.
        let len = rustix::fs::fstat(&replica)?.st_size as u64;
        let record = {
            let live = file.live.lock();
            live.record.clone().filter(|_| grown(&live, len))
        };
        match record {
            Some(record) => self.put(file, Record { synced_len: len, ..record }, Durability::Process),
            None => Ok(()),
        }
    }

    /// Before a replica is cut to `len`: the record must not say that it was longer. Gate held.
    pub(crate) fn lower_length(&self, file: &File, len: u64) -> io::Result<()> {
        let record = file.live.lock().record.clone().filter(|record| record.synced_len > len);
        match record {
            Some(record) => self.put(file, Record { synced_len: len, ..record }, Durability::Process),
            None => Ok(()),
        }
    }

    /// At an orderly end: sums what is dirty, the small first, as far as that takes no longer than [`SUM_AT_END_MAX`].
    pub(crate) fn sum_at_end(&self) {
        let files: Vec<Arc<File>> = self.table.lock().files.values().cloned().collect();
        let mut dirty: Vec<_> = files.into_iter().filter(|file| is_ours_to_sum(&file.live.lock())).collect();
        dirty.sort_by_key(|file| self.replica_size(file));
        let until = Instant::now() + SUM_AT_END_MAX;
        for file in dirty {
            // Nobody has used it: what was noted before holds.
            if file.live.lock().ended {
                continue;
            }
            let Some(version) = file.live.lock().version else { continue };
            let path = self.replicas.end_path(version);
            let in_time = Instant::now() < until;
            let summed = if in_time { self.sum_whole(&file) } else { Ok(None) };
            if !matches!(&summed, Ok(Some(sums)) if sums.store(&path).is_ok()) {
                tracing::debug!(file = %file.identity, "a dirty replica is not summed at the end");
                // One of an earlier end would be believed.
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// `None`: somebody may write it.
    fn sum_whole(&self, file: &File) -> io::Result<Option<Sums>> {
        let Some(version) = file.live.lock().version else { return Ok(None) };
        let replica = self.replicas.open_as(version, How::Read)?;
        if !lease::probe(replica.as_fd(), Nobody::Writes)? {
            return Ok(None);
        }
        sums::of_replica(&replica, rustix::fs::fstat(&replica)?.st_size as u64).map(Some)
    }
}

/// Whether nothing but the replica has a file's data, and it is whole.
fn is_ours_to_sum(live: &Live) -> bool {
    let damaged = live.record.as_ref().is_none_or(|record| record.damaged);
    matches!(live.body, Body::Whole) && live.is_unclean() && !live.unlinked && !damaged
}

fn damaged(record: Record, reason: String) -> Record {
    Record { state: State::Conflict, damaged: true, reason, ..record }
}

fn length_changed(noted: u64, found: u64) -> String {
    format!("its data was changed in the burst buffer while no agent ran: {found} bytes where there were {noted}")
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use crate::api::{Keep, Residency};
    use crate::limits::BLOCK_BYTES;
    use crate::world::World;

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
        assert_eq!(world.open(false, false).err().and_then(|error| error.raw_os_error()), Some(libc::EIO));
        assert_eq!(world.open(true, true).err().and_then(|error| error.raw_os_error()), Some(libc::EIO));
        assert_eq!((world.drain(), world.state()), (1, Residency::Conflict));
        assert_eq!(world.store.read("f").unwrap(), b"old", "staged out as if it were right");
        let status = world.cache.status();
        assert_eq!(status.stuck[0].state, "damaged");
        assert!(status.stuck[0].reason.contains(reason), "{}", status.stuck[0].reason);
    }

    #[test]
    fn what_was_changed_after_an_orderly_end_is_neither_opened_nor_staged_out() {
        for uses_it in [false, true] {
            let mut world = dirty();
            // It may be the second agent that ends, and it may have used the file or not.
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
        // Nothing is forgotten when that agent dies, or ends.
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
        // Written after the comparison, and the next one is not with what was noted before.
        world.write(b"new");
        assert_eq!(world.drain(), 0);
        world.write(b"newer");
        world.restart(false, |_| {});
        assert_eq!(world.drain(), 0);
        assert!(world.store.read("f").unwrap().starts_with(b"newer"));
    }

    #[test]
    fn a_synced_file_that_was_cut_after_the_death_of_its_agent_is_damaged() {
        let mut world = dirty();
        world.open(true, false).unwrap().sync(true).unwrap();
        world.restart(false, set_len(LEN as u64 - 1));
        is_damaged(&world, "2102151 bytes");
        // Longer it may be: what follows was not synced.
        let mut world = dirty();
        world.open(true, false).unwrap().sync(true).unwrap();
        world.restart(false, set_len(LEN as u64 + 1));
        assert_eq!(world.drain(), 0);
        // Nor was this.
        let mut world = dirty();
        world.restart(false, set_len(5));
        assert_eq!(world.drain(), 0);
    }

    #[test]
    fn a_program_that_cuts_a_synced_file_does_no_damage() {
        for opens in [false, true] {
            let mut world = dirty();
            world.open(true, false).unwrap().sync(true).unwrap();
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
