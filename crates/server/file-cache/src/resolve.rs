//! Ending a conflict, a failure or an orphan by command.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use catalogue::{Durability, Record, State};

use crate::api::Keep;
use crate::cache::{Counters, Inner};
use crate::file::{Body, File};
use crate::limits::SAVED_NAME_BYTES;

impl Inner {
    /// See `FileCache::resolve`. Gate held.
    pub(crate) fn resolve_gated(&self, file: &Arc<File>, keep: Keep) -> io::Result<Option<PathBuf>> {
        let errno = |code| Err(io::Error::from_raw_os_error(code));
        let (record, writers, lost) = {
            let live = file.live.lock();
            (live.record.clone(), live.writers, matches!(live.body, Body::Lost))
        };
        let Some(record) = record.filter(|record| record.state != State::Clean) else { return errno(libc::ENOENT) };
        if keep == Keep::BurstBuffer {
            if lost {
                return errno(libc::ENOENT);
            }
            let Some(anchor) = self.anchor_of(file, true)? else { return errno(libc::ENOENT) };
            let base = anchor.attributes()?.fingerprint;
            let reason = String::new();
            let next = Record { state: State::Dirty, base, was_clean: false, orphaned: false, reason, ..record };
            self.put(file, next, Durability::Machine)?;
            let mut live = file.live.lock();
            live.left = None;
            live.medium.accept();
            live.succeed();
            drop(live);
            self.queue.push(file, std::time::Duration::ZERO);
            return Ok(None);
        }
        if writers > 0 {
            return errno(libc::EBUSY);
        }
        let saved = if keep == Keep::Both && !lost { Some(self.save(&record)?) } else { None };
        if self.store.is_shared()
            && let Ok(Some(anchor)) = self.anchor_of(file, false)
        {
            anchor.set_mark(None)?;
        }
        self.queue.remove(file);
        let in_use = file.live.lock().handles > 0;
        if in_use {
            // Open files keep the version that they have.
            self.replicas.unbrand(record.version);
            self.commit(vec![catalogue::Change::Remove(file.identity.clone())], Durability::Machine)?;
            Counters::add(&self.counters.settled, 1);
            file.live.lock().record = None;
            self.retire(file);
        } else {
            self.drop_replica(file)?;
            file.live.lock().anchor = None;
        }
        Ok(saved)
    }

    /// A second name for the replica's file, among the saved ones.
    fn save(&self, record: &Record) -> io::Result<PathBuf> {
        let name = record.hint.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        let name = &name[..name.floor_char_boundary(SAVED_NAME_BYTES)];
        let path = self.replicas.saved().join(format!("{name}.{}", record.version));
        match std::fs::hard_link(self.replicas.path(record.version), &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }
}
