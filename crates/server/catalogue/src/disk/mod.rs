//! Catalogue on disk: two keyspaces of one [`fjall`] database.
//!
//! `records` maps identities to records; `unclean` holds the identities whose records are not `Clean`. Both change in
//! one batch, so that after a crash of any kind:
//!
//! 1. an identity is in `unclean` if and only if its record is not `Clean`;
//! 2. the state is that after some prefix of the commits, in order of acknowledgement. The prefix includes all commits
//!    that were promised to survive this crash.
//!
//! One thread writes at a time. A lone caller writes its own commit. Otherwise a thread takes all waiting commits at
//! once, so that many callers share one write and one sync.

mod committer;
mod condense;
mod database;
mod journal;
mod room;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Instant, Mutex, RwLock};
use fjall::Readable;
use types::Identity;

use crate::limits::{HEAL_PAUSE, PROBE_BYTES};
use crate::{Catalogue, Change, Durability, Error, Record, layout};
use committer::Committer;
use condense::Then;
use database::Database;
use journal::TORN_END;

/// Catalogue on disk.
///
/// After a failed commit the database refuses further commits until it is opened again, because only an opening shows
/// what was written. Lookups continue. A later commit opens the database again and undoes the failed commit. Until then
/// a crash may leave the failed commit done.
///
/// A failed write of tables in the background (no space, no descriptors) is reported by the next commit. An empty
/// commit serves to ask for it.
pub struct FjallCatalogue {
    dir: PathBuf,
    /// Database; locked exclusively while it is opened again. `None` if that failed.
    open: RwLock<Option<Open>>,
    /// Whether a commit failed since the database was opened.
    failed: AtomicBool,
    /// Whether that commit failed for lack of space.
    full: AtomicBool,
    /// Whether the catalogue was closed.
    closed: AtomicBool,
    healing: Mutex<Healing>,
}

struct Open {
    // Declared first: it must be gone before the database is closed.
    committer: Committer,
    database: Database,
}

#[derive(Default)]
struct Healing {
    tried: Option<Instant>,
    /// Records as they were before the failed commit.
    before: Vec<(Identity, Option<Record>)>,
    /// Reason why the database is not open.
    reason: String,
}

impl Open {
    fn new(dir: &Path) -> Result<Open, Error> {
        let database = Database::open(dir)?;
        let committer = Committer::start(&database)
            .map_err(|error| Error::Open { path: dir.to_path_buf(), reason: error.to_string() })?;
        Ok(Open { committer, database })
    }

    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error> {
        match self.database.records.get(identity.as_bytes()).map_err(failed("look up a record"))? {
            Some(bytes) => decode(identity, &bytes).map(Some),
            None => Ok(None),
        }
    }
}

impl FjallCatalogue {
    /// Opens the catalogue in the directory `dir`, which is created if needed and belongs to the catalogue alone.
    ///
    /// Errors: [`Error::Format`] if another version wrote the catalogue; [`Error::Open`] if another process has it open
    /// or it cannot be read.
    pub fn open(dir: impl AsRef<Path>) -> Result<FjallCatalogue, Error> {
        let dir = dir.as_ref().to_path_buf();
        let open = RwLock::new(Some(Open::new(&dir)?));
        let (failed, full, closed) = Default::default();
        Ok(FjallCatalogue { dir, open, failed, full, closed, healing: Mutex::default() })
    }

    /// Returns whether records may be missing that existed. True if the catalogue is empty. Also true if the end of the
    /// journal could not be read, now or at an earlier opening, until [`FjallCatalogue::searched`] is called.
    pub fn may_lack_records(&self) -> Result<bool, Error> {
        let empty = self.with(|open| open.database.records.is_empty().map_err(failed("look for records")))?;
        Ok(empty || self.dir.join(TORN_END).exists())
    }

    /// Notes that the missing records were searched for elsewhere and are recorded.
    pub fn searched(&self) {
        let torn_end = self.dir.join(TORN_END);
        // If the rename fails, the search is repeated, which only costs time.
        let _ = fs::rename(&torn_end, torn_end.with_extension("searched"));
    }

    fn with<T>(&self, work: impl FnOnce(&Open) -> Result<T, Error>) -> Result<T, Error> {
        match &*self.open.read() {
            Some(open) => work(open),
            None => Err(Error::Open { path: self.dir.clone(), reason: self.healing.lock().reason.clone() }),
        }
    }

    /// Opens the database again if a commit failed and the last attempt is not too recent. If that is impossible now, a
    /// later commit tries again; commits are refused meanwhile.
    fn heal(&self) {
        if !self.failed.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire) {
            return;
        }
        // Never wait for a long scan or a thread that hangs in the disk: other callers would wait for this lock.
        let Some(mut open) = self.open.try_write() else { return };
        let mut healing = self.healing.lock();
        if open.as_ref().is_some_and(|open| open.committer.failure().is_none()) {
            return;
        }
        if healing.tried.get_or_insert_with(Instant::now).elapsed() < HEAL_PAUSE {
            return;
        }
        healing.tried = Some(Instant::now());
        // While nothing can be written, the open database still serves lookups.
        if takes_writes(&self.dir).is_err() {
            return;
        }
        if let Some(broken) = open.as_ref() {
            // A thread may still write, or wait for a disk that does not answer: leave its files alone.
            let Some(undecided) = broken.committer.undecided() else { return };
            // A commit becomes visible once it is written whole and synced as asked, so lookups give the state before
            // it. A commit that was written after its callers had given up stays.
            let before = undecided.into_iter().map(|identity| broken.get(&identity).map(|found| (identity, found)));
            let Ok(before) = before.collect::<Result<Vec<_>, Error>>() else { return };
            healing.before = before;
        }
        *open = None;
        match Open::new(&self.dir).and_then(|anew| restore(&anew, &healing.before).map(|()| anew)) {
            Ok(anew) => {
                *open = Some(anew);
                *healing = Healing::default();
                self.full.store(false, Ordering::Release);
                self.failed.store(false, Ordering::Release);
            }
            Err(error) => healing.reason = error.to_string(),
        }
    }
}

