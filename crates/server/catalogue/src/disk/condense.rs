//! Condensing: keeps the next opening short.
//!
//! fjall begins a new journal only every 64 MB. An opening reads all of the last one, at some 15 MB a second. So the
//! memtables are written to tables at an orderly end, and when the catalogue is idle for a while. The journals then
//! hold nothing new. With the database closed for a moment, an empty journal replaces them. All tables that fjall has
//! written are on the medium, by its own rule for dropping journals.

use std::sync::atomic::Ordering;

use concurrency::Instant;
use fjall::{AbstractTree, Keyspace, PersistMode};

use super::database::Database;
use super::{FjallCatalogue, Open, journal, room};
use crate::Error;
use crate::limits::{COMMIT_WAIT, CONDENSE_POLL, CONDENSE_ROOM_BYTES, REPLAY_BYTES_KEPT};

/// Step that follows the condensing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Reopen,
    Close,
}

impl FjallCatalogue {
    pub(super) fn condense_and(&self, then: Then) -> Result<(), Error> {
        if then == Then::Reopen {
            // Write most of the data while other callers continue.
            let worth_it = |open: &Open| open.committer.failure().is_none() && has_room(self);
            match &*self.open.read() {
                Some(open) if worth_it(open) => open.database.write_memtables()?,
                _ => return Ok(()),
            }
        }
        let Some(mut open) = self.open.try_write_for(if then == Then::Close { COMMIT_WAIT } else { CONDENSE_POLL })
        else {
            return Ok(());
        };
        if then == Then::Close {
            self.closed.store(true, Ordering::Release);
            self.healing.lock().reason = "its use has ended".into();
        }
        let Some(now) = open.as_ref().filter(|open| open.committer.failure().is_none()) else { return Ok(()) };
        let spared = then == Then::Reopen || now.database.replay.load(Ordering::Relaxed) > REPLAY_BYTES_KEPT;
        let written = match spared && has_room(self) {
            true => now.database.write_memtables().map(|()| now.database.is_all_in_tables()),
            false => Ok(false),
        };
        if then == Then::Reopen && !matches!(written, Ok(true)) {
            return written.map(|_| ());
        }
        // Closes the database and waits for its threads.
        *open = None;
        let renewed = match written? {
            true => journal::renew(&self.dir.join("db")).map_err(failed),
            false => Ok(()),
        };
        if then == Then::Close {
            // A failure leaves reserved blocks allocated, which is harmless.
            let _ = room::give_back(&self.dir.join("db"));
        }
        if then == Then::Reopen {
            let anew = Open::new(&self.dir).inspect_err(|error| {
                // The next commit tries again.
                self.healing.lock().reason = error.to_string();
                self.failed.store(true, Ordering::Release);
            });
            *open = Some(anew?);
        }
        renewed
    }
}

fn has_room(catalogue: &FjallCatalogue) -> bool {
    rustix::fs::statvfs(&catalogue.dir)
        .is_ok_and(|now| now.f_bavail.saturating_mul(now.f_frsize) >= CONDENSE_ROOM_BYTES)
}

impl Database {
    /// Writes all records to tables and waits for the end. Errors: a dead table writer, or a wait longer than
    /// [`COMMIT_WAIT`].
    fn write_memtables(&self) -> Result<(), Error> {
        let deadline = Instant::now() + COMMIT_WAIT;
        for keyspace in [&self.records, &self.unclean] {
            keyspace.rotate_memtable().map_err(failed)?;
        }
        let is_written = |keyspace: &Keyspace| keyspace.sealed_memtable_count() == 0;
        while !(is_written(&self.records) && is_written(&self.unclean)) {
            // Fails if a thread that writes tables died.
            self.db.persist(PersistMode::Buffer).map_err(failed)?;
            if Instant::now() > deadline {
                return Err(failed("tables are not written in time"));
            }
            concurrency::sleep(CONDENSE_POLL);
        }
        Ok(())
    }

    /// Returns whether the tables hold all that the journals hold. No commit may run meanwhile.
    fn is_all_in_tables(&self) -> bool {
        let is_empty =
            |keyspace: &Keyspace| keyspace.sealed_memtable_count() == 0 && keyspace.tree.active_memtable().is_empty();
        is_empty(&self.records) && is_empty(&self.unclean) && self.db.persist(PersistMode::SyncAll).is_ok()
    }
}

fn failed(reason: impl ToString) -> Error {
    Error::Io { step: "write the journal to tables", reason: reason.to_string() }
}
