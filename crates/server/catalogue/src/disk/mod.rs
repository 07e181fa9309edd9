//! The catalogue on disk: two keyspaces of one [`fjall`] database.
//!
//! `records` maps identities to records; `unclean` holds the identities of those that are not `Clean`. Both change in
//! the same batch, so that after a crash of any kind:
//!
//! 1. an identity is in `unclean` if and only if its record is not `Clean`;
//! 2. the state is that after some prefix of the commits, in the order of their acknowledgement, and that prefix
//!    includes all that were promised to survive the crash.
//!
//! One thread commits. It takes everything that waits at once, so that many callers share one write and one sync.

mod committer;
mod database;
mod journal;

use std::path::Path;

use fjall::Readable;
use types::Identity;

use crate::{Catalogue, Change, Durability, Error, Record, layout};
use committer::Committer;
use database::Database;

/// The catalogue on disk. After a failed commit it refuses all others until it is opened anew, because what the failed
/// one left behind is known only then; lookups go on. A background write of tables that failed (no space, no
/// descriptors) is told by the next commit; an empty one asks for nothing else.
pub struct FjallCatalogue {
    // Declared first: it must be gone before the database is closed.
    committer: Committer,
    database: Database,
}

impl FjallCatalogue {
    /// Opens the catalogue in the directory `dir`, which is created if needed and belongs to it alone.
    ///
    /// Errors: [`Error::Format`] when another version wrote it; [`Error::Open`] when another process has it open, or
    /// it cannot be read.
    pub fn open(dir: impl AsRef<Path>) -> Result<FjallCatalogue, Error> {
        let dir = dir.as_ref();
        let database = Database::open(dir)?;
        let committer = Committer::start(&database)
            .map_err(|error| Error::Open { path: dir.to_path_buf(), reason: error.to_string() })?;
        Ok(FjallCatalogue { committer, database })
    }
}

impl Catalogue for FjallCatalogue {
    fn get(&self, identity: &Identity) -> Result<Option<Record>, Error> {
        match self.database.records.get(identity.as_bytes()).map_err(failed("look up a record"))? {
            Some(bytes) => decode(identity, &bytes).map(Some),
            None => Ok(None),
        }
    }

    fn commit(&self, changes: Vec<Change>, durability: Durability) -> Result<(), Error> {
        self.committer.commit(changes, durability)
    }

    /// A damaged record does not hide the others: they are all visited before the error is returned.
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
