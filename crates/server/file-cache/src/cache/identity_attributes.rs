//! Dirty replicas that the catalogue does not know as such: their identity attributes say whose they are.
//!
//! An intent that was only told to the process's catalogue is lost in a crash of the machine. So is the knowledge of
//! data that programs have synced through mappings since, of which the agent is not told. The identity attribute of
//! the replica lies beside the data and reached the medium with it. It serves as well if the catalogue is lost.
//!
//! A file system may refuse the attribute, for example a full one that has no room for more than fits beside the
//! inode. The data is then as safe as its record, and no safer: a catalogue that is lost then is rebuilt without the
//! file. This concerns only that file:
//!
//! 1. Housekeeping tries again until the attribute is written or the file is not dirty any more, also in later runs of
//!    the agent.
//! 2. Meanwhile the attribute counts for nothing: an open that allows mapping the file waits until the record is on the
//!    medium.
//!
//! Only if the file system says that it has no such attributes at all, no other file is tried.

use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use catalogue::{Record, State};
use types::Identity;

use super::Inner;
use crate::burst_buffer::identity_attribute::IdentityAttribute;
use crate::burst_buffer::replica::How;
use crate::errors::errno;
use crate::limits::{IDENTITY_ATTRIBUTE_BYTES, IDENTITY_ATTRIBUTE_BYTES_MAX, IDENTITY_ATTRIBUTES_ROUND};
use crate::residency::File;

/// Dirty files whose replicas have no identity attribute, or an outdated one. At most as many as there are dirty
/// files, plus those that became clean since the last round.
#[derive(Default)]
pub(crate) struct Unmarked {
    pub(crate) files: BTreeSet<Identity>,
    /// The file tried last: the next round continues behind it.
    tried: Option<Identity>,
}

impl Unmarked {
    fn next(&mut self) -> Vec<Identity> {
        let from = self.tried.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.files.range((from, Bound::Unbounded));
        let next: Vec<Identity> = rest.take(IDENTITY_ATTRIBUTES_ROUND).cloned().collect();
        // The last file is followed by the first.
        self.tried = next.last().filter(|_| next.len() == IDENTITY_ATTRIBUTES_ROUND).cloned();
        next
    }
}

impl Inner {
    /// Writes the identity attribute of a dirty replica, as its record says. Gate held.
    pub(crate) fn identity_attribute(&self, file: &File, replica: BorrowedFd<'_>, record: &Record) {
        if !self.xattrs.load(Ordering::Relaxed) {
            return;
        }
        let identity_attribute = IdentityAttribute {
            identity: file.identity.clone(),
            epoch: record.epoch,
            base: record.base,
            hint: record.hint.clone(),
        };
        let most = if self.store.finds_by_identity() { IDENTITY_ATTRIBUTE_BYTES } else { IDENTITY_ATTRIBUTE_BYTES_MAX };
        let with_identity_attribute = self.replicas.identity_attribute(replica, &identity_attribute, most);
        // A cut hint finds no file, but its rest tells a person whose the data is.
        let with_identity_attribute = with_identity_attribute.or_else(|error| match most {
            IDENTITY_ATTRIBUTE_BYTES => Err(error),
            _ => self.replicas.identity_attribute(replica, &identity_attribute, IDENTITY_ATTRIBUTE_BYTES),
        });
        match with_identity_attribute {
            Ok(()) => _ = self.unmarked.lock().files.remove(&file.identity),
            Err(error) if errno(&error) == libc::EOPNOTSUPP => {
                tracing::warn!(%error, "the file system of the burst buffer has no extended attributes: a lost catalogue could not be rebuilt");
                self.xattrs.store(false, Ordering::Relaxed);
                self.unmarked.lock().files.clear();
            }
            Err(error) => self.note_missing_identity_attribute(file, &error),
        }
    }

    /// Does `identity_attribute` for a replica that is not open for that.
    pub(crate) fn update_identity_attribute(&self, file: &File, record: &Record) {
        match self.replicas.open_as(record.version, How::Read) {
            Ok(replica) => self.identity_attribute(file, replica.as_fd(), record),
            Err(error) => self.note_missing_identity_attribute(file, &error),
        }
    }

