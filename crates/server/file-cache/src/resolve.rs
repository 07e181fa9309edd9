//! End of a conflict, a failure or an orphan by command.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalogue::{Durability, Record, State};

use crate::burst_buffer::replica::How;
use crate::cache::{CacheCounters, Inner};
use crate::errors::os;
use crate::limits::{RESOLVE_WAIT, SAVED_NAME_BYTES, SAVED_NAMES_MAX};
use crate::medium::LACKS;
use crate::residency::File;
use data_store::Keep;
use types::Identity;

impl Inner {
    /// Ends a conflict, a failure or an orphan. Returns where `Keep::Both` saved the replica's data.
    ///
    /// Errors: `EBUSY` if the file is open for writing; `ENOENT` if there is nothing to resolve; `ETIMEDOUT` if a
    /// stage-out of the file takes long. `Keep::BurstBuffer` also returns `ENOENT` if the file is not in the global
    /// store or its replica is lost. If the medium did not take all data that is to be saved, the error says so once,
    /// and nothing has ended.
    pub(crate) fn resolve(&self, identity: &Identity, keep: Keep) -> io::Result<Option<PathBuf>> {
        let Some(file) = self.known(identity) else { return os(libc::ENOENT) };
        // A running stage-out ends first: it must not find the replica gone.
        let Some(_drain) = file.drain.try_lock_for(RESOLVE_WAIT) else { return os(libc::ETIMEDOUT) };
        self.gated(identity, false, |now, _| {
            if Arc::ptr_eq(now, &file) { self.resolve_gated(now, keep) } else { os(libc::ENOENT) }
        })?
    }

    fn resolve_gated(&self, file: &Arc<File>, keep: Keep) -> io::Result<Option<PathBuf>> {
        let (record, written, lost) = file.peek(|live| (live.record().cloned(), live.is_written(), live.is_lost()));
        let Some(record) = record.filter(|record| record.state != State::Clean) else { return os(libc::ENOENT) };
        if keep == Keep::BurstBuffer {
            if lost {
                return os(libc::ENOENT);
            }
            let Some(anchor) = self.anchor_of(file, true)? else { return os(libc::ENOENT) };
            let base = anchor.attributes_now()?.fingerprint;
            let reason = String::new();
            let next = Record {
                state: State::Dirty,
                base,
                was_clean: false,
                sum: None,
                orphaned: false,
                synced_len: 0,
                damaged: false,
                reason,
                ..record
            };
            let _ = std::fs::remove_file(self.replicas.end_path(next.version));
            self.put(file, next, Durability::Machine)?;
            let mut live = file.live.lock();
            live.below.left = None;
            live.compared.end();
            live.medium.accept();
            live.told.succeed();
            drop(live);
            self.queue.push(file, std::time::Duration::ZERO);
            return Ok(None);
        }
        if written {
            return os(libc::EBUSY);
        }
        let saved = if keep == Keep::Both && !lost { Some(self.save(file, &record)?) } else { None };
        if self.store.is_shared()
            && let Ok(Some(anchor)) = self.anchor_of(file, false)
        {
            anchor.set_mark(None)?;
        }
        self.queue.remove(file);
        let in_use = file.live.lock().is_open();
        if in_use {
            // Open files keep the version that they have.
            self.replicas.remove_identity_attribute_of(record.version);
            let removed = self.commit(vec![catalogue::Change::Remove(file.identity.clone())], Durability::Machine);
            removed.inspect_err(|_| self.stays_dirty(file))?;
            CacheCounters::add(&self.counters.staged_count, 1);
            file.live.lock().disowned();
            self.retire(file);
        } else {
            self.drop_replica(file)?;
            file.live.lock().anchor = None;
        }
        Ok(saved)
    }

    /// Gives the replica's file a second name among the saved ones, and makes both durable, because the record and the
    /// first name are removed afterwards.
    fn save(&self, file: &File, record: &Record) -> io::Result<PathBuf> {
        let replica = self.replicas.open_as(record.version, How::Read)?;
        let known = file.live.lock().medium.lacks_some();
        if let Err(error) = self.sync_replica(file, replica.as_fd(), false)
            && !known
        {
            // An operator who was told what the medium lacks, and repeats the command, wants the remaining data.
            let lacks = file.live.lock().medium.lacks_some();
            if lacks {
                // If that cannot be noted, the next try reports it.
                let _ = self.put(file, Record { reason: LACKS.to_owned(), ..record.clone() }, Durability::Machine);
            }
            return Err(error);
        }
        let name = record.hint.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        let name = &name[..name.floor_char_boundary(SAVED_NAME_BYTES)];
        let saved = self.replicas.saved();
        let path = save_as(&self.replicas.path(record.version), &saved, &format!("{name}.{}", record.version))?;
        [&saved, &self.settings.burst_buffer].iter().try_for_each(|dir| durable::sync_directory(dir))?;
        Ok(path)
    }
}

/// Gives a replica a second name among the saved files: `name`, or `name` with a number if another file has that.
/// Returns the path.
///
/// Errors: those of `stat` and `link`.
pub fn save_as(replica: &Path, saved: &Path, name: &str) -> io::Result<PathBuf> {
    let ours = std::fs::metadata(replica)?;
    for number in 0..SAVED_NAMES_MAX {
        let path = if number == 0 { saved.join(name) } else { saved.join(format!("{name}.{number}")) };
        match std::fs::hard_link(replica, &path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        let there = std::fs::symlink_metadata(&path)?;
        // An earlier try was interrupted.
        if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) {
            return Ok(path);
        }
    }
    os(libc::EEXIST)
}

#[cfg(test)]
mod tests {
    use models::DataStoreExt;

    use crate::world::World;

    use super::*;

    #[test]
    fn what_is_saved_takes_no_name_of_another_file_that_was_saved() {
        let tree = tempfile::tempdir().unwrap();
        let (replica, saved) = (tree.path().join("replica"), tree.path().join("saved"));
        std::fs::create_dir(&saved).unwrap();
        for content in ["former", "latter"] {
            let _ = std::fs::remove_file(&replica);
            std::fs::write(&replica, content).unwrap();
            let path = save_as(&replica, &saved, "f.1").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(save_as(&replica, &saved, "f.1").unwrap(), path, "a second try finds what the first has saved");
        }
        assert_eq!(std::fs::read_to_string(saved.join("f.1")).unwrap(), "former");
    }

    #[test] // S25
    fn a_conflict_that_could_not_be_ended_keeps_its_brand() {
        for in_use in [false, true] {
            let world = World::new();
            world.store.put("f", b"old");
            world.write(b"new");
            world.store.put("f", b"another's");
            assert_eq!(world.drain(), 1);
            let reader = in_use.then(|| world.open(false, false).unwrap());
            let identity = world.store.identity("f").unwrap();
            let version = world.cache.inner.known(&identity).unwrap().live.lock().version().unwrap();
            world.catalogue.fail_commits(0, 1);
            assert!(world.cache.resolve(&identity, Keep::Global).is_err());
            assert!(world.cache.inner.replicas.read_identity_attribute(version).is_some(), "in use: {in_use}");
            world.cache.resolve(&identity, Keep::Global).unwrap();
            assert!(world.cache.inner.replicas.read_identity_attribute(version).is_none());
            drop(reader);
        }
    }
}
