//! Times set by programs (`utimens`): a dirty file has its time in the replica, and the record follows the global copy.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use catalogue::{Durability, State};
use global_store::Anchor;
use types::{Moved, Version};

use crate::burst_buffer::replica::{self, How};
use crate::cache::Inner;
use crate::residency::File;
use data_store::NewTime;
use global_store::now_of_files;

impl Inner {
    /// Sets times (`utimens`): runs `apply`, which changes the global copy's times, in such a way that a running
    /// stage-out does not take the change for an outsider's. A dirty replica then gets the same mtime if `sets` says
    /// so. For a file without a replica this only runs `apply`.
    pub(crate) fn set_times(
        &self,
        anchor: &Arc<dyn Anchor>,
        sets: Option<NewTime>,
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        self.gated(anchor.identity(), false, |file, _| {
            // An earlier read must not be noted after the times that are set now.
            self.settle_reads(file);
            let mut applied = false;
            let mut noted = || apply().inspect(|()| applied = true);
            let done = self.set_times_gated(file, anchor, sets, &mut noted);
            let done = done.or_else(|error| if applied { self.times_refused(file, error) } else { Err(error) });
            self.watch_reads_again(file);
            done
        })?
    }

    fn set_times_gated(
        &self,
        file: &File,
        anchor: &Arc<dyn Anchor>,
        sets: Option<NewTime>,
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let (record, version, unlinked, whole) = file.peek(|live| {
            live.changes += 1;
            if let Some(NewTime::At(time)) = sets {
                live.below.given_time = Some(time);
            }
            (live.record().cloned(), live.version(), live.is_unlinked(), live.is_whole())
        });
        if sets.is_none() || (record.is_none() && !unlinked) {
            let began = now_of_files();
            let done = apply();
            self.note_own(file, began);
            return done;
        }
        // A copy cannot begin while the gate is held, but a running one continues to write.
        let copying = file.drain.try_lock().is_none();
        let before = anchor.attributes()?.fingerprint;
        let after = apply().and_then(|()| anchor.attributes());
        let after = after.inspect_err(|_| file.live.lock().note_try(&before, sets))?.fingerprint;
        // The next write of the copy moves the global copy's time at once. Its end sets that to the replica's time.
        let mtime = match sets {
            Some(NewTime::At(time)) if copying => time,
            // The time as the store keeps it.
            _ => after.mtime,
        };
        let Some(version) = version else { return Ok(()) };
        // The known state of the global copy. An outsider's change is not followed, and stays visible.
        let known =
            record.as_ref().is_some_and(|record| file.live.lock().moved(&record.base, &before) != Moved::Content);
        let clean = record.as_ref().is_some_and(|record| record.state == State::Clean);
        let was_empty = record.as_ref().is_some_and(|record| record.base.size == 0);
        // Whatever happens to the rest: the global copy has this time now, which is no outsider's change.
        {
            let mut live = file.live.lock();
            live.follow(&before, after);
            live.change_attributes(after.ctime, Some(after.ctime));
        }
        if clean && !known {
            return Ok(());
        }
        let record = file.live.lock().record().cloned().filter(|_| known);
        // A spill would take our descriptor for a program's if it may write: then one for reading is used.
        let no_spill = file.io.try_read();
        let replica = if whole { Some(self.replica_of(file, version, no_spill.is_some())?) } else { None };
        if let Some(replica) = &replica {
            file.dated(|| replica::set_mtime(replica.as_fd(), mtime))?;
        }
        // Of an unlinked file only the replica is left.
        if let Some(record) = record {
            if record.state == State::Dirty && was_empty && after.size == 0 {
                // A crash brings the former time back, but an empty file holds nobody's bytes, whatever its time
                // (`content.rs`). The next commit of the record includes the time. Copying a tree sets many.
                return Ok(());
            }
            self.put(file, record.clone(), Durability::Process)?;
            match &replica {
                _ if clean => {}
                Some(replica) => self.identity_attribute(file, replica.as_fd(), &record),
                None => self.update_identity_attribute(file, &record),
            }
        }
        Ok(())
    }

    /// Handles times that were set on the global copy while replica or record could not follow: a clean file counts as
    /// another version then.
    fn times_refused(&self, file: &Arc<File>, error: io::Error) -> io::Result<()> {
        if !self.refuses(&error) {
            return Err(error);
        }
        let (clean, in_use) = file.peek(|live| (!live.is_unclean() && !live.is_unlinked(), live.is_open()));
        if clean { self.outdated(file, in_use) } else { Err(self.refused(file, error)) }
    }

    /// Returns the descriptor of the replica that its writers share, if there is one and it `may_write`, or another.
    fn replica_of(&self, file: &File, version: Version, may_write: bool) -> io::Result<Arc<OwnedFd>> {
        let held = file.peek(|live| live.fds.write.clone().filter(|_| may_write && live.version() == Some(version)));
        held.map_or_else(|| Ok(Arc::new(self.replicas.open_as(version, How::Read)?)), Ok)
    }
}
