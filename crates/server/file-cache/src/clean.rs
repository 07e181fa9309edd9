//! Clean data that goes on demand: of an open cache, and of a place in a burst buffer that no agent uses.
//!
//! The clean data of ended runs is nobody's, and fills the burst buffer for those to come. Whoever holds a place's lock may drop it, as
//! [`IdlePlace`] does: a replica goes only if its record says clean, nothing marks it as holding more, and nobody uses it.
//!
//! A crash between the removal of a replica and that of its record leaves a clean record without a replica, which the next start drops.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record, State};
use concurrency::Instant;
use serde::{Deserialize, Serialize};
use types::{Identity, Version};

use crate::cache::{Inner, broken};
use crate::lease::{self, Nobody};
use crate::limits::{CLEAN_BATCH, CLEAN_TURN};
use crate::replica::{How, Replicas};
use crate::superblock::{check_owner, first_after_crash, is_damaged, lock};
use crate::surface::FileCache;

/// Which clean data is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    /// What was used last before this time, in seconds since 1970.
    pub used_before_s: u64,
    /// No more than makes up so many bytes, the longest unused first.
    pub bytes: u64,
    /// Whether it is only counted.
    pub dry_run: bool,
}

/// What went, or would go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaned {
    /// Replicas.
    pub files: u64,
    /// Bytes that they took.
    pub bytes: u64,
    /// When the longest unused of those that stay was used last, in seconds since 1970. `None`: none stays that could go.
    pub next_used_s: Option<u64>,
}

impl Cleaned {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// One clean replica that may go.
struct Candidate {
    used_s: u64,
    identity: Identity,
    version: Version,
}

/// The clean replicas that may go, the longest unused first.
fn candidates(catalogue: &dyn Catalogue) -> Result<Vec<Candidate>, catalogue::Error> {
    let mut found = Vec::new();
    catalogue.scan(
        &mut |identity, record: Record| {
            if record.state == State::Clean && !record.pinned {
                found.push(Candidate { used_s: record.used_s, identity, version: record.version });
            }
            true
        },
        &mut |error| tracing::warn!(%error, "a damaged record"),
    )?;
    found.sort_by_key(|one| one.used_s);
    Ok(found)
}

/// A place in a burst buffer that no agent uses. While it is held none can begin to.
pub struct IdlePlace {
    catalogue: FjallCatalogue,
    replicas: Replicas,
    _lock: File,
}

impl IdlePlace {
    /// Takes a place. `None`: an agent has it, it is another user's, or it is to be looked through before anything in it may go: a
    /// crash of the machine or damage may have left more in it than its records say.
    pub fn take(root: &Path) -> io::Result<Option<IdlePlace>> {
        if check_owner(root, false).is_err() || is_damaged(root) {
            return Ok(None);
        }
        let Ok(lock) = lock(root) else { return Ok(None) };
        if is_damaged(root) || first_after_crash(root) > Version(0) || !root.join("catalogue/db").exists() {
            return Ok(None);
        }
        let catalogue = FjallCatalogue::open(root.join("catalogue")).map_err(broken)?;
        // An empty one lists nothing that could go.
        if catalogue.may_lack_records().map_err(broken)? && root.join("catalogue/torn-end").exists() {
            return Ok(None);
        }
        Ok(Some(IdlePlace { catalogue, replicas: Replicas::open(root)?, _lock: lock }))
    }

    /// Drops clean data, for a moment: an agent that is to use the place waits for us.
    pub fn clean(&self, which: &Which) -> io::Result<Cleaned> {
        let until = Instant::now() + CLEAN_TURN;
        let mut cleaned = Cleaned::default();
        let mut gone = Vec::new();
        for one in candidates(&self.catalogue).map_err(broken)? {
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
            // What stays of them the next start drops.
            let _ = self.catalogue.commit(std::mem::replace(&mut gone, rest), Durability::Process);
        }
        Ok(cleaned)
    }

    /// What removing a replica would free; `None`: it must stay, or is not there.
    fn free_bytes_of(&self, version: Version) -> Option<u64> {
        if self.replicas.has_identity_attribute(version) {
            return None;
        }
        let replica = self.replicas.open_as(version, How::Read).ok()?;
        let unused = lease::probe(replica.as_fd(), Nobody::Uses).unwrap_or(false);
        unused.then(|| rustix::fs::fstat(&replica).map_or(0, |stat| stat.st_blocks as u64 * 512))
    }
}

impl FileCache {
    /// Drops clean replicas that nobody uses, the longest unused first.
    pub fn clean(&self, which: &Which) -> io::Result<Cleaned> {
        self.inner.clean(which)
    }
}

impl Inner {
    pub(crate) fn clean(&self, which: &Which) -> io::Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        // What cannot be recorded stays listed, and would be dropped again and again.
        if self.refusal().is_some() {
            return Ok(cleaned);
        }
        for one in candidates(&*self.catalogue).map_err(broken)? {
            if self.is_dead() || one.used_s >= which.used_before_s || cleaned.bytes >= which.bytes {
                cleaned.next_used_s = Some(one.used_s);
                break;
            }
            if !which.dry_run {
                let freed = self.try_evict(&one.identity).filter(|bytes| *bytes > 0);
                freed.into_iter().for_each(|bytes| cleaned.add(bytes));
                continue;
            }
            let in_use = self.known(&one.identity).is_some_and(|file| file.live.lock().handles > 0);
            if let Some(stat) = self.replicas.stat(one.version).ok().filter(|_| !in_use) {
                cleaned.add(stat.st_blocks as u64 * 512);
            }
        }
        Ok(cleaned)
    }

    /// When the clean replica that is unused for longest was used last, in seconds since 1970; the end of time if there is none.
    fn oldest_use(&self) -> u64 {
        let found = candidates(&*self.catalogue).map_err(broken).unwrap_or_default();
        found.first().map_or(u64::MAX, |one| one.used_s)
    }

    /// Asks for room in other places of the burst buffer, in a thread of its own: their agents may be slow to answer. First for what is
    /// unused for longer than anything here; whether that is under way, so that what is here may wait.
    pub(crate) fn ask_neighbours(self: &std::sync::Arc<Inner>, excess: u64) -> bool {
        use std::sync::atomic::Ordering;
        let Some(neighbours) = self.settings.neighbours.clone() else { return false };
        let now = self.now();
        if now < *self.asked_neighbours.lock() {
            return false;
        }
        if self.asking.swap(true, Ordering::AcqRel) {
            return true;
        }
        let inner = std::sync::Arc::clone(self);
        let ask = move || {
            let freed = neighbours(&Which { used_before_s: inner.oldest_use(), bytes: excess, dry_run: false });
            if freed == 0 {
                *inner.asked_neighbours.lock() = inner.now() + crate::limits::NEIGHBOURS_PAUSE;
            } else {
                tracing::info!(bytes = freed, "clean data of other directories made room in the burst buffer");
            }
            inner.spaces.forget();
            inner.asking.store(false, Ordering::Release);
        };
        let started = concurrency::spawn("neighbours", ask).is_ok();
        self.asking.fetch_and(started, Ordering::AcqRel);
        started
    }
}
