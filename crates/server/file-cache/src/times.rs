//! Times set by programs (`utimens`): a dirty file has its time in the replica, and the record follows the change of
//! the global copy.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use catalogue::{Durability, State};
use global_store::Anchor;
use types::{Fingerprint, Moved, Version};

use crate::api::SetMtime;
use crate::cache::Inner;
use crate::clock::tick;
use crate::replica::{self, How};
use crate::residency::{File, Live};

/// Notes a time whose setting the store did not confirm. It may be set already, or later, and must not pass for an
/// outsider's change.
fn note_try(live: &mut Live, before: &Fingerprint, sets: SetMtime) {
    let SetMtime::To(time) = sets else { return };
    let base = live.record().map(|record| record.base);
    let known = |was: &Option<Fingerprint>| was.filter(|was| live.moved(was, before) != Moved::Content);
    let (left, base) = (known(&live.left), known(&base));
    let Some(was) = left.or(base) else { return };
    // An earlier tried time arrived, and this one is tried over it. The replica of a clean file does not follow.
    let over = Fingerprint { attributes: 0, ..if live.is_unclean() { *before } else { was } };
    if live.is_unclean() {
        live.left = left.map(|_| over).or(live.left);
        if let Some(record) = live.record_mut().filter(|_| base.is_some()) {
            record.base = over;
        }
    }
    live.tried_time = Some((over, time));
}

impl Live {
    /// Returns whether a global copy that we left as `left` and that is `found` has a time that we tried to set.
    pub(crate) fn has_tried(&self, left: &Fingerprint, found: &Fingerprint) -> bool {
        self.tried_time
            .is_some_and(|(was, mtime)| was.same_content(left) && Fingerprint { mtime, ..was }.same_content(found))
    }
}

impl Inner {
    /// Sets the times of a file, through `apply` and in the replica. Gate held.
    pub(crate) fn set_times(
        &self,
        file: &File,
        anchor: &Arc<dyn Anchor>,
        sets: SetMtime,
        apply: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let (record, version, unlinked, whole) = {
            let mut live = file.live.lock();
            live.changes += 1;
            if let SetMtime::To(time) = sets {
                live.given_time = Some(time);
            }
            (live.record().cloned(), live.version(), live.is_unlinked(), live.is_whole())
        };
        if sets == SetMtime::Keep || (record.is_none() && !unlinked) {
            let began = tick();
            let done = apply();
            self.note_own(file, began);
            return done;
        }
        // A copy cannot begin while the gate is held, but a running one continues to write.
        let copying = file.drain.try_lock().is_none();
        let before = anchor.attributes()?.fingerprint;
        let after = apply().and_then(|()| anchor.attributes());
        let after = after.inspect_err(|_| note_try(&mut file.live.lock(), &before, sets))?.fingerprint;
        // The next write of the copy moves the global copy's time at once. Its end sets that to the replica's time.
        let mtime = match sets {
            SetMtime::To(time) if copying => time,
            // The time as the store keeps it.
            _ => after.mtime,
        };
        let Some(version) = version else { return Ok(()) };
        // The known state of the global copy. An outsider's change is not followed, and stays visible.
        let known =
            record.as_ref().is_some_and(|record| file.live.lock().moved(&record.base, &before) != Moved::Content);
        let clean = record.as_ref().is_some_and(|record| record.state == State::Clean);
        let was_empty = record.as_ref().is_some_and(|record| record.base.size == 0);
        // Whatever happens to the rest: the global copy has this time now, which must not pass for an outsider's
        // change.
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
                // (`content.rs`). The next commit of the record includes the time. Copying a tree sets one time per
                // file.
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

    /// Returns the descriptor of the replica that its writers share, if there is one and it `may_write`; otherwise
    /// another.
    fn replica_of(&self, file: &File, version: Version, may_write: bool) -> io::Result<Arc<OwnedFd>> {
        let held = {
            let live = file.live.lock();
            live.fds.write.clone().filter(|_| may_write && live.version() == Some(version))
        };
        held.map_or_else(|| Ok(Arc::new(self.replicas.open_as(version, How::Read)?)), Ok)
    }
}
