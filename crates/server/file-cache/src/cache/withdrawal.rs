//! Withdrawal of the intent of an open that failed.
//!
//! The open of a new or truncated file makes an empty replica, commits its intent, and may have to bring it to the
//! medium. If one of these fails the program is told so, and the file must stay what it was - also after the death of
//! the agent, whatever the catalogue keeps:
//!
//! | the intent's commit | that of its removal | left | after a start |
//! | --- | --- | --- | --- |
//! | failed, not done | - | a replica without a record | garbage, swept |
//! | done, or failed and done all the same | done | nothing, or a replica without a record | garbage, swept |
//! | done, or failed and done all the same | failed | a record and its replica | would be staged out: the global copy would be cut |
//! | | | the same without the replica | would be told as lost data |
//!
//! So if the removal fails, the replica itself says that it is *void*, by a mode that no other file of ours has. That
//! needs no room and no catalogue. A start that finds a record of a void replica drops both.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use catalogue::{Change, Durability};
use concurrency::Mutex;
use global_store::Anchor;
use rustix::fs::{Mode, Stat};
use types::{Identity, Version};

use super::Inner;
use crate::burst_buffer::replica::{How, Replicas};
use crate::errors::is_full;
use crate::limits::{DISOWNED, DOUBTS};
use crate::residency::File;

/// Replicas whose records count for nothing. Some are fresh ones whose intent failed and could not be taken back;
/// their record may exist although its commit returned an error. The others are clean ones that were dropped while
/// nothing could be recorded. The value says whether a replica is still open: its last user then removes it.
#[derive(Default)]
pub(crate) struct Doubts(Mutex<HashMap<(Identity, Version), bool>>);

impl Doubts {
    pub(crate) fn has(&self, identity: &Identity, version: Version) -> bool {
        let doubts = self.0.lock();
        !doubts.is_empty() && doubts.contains_key(&(identity.clone(), version))
    }

    /// Adds a replica. Returns false if there are too many.
    fn add(&self, identity: &Identity, version: Version, in_use: bool, most: usize) -> bool {
        let mut doubts = self.0.lock();
        let room = doubts.len() < most;
        if room {
            doubts.insert((identity.clone(), version), in_use);
        }
        room
    }
}

/// The permissions of a void replica: the sticky bit alone, which means nothing on a file.
const VOID: Mode = Mode::SVTX;

/// Returns whether a replica is that of an open that was refused.
pub(crate) fn is_void(replica: &Stat) -> bool {
    replica.st_size == 0 && replica.st_mode & 0o7777 == VOID.as_raw_mode()
}

impl Replicas {
    /// Marks an empty replica as void, if nobody was told of it: its record, if there is one, counts for nothing.
    fn make_void(&self, version: Version) -> io::Result<()> {
        let replica = self.open_as(version, How::Read)?;
        rustix::fs::fchmod(&replica, VOID)?;
        Replicas::remove_identity_attribute(replica.as_fd());
        // A crash of the machine may leave the record and lose this mark.
        Ok(rustix::fs::fsync(&replica)?)
    }
}

impl Inner {
    /// Withdraws the open of a fresh replica that failed. Gate held.
    pub(crate) fn withdraw(&self, file: &File, anchor: &dyn Anchor, version: Version) {
        file.live.lock().withdraw();
        if self.store.is_shared() {
            // Nobody else would ever remove the mark.
            let _ = anchor.set_mark(None);
        }
        if !self.take_back(&file.identity, version, false) {
            if let Err(error) = self.replicas.make_void(version) {
                tracing::error!(%error, %version, "could not withdraw an open that was refused: a crash of the agent may truncate the file");
            }
            // Replicas beyond the bound are left to the next start.
            let _ = self.doubts.add(&file.identity, version, false, DOUBTS);
        }
    }

