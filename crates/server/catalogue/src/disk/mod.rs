//! The catalogue on disk: two keyspaces of one [`fjall`] database.
//!
//! `records` maps identities to records; `unclean` holds the identities of those that are not `Clean`. Both change in
//! the same batch, so that after a crash of any kind:
//!
//! 1. an identity is in `unclean` if and only if its record is not `Clean`;
//! 2. the state is that after some prefix of the commits, in the order of their acknowledgement, and that prefix
//!    includes all that were promised to survive the crash.
//!
//! One commits at a time: a lone caller itself, else a thread that takes everything that waits at once, so that many callers
//! share one write and one sync.

mod committer;
mod condense;
mod database;
mod journal;
mod room;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fjall::Readable;
use parking_lot::{Mutex, RwLock};
use types::Identity;

use crate::limits::{HEAL_PAUSE, PROBE_BYTES};
use crate::{Catalogue, Change, Durability, Error, Record, layout};
use committer::Committer;
use condense::Then;
use database::Database;
use journal::TORN_END;

/// The catalogue on disk. After a failed commit its database refuses all others until it is opened anew, because what
/// the failed one left behind is known only then; lookups go on. That is done by a later commit, and what the failed one
/// would have changed is as it was before; until then a crash may leave it done. A background write of tables that failed
/// (no space, no descriptors) is told by the next commit; an empty one asks for nothing else.
pub struct FjallCatalogue {
    dir: PathBuf,
    /// Exclusive while it is opened anew; `None` if that failed.
    open: RwLock<Option<Open>>,
    /// A commit failed since it was opened.
    failed: AtomicBool,
    /// That was for want of room.
    full: AtomicBool,
    /// Its use has ended.
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
    /// Records as they were before the commit that failed.
    before: Vec<(Identity, Option<Record>)>,
    /// Why it is not open.
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
    /// Opens the catalogue in the directory `dir`, which is created if needed and belongs to it alone.
    ///
    /// Errors: [`Error::Format`] when another version wrote it; [`Error::Open`] when another process has it open, or
    /// it cannot be read.
    pub fn open(dir: impl AsRef<Path>) -> Result<FjallCatalogue, Error> {
        let dir = dir.as_ref().to_path_buf();
        let open = RwLock::new(Some(Open::new(&dir)?));
        let (failed, full, closed) = Default::default();
        Ok(FjallCatalogue { dir, open, failed, full, closed, healing: Mutex::default() })
    }

    /// Whether records may be missing that there were: it is empty, or the end of its journal could not be read, now or
    /// at an earlier opening since which nobody said [`FjallCatalogue::searched`].
    pub fn may_lack_records(&self) -> Result<bool, Error> {
        let empty = self.with(|open| open.database.records.is_empty().map_err(failed("look for records")))?;
        Ok(empty || self.dir.join(TORN_END).exists())
    }

    /// What records there should be has been found out elsewhere, and is recorded.
    pub fn searched(&self) {
        let torn_end = self.dir.join(TORN_END);
        // If it cannot be renamed it is searched for again, which costs time only.
        let _ = fs::rename(&torn_end, torn_end.with_extension("searched"));
    }

    fn with<T>(&self, work: impl FnOnce(&Open) -> Result<T, Error>) -> Result<T, Error> {
        match &*self.open.read() {
            Some(open) => work(open),
            None => Err(Error::Open { path: self.dir.clone(), reason: self.healing.lock().reason.clone() }),
        }
    }

    /// Opens the database anew if a commit failed, and nobody tried a moment ago. What cannot be done now is tried by a
    /// later commit, which is refused meanwhile.
    fn heal(&self) {
        if !self.failed.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire) {
            return;
        }
        // Who reads it for long, or hangs in the disk, is not waited for: others would wait for us.
        let Some(mut open) = self.open.try_write() else { return };
        let mut healing = self.healing.lock();
        if open.as_ref().is_some_and(|open| open.committer.failure().is_none()) {
            return;
        }
        if healing.tried.get_or_insert_with(Instant::now).elapsed() < HEAL_PAUSE {
            return;
        }
        healing.tried = Some(Instant::now());
        // While nothing can be written, what is open still serves lookups.
        if takes_writes(&self.dir).is_err() {
            return;
        }
        if let Some(broken) = open.as_ref() {
            // Somebody still writes, or waits for a disk that does not answer: its files must be left alone.
            let Some(undecided) = broken.committer.undecided() else { return };
            // A commit is seen once it is written whole and synced as asked, so this is what was there before it. One that
            // was written after its callers had given up stays.
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

/// Whether a file can be written here.
fn takes_writes(dir: &Path) -> io::Result<()> {
    let path = dir.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_all()
    });
    fs::remove_file(&path)?;
    written
}

/// Gives the records their state before the commit that failed: who made it was told that it was not done.
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
            // Tables are larger than what is kept, and are told of late.
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

    /// A damaged record does not hide the others: they are all visited before the error is returned.
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

/// Names the step of a failure.
fn failed(step: &'static str) -> impl Fn(fjall::Error) -> Error {
    move |error| Error::Io { step, reason: error.to_string() }
}
