//! Step W0: the intent, which is durable before a writer is answered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use catalogue::{Durability, Record, State};
use global_store::StoreAttributes;
use global_store::calls::still_wanted;
use types::{Epoch, Fingerprint, Step as _, Version};

use super::Opening;
use crate::burst_buffer::replica::{self, How};
use crate::cache::Inner;
use crate::clock::wall_s;
use crate::errors::os;
use crate::fault;
use crate::global_copy::marks;
use crate::residency::{File, Untouched};
use data_store::OpenHow;

impl Inner {
    /// Makes an empty replica for a new or truncated file, and its intent.
    pub(super) fn begin_fresh(&self, open: &Opening<'_>, found: &StoreAttributes) -> io::Result<()> {
        let Opening { file, anchor, how, .. } = *open;
        if how.truncate {
            still_wanted()?;
        }
        // An empty file may be new as well: made by mknod, by another node, or by an agent that died.
        file.live.lock().synced.lacks_name |= how.created || found.fingerprint.size == 0;
        if how.sync {
            file.sync_name()?;
        }
        // A truncation leaves the time at which its replica is made.
        let has_time = !how.truncate || how.created;
        let (version, fd) = match if has_time { self.ready.take() } else { None } {
            Some(ready) => ready,
            None => {
                let version = self.superblock.next_version()?;
                (version, self.replicas.create(version)?)
            }
        };
        if has_time {
            replica::set_mtime(fd.as_fd(), found.fingerprint.mtime)?;
        }
        fault::point("w0.replica");
        file.live.lock().begin_fresh(version);
        let intended = self.record_intent(open, (version, &fd), (found.fingerprint, None), false).and_then(|()| {
            file.live.lock().copies.untouched = Untouched::all(0);
            // Every byte of an empty file changes its length or its blocks, after the identity attribute.
            file.live.lock().synced.identity_attribute = self.has_identity_attribute(file);
            self.secure_for_mappings(file, how)?;
            if how.truncate { still_wanted() } else { Ok(()) }
        });
        if let Err(error) = intended {
            self.withdraw(file, &**anchor, version);
            return Err(error);
        }
        self.keeps_one();
        let mut live = file.live.lock();
        live.fill_fresh();
        // Open until the last writer closes: a thread that sets a time meanwhile needs no other descriptor.
        live.fds.write = Some(Arc::new(fd));
        Ok(())
    }

    /// Makes everything durable by which recovery recognises data synced through a mapping. The agent does not see
    /// such a sync, and `msync` writes data alone. Only an open for reading and writing can make a shared mapping.
    /// Gate held.
    fn secure_for_mappings(&self, file: &File, how: &OpenHow) -> io::Result<()> {
        let record = file.peek(|live| {
            let secured = live.synced.identity_attribute || live.synced.intent || live.is_unlinked();
            live.record().filter(|_| how.read && how.write && !secured).cloned()
        });
        let Some(record) = record else { return Ok(()) };
        self.sync_replica(file, self.replicas.open_as(record.version, How::Read)?.as_fd(), false)?;
        if self.has_identity_attribute(file) {
            file.live.lock().synced.identity_attribute = true;
        } else {
            self.put(file, Record { synced: true, ..record }, Durability::Machine)?;
            file.live.lock().synced.intent = true;
        }
        Ok(())
    }

    /// Does step W0 for a complete replica, and the truncation that the open requests. `found`: the global copy now,
    /// for a replica that is clean. Gate held.
    pub(super) fn intend(&self, open: &Opening<'_>, found: Option<Fingerprint>) -> io::Result<()> {
        let Opening { file, how, .. } = *open;
        if how.sync {
            // Done already, unless another open came in between.
            file.sync_name()?;
        }
        let (record, synced, intent_synced, unlinked, left) = file.peek(|live| {
            let left = live.below.left.filter(|_| file.drain.try_lock().is_some());
            let synced = live.synced.content && !live.medium.lacks_some();
            (live.record().cloned(), synced, live.synced.intent, live.is_unlinked(), left)
        });
        match record {
            Some(record) if record.state == State::Clean => {
                let replica = self.replicas.open_as(record.version, How::Read)?;
                if !synced {
                    // A crash of the machine must not leave an intent over a replica whose copied bytes never reached
                    // the medium: staging that out would destroy the global copy. It may lose a truncation too.
                    self.sync_replica(file, replica.as_fd(), true)?;
                    file.live.lock().synced.content = true;
                }
                let base = found.filter(|_| how.truncate).unwrap_or(record.base);
                self.record_intent(open, (record.version, &replica), (base, record.sum), !how.truncate)?;
            }
            // A stage-out ended without its clean record, as far as we know. The next start may find it done
            // nevertheless, and the mark may be gone. Neither matters to a new intent.
            Some(record) if left.is_some() && record.state != State::Conflict => {
                let replica = self.replicas.open_as(record.version, How::Read)?;
                let base = left.unwrap_or(record.base);
                self.record_intent(open, (record.version, &replica), (base, None), false)?;
            }
            Some(record) if how.sync && !intent_synced => {
                self.sync_replica(file, self.replicas.open_as(record.version, How::Read)?.as_fd(), false)?;
                self.put(file, Record { synced: true, ..record }, Durability::Machine)?;
                file.live.lock().synced.intent = true;
            }
            Some(_) => {}
            None if unlinked => {}
            None => return os(libc::EIO),
        }
        self.secure_for_mappings(file, how)?;
        if how.truncate {
            still_wanted()?;
            // Last: an open that is refused to the program must have changed nothing.
            let version = file.live.lock().version().unwrap_or(Version(0));
            let replica = self.replicas.open_as(version, How::Write)?;
            self.lower_length(file, 0)?;
            file.dated(|| rustix::fs::ftruncate(&replica, 0))?;
            fault::point("w0.truncated");
        }
        Ok(())
    }

