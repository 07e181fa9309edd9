//! Removal of clean data on demand: from an open cache, and from a place of a burst buffer that no agent uses.
//!
//! Clean data of ended runs belongs to nobody and fills the burst buffer for later runs. A process that holds the lock
//! of a place may remove it, as [`IdlePlace`] does. A replica is removed only if its record says clean, no identity
//! attribute says that it holds more, and nobody uses it.
//!
//! A crash between the removal of a replica and that of its record leaves a clean record without a replica. The next
//! start drops it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue};
use concurrency::Instant;
use types::Version;

use crate::burst_buffer::lease::{self, Nobody};
use crate::burst_buffer::replica::{How, Replicas};
use crate::burst_buffer::superblock::{check_owner, first_after_crash, is_damaged, lock};
use crate::cache::{Inner, broken};
use crate::eviction::oldest_clean;
use crate::limits::{CLEAN_BATCH, CLEAN_TURN};
use data_store::{Cleaned, Which};

/// A place of a burst buffer that no agent uses. No agent can start on it while this is held.
pub struct IdlePlace {
    catalogue: FjallCatalogue,
    replicas: Replicas,
    _lock: File,
}

impl IdlePlace {
    /// Takes a place. Returns `None` if an agent has it, if it is another user's, or if recovery must search it first:
    /// a crash of the machine or damage may have left more in it than its records say.
    pub fn take(root: &Path) -> io::Result<Option<IdlePlace>> {
        if check_owner(root, false).is_err() || is_damaged(root) {
            return Ok(None);
        }
        let Ok(lock) = lock(root) else { return Ok(None) };
        if is_damaged(root) || first_after_crash(root) > Version(0) || !root.join("catalogue/db").exists() {
            return Ok(None);
        }
        let catalogue = FjallCatalogue::open(root.join("catalogue")).map_err(broken)?;
        // An empty catalogue lists nothing that could be removed.
        if catalogue.may_lack_records().map_err(broken)? && root.join("catalogue/torn-end").exists() {
            return Ok(None);
        }
        Ok(Some(IdlePlace { catalogue, replicas: Replicas::open(root)?, _lock: lock }))
    }

    /// Removes clean data, for a bounded time: an agent that is to use the place waits for the end.
    pub fn clean(&self, which: &Which) -> io::Result<Cleaned> {
        let until = Instant::now() + CLEAN_TURN;
        let mut cleaned = Cleaned::default();
        let mut gone = Vec::new();
        let (oldest, scanned) = oldest_clean(&self.catalogue, usize::MAX);
        scanned.map_err(broken)?;
        for one in oldest {
            let is_over = !which.dry_run && Instant::now() >= until;
            if is_over || one.used_s >= which.used_before_s || cleaned.bytes >= which.bytes {
                cleaned.next_used_s = Some(one.used_s);
                break;
            }
            let Some(bytes) = self.free_bytes_of(one.version) else { continue };
            cleaned.add(bytes);
            if !which.dry_run {
                self.replicas.remove(one.version)?;
                gone.push(Change::Remove(one.identity));
            }
        }
        while !gone.is_empty() {
            let rest = gone.split_off(gone.len().min(CLEAN_BATCH));
            // If this fails, the next start drops the records.
            let _ = self.catalogue.commit(std::mem::replace(&mut gone, rest), Durability::Process);
        }
        Ok(cleaned)
    }

    /// Returns the bytes that removing a replica would free, or `None` if it must stay or does not exist.
    fn free_bytes_of(&self, version: Version) -> Option<u64> {
        if self.replicas.has_identity_attribute(version) {
            return None;
        }
        let replica = self.replicas.open_as(version, How::Read).ok()?;
        let unused = lease::probe(replica.as_fd(), Nobody::Uses).unwrap_or(false);
        unused.then(|| rustix::fs::fstat(&replica).map_or(0, |stat| stat.st_blocks as u64 * 512))
    }
}

impl Inner {
    /// Removes clean replicas that nobody uses, the longest unused first.
    pub(crate) fn clean(&self, which: &Which) -> io::Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        // A removal that cannot be recorded stays listed, and would be repeated again and again.
        if self.refusal().is_some() {
            return Ok(cleaned);
        }
        let (oldest, scanned) = oldest_clean(&*self.catalogue, usize::MAX);
        scanned.map_err(broken)?;
        for one in oldest {
            if self.is_dead() || one.used_s >= which.used_before_s || cleaned.bytes >= which.bytes {
                cleaned.next_used_s = Some(one.used_s);
                break;
            }
            if !which.dry_run {
                let freed = self.try_evict(&one.identity).filter(|bytes| *bytes > 0);
                freed.into_iter().for_each(|bytes| cleaned.add(bytes));
                continue;
            }
            let in_use = self.known(&one.identity).is_some_and(|file| file.live.lock().is_open());
            if let Some(stat) = self.replicas.stat(one.version).ok().filter(|_| !in_use) {
                cleaned.add(stat.st_blocks as u64 * 512);
            }
        }
        Ok(cleaned)
    }

    /// Returns the last use of the longest unused clean replica, in seconds since 1970; the maximum if there is none.
    fn oldest_use(&self) -> u64 {
        let (oldest, scanned) = oldest_clean(&*self.catalogue, 1);
        scanned.map_err(broken).ok().and(oldest.first()).map_or(u64::MAX, |one| one.used_s)
    }

    /// Asks other places of the burst buffer for room, in a thread of its own because their agents may answer slowly.
    /// The first request is for data that is unused for longer than anything here. Returns whether that is under way,
    /// so that data here may wait.
    pub(crate) fn ask_neighbours(self: &std::sync::Arc<Inner>, excess: u64) -> bool {
        use std::sync::atomic::Ordering;
        let Some(neighbours) = self.settings.neighbours.clone() else { return false };
        let now = self.now();
        if now < *self.evictions.asked.lock() {
            return false;
        }
        if self.evictions.asking.swap(true, Ordering::AcqRel) {
            return true;
        }
        let inner = std::sync::Arc::clone(self);
        let ask = move || {
            let freed = neighbours(&Which { used_before_s: inner.oldest_use(), bytes: excess, dry_run: false });
            if freed == 0 {
                *inner.evictions.asked.lock() = inner.now() + crate::limits::NEIGHBOURS_PAUSE;
            } else {
                tracing::info!(
                    bytes = freed,
                    "removed clean data of other directories to make room in the burst buffer"
                );
            }
            inner.spaces.forget();
            inner.evictions.asking.store(false, Ordering::Release);
        };
        let started = concurrency::spawn("neighbours", ask).is_ok();
        self.evictions.asking.fetch_and(started, Ordering::AcqRel);
        started
    }
}