    /// Keeps a file dirty whose record could not be removed after its identity attribute was: a dirty replica gets the
    /// attribute again. Gate held.
    pub(crate) fn stays_dirty(&self, file: &File) {
        let record = file.peek(|live| {
            live.synced.identity_attribute = false;
            live.record()
                .cloned()
                .filter(|record| record.state != State::Clean && !record.removing && !live.is_unlinked())
        });
        if let Some(record) = record {
            self.update_identity_attribute(file, &record);
        }
    }

    fn note_missing_identity_attribute(&self, file: &File, error: &io::Error) {
        let mut unmarked = self.unmarked.lock();
        let first = unmarked.files.is_empty();
        let fresh = unmarked.files.insert(file.identity.clone());
        drop(unmarked);
        if first {
            tracing::warn!(
                %error,
                file = %file.identity,
                "could not write the identity attribute of a dirty replica: if the catalogue were lost now, its data would not be found; it is \
                 tried again every second, for this file and others"
            );
        } else if fresh {
            tracing::debug!(%error, file = %file.identity, "could not write the identity attribute of a dirty replica");
        }
    }

    /// Returns whether the identity attribute of a dirty file that has one agrees with its record.
    pub(crate) fn has_identity_attribute(&self, file: &File) -> bool {
        self.xattrs.load(Ordering::Relaxed) && !self.unmarked.lock().files.contains(&file.identity)
    }

    /// Tries again to write refused attributes. Waits for no gate.
    pub(crate) fn retry_identity_attributes(&self) {
        let next = self.unmarked.lock().next();
        for identity in &next {
            // A thread that makes the file dirty and is refused the attribute comes before this, or after it.
            let mut unmarked = self.unmarked.lock();
            let Some(file) = self.known(identity) else {
                unmarked.files.remove(identity);
                continue;
            };
            drop(unmarked);
            let Some(_gate) = file.try_gate() else { continue };
            let record = file.live.lock().record().cloned().filter(|record| record.state != State::Clean);
            match record {
                None => _ = self.unmarked.lock().files.remove(identity),
                // A file that is being removed must not carry an attribute. If it stays, it is tried then.
                Some(record) if record.removing => {}
                Some(record) => self.update_identity_attribute(&file, &record),
            }
        }
        if !next.is_empty() && self.unmarked.lock().files.is_empty() && self.xattrs.load(Ordering::Relaxed) {
            tracing::info!("all dirty replicas have their identity attribute again");
        }
    }
}

#[cfg(test)]
mod tests {
    use models::{DataStoreExt, OpenDataExt};
    use rustix::io::Errno;
    use types::Timestamp;

    use super::*;
    use crate::world::World;
    use data_store::{NewTime, Residency};

    /// Makes identity attributes of more bytes fail from now on.
    fn refuse(world: &World, room: usize, error: Errno) {
        *world.cache.inner.replicas.refused_identity_attributes.lock() = Some((room, error));
    }

    fn refuse_none(world: &World) {
        *world.cache.inner.replicas.refused_identity_attributes.lock() = None;
    }

    fn identity_attribute_of(world: &World, name: &str) -> Option<IdentityAttribute> {
        let file = world.cache.inner.known(&world.store.identity(name).unwrap()).unwrap();
        let version = file.live.lock().version().unwrap();
        world.cache.inner.replicas.read_identity_attribute(version)
    }

    fn written(names: &[&str]) -> World {
        let world = World::new();
        refuse(&world, 0, Errno::NOSPC);
        for name in names {
            world.store.put(name, b"old");
            world.open_named(name, true, false).unwrap().write(b"new", 0).unwrap();
        }
        world
    }

    #[test] // S17
    fn a_brand_that_was_refused_is_written_later_and_those_of_other_files_at_once() {
        let mut world = written(&["f"]);
        world.cache.housekeep();
        assert_eq!((identity_attribute_of(&world, "f"), world.cache.counters().without_identity_attribute), (None, 1));
        refuse_none(&world);
        world.store.put("g", b"old");
        world.open_named("g", true, true).unwrap().write(b"NEW", 0).unwrap();
        assert!(identity_attribute_of(&world, "g").is_some(), "one failure made an end of it");
        assert!(world.cache.counters().xattrs);
        world.cache.housekeep();
        assert_eq!(world.cache.counters().without_identity_attribute, 0);
        world.lose_catalogue();
        assert_eq!(world.state(), Residency::Queued, "nothing tells that it is dirty");
        assert_eq!(world.drain(), 0);
        assert_eq!(["f", "g"].map(|name| world.store.read(name).unwrap()), [b"new", b"NEW"]);
    }