    fn record_intent(
        &self,
        open: &Opening<'_>,
        (version, replica): (Version, &OwnedFd),
        (mut base, sum): (Fingerprint, Option<u64>),
        was_clean: bool,
    ) -> io::Result<()> {
        let Opening { file, anchor, how, .. } = *open;
        let old = file.live.lock().record().cloned();
        let epoch = old.as_ref().map_or(Epoch(1), |record| record.epoch.next());
        if self.store.is_shared() {
            marks::set(&**anchor, &self.settings.agent_id, epoch).step("mark the file in the global store as dirty")?;
            // The mark moved the ctime. A store that does not answer does not say by how much.
            let before = base.ctime;
            base = match anchor.attributes() {
                Ok(found) if base.same_content(&found.fingerprint) => found.fingerprint,
                _ => Fingerprint { attributes: 0, ..base },
            };
            file.live.lock().keep_shown(before, base.ctime);
        }
        let record = Record {
            state: State::Dirty,
            version,
            epoch,
            base,
            was_clean,
            racy: false,
            sum,
            shown: file.live.lock().shown_of(&base),
            synced: how.sync || old.as_ref().is_some_and(|record| record.synced),
            // A clean replica has no noted length, nor has one that was made anew.
            synced_len: old.as_ref().filter(|old| old.version == version).map_or(0, |old| old.synced_len),
            damaged: false,
            pinned: old.is_some_and(|record| record.pinned),
            orphaned: false,
            removing: false,
            hint: anchor.path_hint(),
            used_s: wall_s(),
            reason: String::new(),
        };
        let durability = if how.sync { Durability::Machine } else { Durability::Process };
        // Each write is acknowledged as durable from now on: the record must not outlive the replica.
        let kept =
            if how.sync { self.sync_replica(file, replica.as_fd(), false).step("sync the replica") } else { Ok(()) };
        let record_it = || self.put(file, record.clone(), durability).step("record that the replica is dirty");
        if let Err(error) = kept.and_then(|()| record_it()) {
            if self.store.is_shared() && !file.live.lock().is_unclean() {
                // Nobody else would ever remove the mark.
                let _ = anchor.set_mark(None);
            }
            return Err(error);
        }
        self.identity_attribute(file, replica.as_fd(), &record);
        {
            let mut live = file.live.lock();
            live.copies.intended(was_clean.then_some(base.size));
            live.synced.intended(how.sync);
            live.dirty_since = self.now();
            live.below.left = None;
        }
        fault::point("w0.intent");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use config::Policy;
    use models::DataStoreExt;

    use crate::world::World;
    use data_store::{OpenData, Residency};

    /// A world without extended attributes, where an open that allows mapping waits for a second commit of its intent.
    fn world() -> World {
        let world = World::new();
        world.store.set_shared(true);
        world.store.put("f", b"old");
        world.cache.inner.xattrs.store(false, Ordering::Relaxed);
        world
    }

    fn holds_an_anchor(world: &World) -> bool {
        let known = world.cache.inner.known(&world.store.identity("f").unwrap());
        known.is_some_and(|file| file.live.lock().anchor.is_some())
    }

    #[test] // S17
    fn a_file_whose_open_failed_after_its_intent_is_staged_out_by_itself() {
        let world = world();
        world.cache.stage_in(&world.store.anchor("f").unwrap(), &Arc::new(Policy::default())).unwrap();
        world.catalogue.fail_commits(1, 1);
        assert!(world.open(true, false).is_err());
        assert_eq!(world.state(), Residency::Queued);
        let queued = world.cache.inner.queue.pop(Duration::MAX, &mut |_| true);
        let queued = queued.expect("nothing would ever stage it out");
        assert_eq!(queued.identity, world.store.identity("f").unwrap());
    }

    #[test] // S15
    fn what_others_have_open_is_on_the_medium_before_it_is_cut() {
        let world = world();
        let _reader = world.open(false, false).unwrap();
        world.open(true, true).unwrap();
        let file = world.cache.inner.known(&world.store.identity("f").unwrap()).unwrap();
        assert!(file.live.lock().synced.content, "a crash may leave the intent over bytes that were never copied");
    }

    #[test] // S17
    fn a_truncation_that_was_refused_after_its_intent_did_not_happen() {
        let world = world();
        world.catalogue.fail_commits(1, 1);
        assert!(world.open(true, true).is_err());
        assert_eq!(world.state(), Residency::Absent);
        assert!(world.store.anchor("f").unwrap().mark().unwrap().is_none(), "a mark without a record");
        assert!(!holds_an_anchor(&world), "each refused open would cost a descriptor");
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.read("f").unwrap(), b"old");
    }

    #[test] // S17
    fn a_refused_truncation_of_what_others_read_did_not_happen() {
        let world = world();
        let reader = world.open(false, false).unwrap();
        world.catalogue.fail_commits(1, 1);
        assert!(world.open(true, true).is_err());
        let mut buffer = [0; 10];
        assert_eq!(reader.read_at(&mut buffer, 0).unwrap(), 3, "cut under its reader");
        drop(reader);
        assert_eq!(world.drain(), 0);
        assert_eq!(world.store.read("f").unwrap(), b"old");
    }
}
