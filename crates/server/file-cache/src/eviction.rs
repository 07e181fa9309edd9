//! Eviction: clean replicas that nobody uses are removed to free room, the longest unused first. A replica is removed
//! by unlink, never by punching holes: descriptors that the kernel holds keep their data.

use std::collections::BinaryHeap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use catalogue::{Catalogue, Durability, Record, State};
use config::KeepAfter;
use global_store::calls::still_wanted;
use types::{Identity, Shown, Version};

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::How;
use crate::burst_buffer::sums::{self, Sums};
use crate::cache::{CacheCounters, Inner};
use crate::clock::wall_s;
use crate::errors::{errno, os};
use crate::fault;
use crate::limits::{EVICT_ROUND, POLL, ROUND, USED_GRAIN_S};
use crate::residency::{Compared, File};
use crate::stage_out::StageOutResult;

/// A clean replica that may be removed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) used_s: u64,
    pub(crate) identity: Identity,
    pub(crate) version: Version,
}

/// Returns the clean replicas that may be removed, the longest unused first and at most `most`. Errors: some may be
/// missing.
pub(crate) fn oldest_clean(catalogue: &dyn Catalogue, most: usize) -> (Vec<Candidate>, Result<(), catalogue::Error>) {
    let mut oldest = BinaryHeap::new();
    let scanned = catalogue.scan(
        &mut |identity, record| {
            if record.state == State::Clean && !record.pinned {
                oldest.push(Candidate { used_s: record.used_s, identity, version: record.version });
                if oldest.len() > most {
                    oldest.pop();
                }
            }
            true
        },
        &mut |error| tracing::warn!(%error, "found a damaged record in the catalogue, see `forebay check`"),
    );
    (oldest.into_sorted_vec(), scanned)
}

impl Inner {
    /// Evicts until `bytes` are freed or nothing is left to evict. Returns the bytes freed. May be called with a gate
    /// held, for it waits for none.
    pub(crate) fn evict_bytes(&self, bytes: u64) -> u64 {
        let mut not_before = self.evictions.not_before.lock();
        let now = self.now();
        if now < *not_before {
            return 0;
        }
        let mut freed = 0;
        let (oldest, scanned) = oldest_clean(&*self.catalogue, EVICT_ROUND);
        if let Err(error) = scanned {
            tracing::error!(%error, "could not read the catalogue: not all that is clean may be evicted");
        }
        for one in oldest {
            if freed >= bytes {
                break;
            }
            freed += self.try_evict(&one.identity).unwrap_or(0);
        }
        if freed == 0 {
            // Each round reads the whole catalogue.
            *not_before = now + ROUND;
        }
        freed
    }

    pub(crate) fn try_evict(&self, identity: &Identity) -> Option<u64> {
        let file = self.file_for(identity);
        let _gate = file.try_gate()?;
        if file.live.lock().is_retired() || self.load(&file, false).is_err() {
            return None;
        }
        self.evict_gated(&file).ok()
    }

    /// Drops a clean replica that nobody uses. Returns the bytes freed. A file without a replica is no error. Errors:
    /// `EBUSY` if the replica is open, mapped or being copied; `EINVAL` if it is dirty; `EPERM` if it is pinned.
    pub(crate) fn evict(&self, identity: &Identity) -> io::Result<u64> {
        self.gated(identity, false, |file, _| self.evict_gated(file))?
    }

    /// Pins a replica (never evicted, never expired) or unpins it. Errors: `ENOENT` if there is no replica; stage it
    /// in first.
    pub(crate) fn pin(&self, identity: &Identity, pinned: bool) -> io::Result<()> {
        self.gated(identity, false, |file, _| {
            let record = file.live.lock().record().cloned();
            let Some(record) = record else { return os(libc::ENOENT) };
            self.put(file, Record { pinned, ..record }, Durability::Process)?;
            self.expiry.forget(identity);
            let rests = file.peek(|live| !live.is_open() && !live.is_unclean());
            if !pinned && rests {
                self.drop_or_keep(file);
            }
            Ok(())
        })?
    }