/// Checks that a file can be written in `dir`.
fn takes_writes(dir: &Path) -> io::Result<()> {
    let path = dir.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_all()
    });
    fs::remove_file(&path)?;
    written
}

/// Restores records to their state before the failed commit, whose callers were told that it was not done.
fn restore(open: &Open, before: &[(Identity, Option<Record>)]) -> Result<(), Error> {
    let changes = before.iter().map(|(identity, record)| match record {
        Some(record) => Change::Put(identity.clone(), record.clone()),
        None => Change::Remove(identity.clone()),
    });
    open.committer.commit(changes.collect(), Durability::Machine)
}

impl Catalogue for FjallCatalogue {
    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error> {
        self.with(|open| open.get(identity))
    }

    fn may_have(&self, start: &[u8]) -> Result<bool, Error> {
        self.with(|open| match open.database.records.prefix(start).next() {
            Some(entry) => entry.into_inner().map(|_| true).map_err(failed("look for records")),
            None => Ok(false),
        })
    }

    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error> {
        self.heal();
        let done = self.with(|open| open.committer.commit(changes, durability));
        if done.is_err() && !self.failed.load(Ordering::Acquire) {
            // A table write is larger than the reserve, and its failure is reported late.
            self.full.store(room::free(&self.dir).is_some_and(|free| free < PROBE_BYTES as u64), Ordering::Release);
        }
        if done.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        done
    }

    fn trouble(&self) -> Option<String> {
        match &*self.open.read() {
            Some(open) => open.committer.failure().map(|reason| reason.to_string()),
            None => Some(self.healing.lock().reason.clone()),
        }
    }

    fn has_room(&self) -> bool {
        match &*self.open.read() {
            _ if self.full.load(Ordering::Acquire) => false,
            Some(open) => open.database.room.has_some(),
            None => true,
        }
    }

    fn replay_bytes(&self) -> u64 {
        self.open.read().as_ref().map_or(0, |open| open.database.replay.load(Ordering::Relaxed))
    }

    fn condense(&self) -> Result<(), Error> {
        self.condense_and(Then::Reopen)
    }

    fn close(&self) -> Result<(), Error> {
        self.condense_and(Then::Close)
    }

    /// Visits all other records before it returns the error of a damaged one.
    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error> {
        self.with(|open| open.unclean(each))
    }

    fn scan(
        &self,
        each: &mut dyn FnMut(Identity, Record) -> bool,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<(), Error> {
        self.with(|open| open.scan(each, damaged))
    }
}

impl Open {
    fn unclean(&self, each: &mut dyn FnMut(Identity, Record)) -> Result<(), Error> {
        let snapshot = self.database.db.snapshot();
        let mut damage = None;
        for entry in snapshot.iter(&self.database.unclean) {
            let key = entry.key().map_err(failed("list what is not clean"))?;
            let value = snapshot.get(&self.database.records, &key).map_err(failed("look up a record"))?;
            let read = identity_of(&key).and_then(|identity| match value {
                Some(bytes) => Ok((decode(&identity, &bytes)?, identity)),
                None => Err(damaged(&identity, "listed as not clean, but there is none")),
            });
            match read {
                Ok((record, identity)) => each(identity, record),
                Err(error) => damage = damage.or(Some(error)),
            }
        }
        damage.map_or(Ok(()), Err)
    }

    fn scan(
        &self,
        each: &mut dyn FnMut(Identity, Record) -> bool,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<(), Error> {
        for entry in self.database.db.snapshot().iter(&self.database.records) {
            let (key, value) = entry.into_inner().map_err(failed("read all records"))?;
            let read = identity_of(&key).and_then(|identity| Ok((decode(&identity, &value)?, identity)));
            match read {
                Ok((record, identity)) => {
                    if !each(identity, record) {
                        break;
                    }
                }
                Err(error) => damaged(error),
            }
        }
        Ok(())
    }
}

fn identity_of(key: &[u8]) -> Result<Identity, Error> {
    Identity::new(key).map_err(|error| Error::Damaged { identity: format!("{key:02x?}"), reason: error.to_string() })
}

fn decode(identity: &Identity, bytes: &[u8]) -> Result<Record, Error> {
    layout::decode(identity, bytes).map_err(|reason| damaged(identity, reason))
}

fn damaged(identity: &Identity, reason: &str) -> Error {
    Error::Damaged { identity: identity.to_string(), reason: reason.into() }
}

/// Returns a function that makes an error with this step.
fn failed(step: &'static str) -> impl Fn(fjall::Error) -> Error {
    move |error| Error::Io { step, reason: error.to_string() }
}