    #[test] // S17
    fn a_dirty_file_without_a_brand_gets_one_in_the_next_life_of_the_agent() {
        let mut world = written(&["f"]);
        world.crash();
        assert_eq!(world.cache.counters().without_identity_attribute, 1);
        world.cache.housekeep();
        world.lose_catalogue();
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.read("f").unwrap(), b"new");
    }

    /// With the former attribute, the time that was set on the global copy would look like one left by a stage-out.
    #[test] // S17
    fn a_brand_that_could_not_follow_the_time_of_its_file_follows_it_later() {
        for lives in 0..2 {
            let mut world = World::new();
            world.store.put("f", b"old");
            world.write(b"new");
            refuse(&world, 0, Errno::IO);
            let (anchor, time) = (world.store.anchor("f").unwrap(), Timestamp { seconds: 5, nanos: 0 });
            world.cache.date(&anchor, Some(NewTime::At(time)), &mut || world.store.set_mtime("f", time)).unwrap();
            refuse_none(&world);
            (0..lives).for_each(|_| world.crash());
            world.cache.housekeep();
            world.lose_catalogue();
            assert_eq!(world.drain(), 0);
            assert_eq!(world.store.read("f").unwrap(), b"new", "{lives} later");
        }
    }

    #[test] // S17
    fn who_may_map_a_file_without_a_brand_has_its_record_on_the_medium() {
        for truncate in [false, true] {
            let world = World::new();
            world.store.put("f", b"old");
            refuse(&world, 0, Errno::NOSPC);
            let _writer = world.open(true, truncate).unwrap();
            let file = world.cache.inner.known(&world.store.identity("f").unwrap()).unwrap();
            let live = file.live.lock();
            assert!(live.synced.intent && !live.synced.identity_attribute, "truncate: {truncate}");
            assert!(live.record().is_some_and(|record| record.synced), "truncate: {truncate}");
        }
    }

    #[test]
    fn what_is_clean_or_unknown_wants_no_brand_any_more() {
        let world = written(&["f", "g", "h"]);
        assert_eq!(world.drain(), 0);
        assert_eq!(world.cache.counters().without_identity_attribute, 3);
        world.cache.inner.table.lock().files.remove(&world.store.identity("h").unwrap());
        world.cache.housekeep();
        assert_eq!(world.cache.counters().without_identity_attribute, 0);
    }

    #[test]
    fn a_brand_that_is_too_long_for_the_file_system_has_less_of_the_path() {
        let world = World::new();
        let name = "a/path/of/many/parts/which/fits/beside/no/inode/run-17/output.h5";
        world.store.set_finds_by_identity(false);
        world.store.put(name, b"old");
        refuse(&world, IDENTITY_ATTRIBUTE_BYTES, Errno::NOSPC);
        let _writer = world.open_named(name, true, false).unwrap();
        let identity_attribute =
            identity_attribute_of(&world, name).expect("a long path costs the file its identity_attribute");
        assert!(identity_attribute.encode(IDENTITY_ATTRIBUTE_BYTES_MAX).len() <= IDENTITY_ATTRIBUTE_BYTES);
        assert_eq!(world.cache.counters().without_identity_attribute, 0);
    }

    #[test]
    fn where_there_are_no_attributes_no_other_is_tried() {
        let world = World::new();
        world.store.put("f", b"old");
        refuse(&world, 0, Errno::OPNOTSUPP);
        world.write(b"new");
        let status = world.cache.counters();
        assert_eq!((status.xattrs, status.without_identity_attribute), (false, 0));
    }

    #[test]
    fn each_of_more_than_a_round_takes_has_its_turn() {
        let mut unmarked = Unmarked::default();
        let file = |number: usize| Identity::new(number.to_be_bytes()).unwrap();
        unmarked.files.extend((0..IDENTITY_ATTRIBUTES_ROUND + 3).map(file));
        let rounds: Vec<_> = (0..3).map(|_| unmarked.next()).collect();
        assert_eq!(
            rounds.iter().map(Vec::len).collect::<Vec<_>>(),
            [IDENTITY_ATTRIBUTES_ROUND, 3, IDENTITY_ATTRIBUTES_ROUND]
        );
        assert_eq!((&rounds[1][0], &rounds[2][0]), (&file(IDENTITY_ATTRIBUTES_ROUND), &file(0)));
        assert_eq!(Unmarked::default().next(), []);
    }
}