    /// Evicts one file, as [`Inner::evict`] does. Gate held.
    pub(crate) fn evict_gated(&self, file: &Arc<File>) -> io::Result<u64> {
        let version = {
            let live = file.live.lock();
            let Some(record) = live.record() else {
                return if live.fetch().is_some() { os(libc::EBUSY) } else { Ok(0) };
            };
            if record.state != State::Clean {
                return os(libc::EINVAL);
            }
            if record.pinned && !live.medium.lacks_some() {
                return os(libc::EPERM);
            }
            if live.is_open() {
                return os(libc::EBUSY);
            }
            record.version
        };
        let freed = match self.replicas.open_as(version, How::Read) {
            Ok(replica) if !lease::probe(replica.as_fd(), Nobody::Uses)? => return os(libc::EBUSY),
            Ok(replica) => rustix::fs::fstat(&replica)?.st_blocks as u64 * 512,
            // Somebody else removed the replica: the record is dropped.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        self.drop_replica(file)?;
        CacheCounters::add(&self.counters.evicted, 1);
        // An empty replica frees its inode, which is progress too.
        Ok(freed.max(1))
    }

    /// Removes record and replica. Gate held. The file is clean, or its data is unwanted.
    pub(crate) fn drop_replica(&self, file: &File) -> io::Result<()> {
        let (had_record, unclean, unlinked, version, clean_commit) = file.peek(|live| {
            (live.record().is_some(), live.is_unclean(), live.is_unlinked(), live.version(), live.clean_commit)
        });
        if had_record {
            // First the identity attribute: recovery takes a replica that has one for dirty.
            version.iter().for_each(|version| self.replicas.remove_identity_attribute_of(*version));
            let durability = if unclean { Durability::Machine } else { self.leaving(clean_commit) };
            let nobodys = version.filter(|_| !unclean || unlinked).map(|version| (version, false));
            self.disown(&file.identity, nobodys, durability).inspect_err(|_| self.stays_dirty(file))?;
        }
        fault::point("evict.record");
        if unclean {
            CacheCounters::add(&self.counters.staged_count, 1);
        }
        self.expiry.forget(&file.identity);
        // Reads of the file were made, and stay visible in its access time.
        let read = self.last_read(file).map(|(read, _)| read);
        {
            let mut live = file.live.lock();
            live.reads.asked = read;
            live.dropped();
        }
        file.moved.notify_all();
        if let Some(version) = version {
            // The replica is garbage now. If this fails, the next start's sweep removes it.
            let _ = self.replicas.remove(version);
            self.spaces.forget();
        }
        fault::point("evict.replica");
        Ok(())
    }

    /// Returns whether a replica made before a crash of the machine is still intact. Gate held, record clean.
    pub(crate) fn is_sound(&self, file: &File, version: Version, size: u64) -> bool {
        if file.live.lock().compared == Compared::Yes || !self.superblock.is_suspect(version) {
            return true;
        }
        let sound = (|| {
            let sums = Sums::load(&self.replicas.sums_path(version))?;
            let fd = self.replicas.open_as(version, How::Read).ok()?;
            let found = sums::of_replica(&fd, size).ok()?;
            (found == sums && rustix::fs::fstat(&fd).ok()?.st_size as u64 == size).then_some(())
        })();
        file.live.lock().compared = if sound.is_some() { Compared::Yes } else { Compared::No };
        sound.is_some()
    }

    /// Schedules another try for a replica that could not be removed. A file that became dirty or pinned is not tried
    /// again; it gets a deadline when it is neither. Gate held.
    pub(crate) fn evict_later(&self, file: &File, error: &io::Error, after: Duration) {
        let stays = file.peek(|live| {
            let pinned = |record: &Record| record.pinned && !live.medium.lacks_some();
            live.record().is_none_or(|record| record.state != State::Clean || pinned(record))
        });
        if stays {
            return;
        }
        if errno(error) != libc::EBUSY {
            tracing::warn!(%error, file = %file.identity, "a clean replica could not be dropped: it is tried again");
        }
        self.expiry.set(&file.identity, self.now().saturating_add(after));
    }

    /// Keeps a clean replica until it expires or is evicted. Gate held.
    pub(crate) fn keep(&self, file: &File) {
        let (record, policy) = file.peek(|live| (live.record().cloned(), Arc::clone(&live.policy)));
        let Some(mut record) = record.filter(|record| record.state == State::Clean) else { return };
        if let KeepAfter::For(keep) = policy.keep_after
            && !record.pinned
        {
            self.expiry.set(&file.identity, self.now().saturating_add(keep));
        }
        let now = wall_s();
        if now.abs_diff(record.used_s) > USED_GRAIN_S {
            record.used_s = now;
            // Only the order of eviction after a restart depends on this.
            let _ = self.put(file, record, Durability::Process);
        }
    }

    /// Drops a clean replica whose global copy has changed. Open handles keep their version. Gate held.
    pub(crate) fn outdated(&self, file: &Arc<File>, in_use: bool) -> io::Result<()> {
        tracing::debug!(file = %file.identity, "the global copy changed: the replica is dropped");
        if !in_use {
            return self.drop_replica(file);
        }
        self.settle_reads(file);
        let (version, clean_commit) = file.peek(|live| (live.version(), live.clean_commit));
        version.iter().for_each(|version| self.replicas.remove_identity_attribute_of(*version));
        self.disown(&file.identity, version.map(|version| (version, true)), self.leaving(clean_commit))?;
        file.live.lock().disowned();
        self.expiry.forget(&file.identity);
        self.retire(file);
        Ok(())
    }

    /// Makes room for a write that found none: evicts, and drops removed files.
    pub(crate) fn make_room(&self, bytes: u64) {
        CacheCounters::add(&self.counters.full, 1);
        let lacks = || bytes.saturating_sub(self.spaces.now().free);
        if self.evict_bytes(bytes) < bytes {
            self.settle_removals(lacks());
        }
    }

    /// Returns whether no mapping of an earlier open can still write the replica. The file's `io` lock is held, so our
    /// own descriptor for writing may be closed; the next write opens another.
    fn nobody_maps(&self, file: &File) -> io::Result<bool> {
        let version = file.peek(|live| {
            live.fds.write = None;
            live.version()
        });
        let Some(version) = version else { return Ok(false) };
        lease::probe(self.replicas.open_as(version, How::Read)?.as_fd(), Nobody::Writes)
    }

    /// Moves a file that outgrows the burst buffer to the global store: it is staged out while its writers wait.
    /// Returns false if that is impossible, because the kernel writes the replica without the agent, or because the
    /// file has no name.
    pub(crate) fn spill(&self, file: &Arc<File>) -> io::Result<bool> {
        let _io = file.io.write();
        {
            let live = file.live.lock();
            if live.is_through() {
                return Ok(true);
            }
            if live.is_bypassed() || live.is_unlinked() || !live.is_whole() {
                return Ok(false);
            }
        }
        if !self.nobody_maps(file)? {
            return Ok(false);
        }
        // Held until the file has moved: a later stage-out would bring old bytes over new ones.
        let _drain = loop {
            if let Some(lock) = file.drain.try_lock_for(POLL) {
                break lock;
            }
            // The store may block the stage-out that holds the lock.
            still_wanted()?;
        };
        if let Some(StageOutResult::Stuck { error, .. }) = self.drain_locked(&[file], false, &|| false).pop() {
            return os(errno(&error));
        }
        let Some(anchor) = self.anchor_of(file, false)? else { return Ok(false) };
        let global = Arc::from(anchor.open(global_store::Access::Write)?);
        let _gate = file.gate();
        let moves = file.peek(|live| !live.is_bypassed() && !live.is_unlinked() && live.is_whole());
        if !moves {
            return Ok(false);
        }
        self.drop_replica(file)?;
        {
            let mut live = file.live.lock();
            live.fds.global = Some((global_store::Access::Write, global));
            live.go_through();
        }
        self.queue.remove(file);
        file.moved.notify_all();
        CacheCounters::add(&self.counters.spilled, 1);
        tracing::warn!(file = %anchor.path_hint().shown(), "the burst buffer is full: the file moved to the global store");
        Ok(true)
    }
}