    /// Removes a file's record. `replica` names a replica that is clean, or whose file is removed, and whether it is
    /// in use. If the burst buffer takes no writes, or its catalogue has no room, the record of such a replica stays
    /// for now and only counts for nothing. Gate held.
    pub(crate) fn disown(
        &self,
        identity: &Identity,
        replica: Option<(Version, bool)>,
        durability: Durability,
    ) -> io::Result<()> {
        let removed = self.commit(vec![Change::Remove(identity.clone())], durability);
        removed.or_else(|error| {
            let doubted = |(version, in_use)| self.doubts.add(identity, version, in_use, DISOWNED);
            // A record that the medium still calls dirty must not outlive the replica.
            let full = is_full(&error) && durability == Durability::Process;
            if (full || self.refuses(&error)) && replica.is_some_and(doubted) { Ok(()) } else { Err(error) }
        })
    }

    /// Tries again what `withdraw` and `disown` could not do.
    pub(crate) fn settle_doubts(&self) {
        // The doubts count until they are resolved.
        let doubts: Vec<_> = self.doubts.0.lock().iter().map(|(doubt, in_use)| (doubt.clone(), *in_use)).collect();
        for ((identity, version), in_use) in doubts {
            let settled = self.gated(&identity, false, |file, _| {
                // A record that was read from the catalogue since then belongs to the file.
                let known = file.live.lock().record().is_some_and(|record| record.version == version);
                known || self.take_back(&identity, version, in_use)
            });
            if settled.unwrap_or(false) {
                self.doubts.0.lock().remove(&(identity, version));
            }
        }
    }

    /// Removes a replica that nobody was told of, and its record if that is the present one. Gate held.
    fn take_back(&self, identity: &Identity, version: Version, in_use: bool) -> bool {
        let gone = match self.catalogue.get(identity) {
            Ok(Some(record)) if record.version != version => Ok(()),
            // Also if no record is found: a later start may find what a failed commit has written.
            Ok(_) => self.commit(vec![Change::Remove(identity.clone())], Durability::Process),
            Err(error) => Err(super::broken(error)),
        };
        if let Err(error) = &gone {
            tracing::warn!(%error, %identity, "could not withdraw the intent of an open that failed: it is tried again");
            return false;
        }
        if !in_use {
            // The replica is garbage now. If this fails, the next start's sweep removes it.
            let _ = self.replicas.remove(version);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use models::DataStoreExt;

    use crate::world::World;
    use data_store::{OpenData, Residency};

    /// The three commits are that of the intent, a second one for an open that allows mapping, and that of the
    /// withdrawal. A truncation that is refused to the program must not happen after the agent's death, whatever
    /// became of them.
    #[test] // S17
    fn a_truncation_that_was_refused_and_not_taken_back_does_not_happen_after_a_crash() {
        for (xattrs, late, after, failures) in
            [(true, true, 0, 2), (false, true, 0, 2), (false, false, 1, 2), (false, true, 1, 2)]
        {
            let label = format!("xattrs {xattrs}, late {late}, after {after}");
            let mut world = World::new();
            world.store.set_shared(true);
            world.store.put("f", b"old");
            world.cache.inner.xattrs.store(xattrs, Ordering::Relaxed);
            if late {
                world.catalogue.fail_commits_late(after, failures);
            } else {
                world.catalogue.fail_commits(after, failures);
            }
            assert!(world.open(true, true).is_err(), "{label}");
            assert_eq!(world.catalogue.len(), 1, "{label}: the record was taken back");
            world.crash();
            assert_eq!(world.state(), Residency::Absent, "{label}");
            assert!(world.catalogue.is_empty(), "{label}");
            assert!(world.cache.counters().stuck.is_empty(), "{label}");
            assert_eq!(world.drain(), 0, "{label}");
            assert_eq!(world.store.read("f").unwrap(), b"old", "{label}");
        }
    }

    /// The record is not believed in the same run of the agent either, where the file was forgotten and its record is
    /// read again.
    #[test] // S17
    fn a_record_of_a_refused_truncation_is_not_believed_when_it_is_read_again() {
        let world = World::new();
        let identity = world.store.put("f", b"old");
        world.catalogue.fail_commits_late(0, 2);
        assert!(world.open(true, true).is_err());
        world.cache.inner.table.lock().files.remove(&identity);
        let mut buffer = [0; 10];
        assert_eq!(world.open(false, false).unwrap().read_at(&mut buffer, 0).unwrap(), 3);
        world.cache.housekeep();
        world.write(b"new");
        world.cache.housekeep();
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.read("f").unwrap(), b"new");
    }
}
