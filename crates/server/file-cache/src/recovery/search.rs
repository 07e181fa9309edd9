//! Search of a burst buffer after the machine crashed or its catalogue was lost. Finds replicas whose identity
//! attributes tell of unsaved data that has no record, and records whose data was lost with the machine.

use std::io;
use std::path::Path;

use catalogue::{Change, Durability, Record, State};
use types::{Fingerprint, Identity, Shown, Version};

use crate::burst_buffer::identity_attribute::IdentityAttribute;
use crate::burst_buffer::replica::mtime_of;
use crate::cache::{Inner, broken, is_void};
use crate::clock;
use crate::errors::is_full;

/// Returns whether a crash of the machine may lose the data of a record, because nobody had asked to keep it. If its
/// replica is missing after a crash, that is no loss.
pub fn may_go_with_crash(record: &Record) -> bool {
    !record.synced && record.state != State::Draining
}

impl Inner {
    /// Takes replicas with an identity attribute into the catalogue if it does not call them dirty. Reads every
    /// replica's attributes: for use after a crash of the machine, or if records may be lost. Nothing else runs yet.
    /// `crashed`: the machine crashed and nobody has searched since.
    pub(crate) fn search(&self, lost: bool, crashed: bool) -> io::Result<()> {
        // The first record makes a lost catalogue look complete: a death in the middle must not hide the rest.
        match self.superblock.set_unsearched(true) {
            // A catalogue that has its records is complete without this note, which a full burst buffer cannot take.
            Err(error) if is_full(&error) && !lost => return self.adopt_with_identity_attribute(),
            noted => noted?,
        }
        self.adopt_with_identity_attribute()?;
        if crashed {
            self.forget_unsynced()?;
        }
        match self.superblock.set_unsearched(false) {
            // The next start searches once more.
            Err(error) if is_full(&error) => {
                tracing::warn!(%error, "could not record the end of recovery in the superblock: the next start will search again")
            }
            noted => noted?,
        }
        Ok(())
    }

    /// Forgets records of replicas that nobody had asked to keep and that the crash has lost. A record is written to
    /// the medium with any later one. If the burst buffer's file system (btrfs, for example) does not make a new file
    /// durable with another's sync, a record can come back without its replica. The global copy is intact, for no
    /// stage-out had begun. Or the store forgot a new file of which the burst buffer has no byte.
    fn forget_unsynced(&self) -> io::Result<()> {
        let mut gone = Vec::new();
        let listed = self.catalogue.unclean(&mut |identity, record| {
            let kept = !may_go_with_crash(&record) || !self.superblock.is_suspect(record.version);
            let missing =
                || self.replicas.stat(record.version).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if !kept && (missing() || self.holds_nothing(&identity, &record.hint, record.version)) {
                gone.push((identity, record.hint, record.version));
            }
        });
        if let Err(error) = listed
            && !matches!(error, catalogue::Error::Damaged { .. })
        {
            return Err(broken(error));
        }
        for (identity, hint, version) in &gone {
            tracing::warn!(file = %hint.shown(), "the crash of the machine lost data of this file that was never synced");
            if self.store.is_shared()
                && let Ok(Some(anchor)) = self.store.locate(identity, hint, false)
            {
                // A mark that stays is removed when we open the file.
                let _ = anchor.set_mark(None);
            }
            // The rest of an empty replica is garbage.
            self.replicas.remove_identity_attribute_of(*version);
        }
        let changes = gone.into_iter().map(|(identity, ..)| Change::Remove(identity)).collect();
        self.catalogue.commit(changes, Durability::Machine).map_err(broken)
    }

    fn adopt_with_identity_attribute(&self) -> io::Result<()> {
        let mut versions = Vec::new();
        self.replicas.each(&mut |version| {
            versions.push(version);
            true
        })?;
        // Of two replicas of one file the newer one counts.
        versions.sort();
        for version in versions {
            if version >= self.superblock.first {
                continue;
            }
            // An agent that made a replica void may have died before the identity attribute was removed.
            let void = self.replicas.stat(version).is_ok_and(|stat| is_void(&stat));
            if !void && let Some(identity_attribute) = self.replicas.read_identity_attribute(version) {
                self.adopt_one(version, identity_attribute)?;
            }
        }
        Ok(())
    }

    fn adopt_one(&self, version: Version, identity_attribute: IdentityAttribute) -> io::Result<()> {
        let old = self.catalogue.get(&identity_attribute.identity).map_err(broken)?;
        let outdated = match &old {
            Some(record) if record.version == version && record.state != State::Clean => return Ok(()),
            // A clean replica loses its identity attribute after the record says so.
            Some(record) if record.version == version => identity_attribute.epoch <= record.epoch,
            Some(record) => record.version > version || self.is_staged_out(version, &identity_attribute),
            None => self.is_staged_out(version, &identity_attribute),
        };
        if outdated || self.holds_nothing(&identity_attribute.identity, &identity_attribute.hint, version) {
            self.replicas.remove_identity_attribute_of(version);
            return Ok(());
        }
        let mut hint = identity_attribute.hint.clone();
        if identity_attribute.is_cut()
            && let Ok(Some(anchor)) = self.store.locate(&identity_attribute.identity, &hint, false)
        {
            hint = Some(anchor.path_hint()).filter(|found| !found.as_os_str().is_empty()).unwrap_or(hint);
        }
        tracing::warn!(file = %hint.shown(), "found unsaved data without a record: the file is in the catalogue again, and will be staged out");
        let record = Record {
            state: State::Dirty,
            version,
            epoch: identity_attribute.epoch,
            base: identity_attribute.base,
            was_clean: false,
            racy: false,
            sum: None,
            shown: None,
            pinned: old.is_some_and(|record| record.pinned),
            orphaned: false,
            removing: false,
            // The identity attribute reached the medium.
            synced: true,
            synced_len: 0,
            damaged: false,
            hint,
            used_s: clock::wall_s(),
            reason: String::new(),
        };
        self.catalogue
            .commit(vec![Change::Put(identity_attribute.identity, record)], Durability::Machine)
            .map_err(broken)
    }

    /// Returns whether an empty replica belongs to a file that is gone for good, for example one just made whose name
    /// was lost in the crash.
    fn holds_nothing(&self, identity: &Identity, hint: &Path, version: Version) -> bool {
        self.store.finds_by_identity()
            && self.replicas.stat(version).is_ok_and(|stat| stat.st_size == 0)
            && matches!(self.store.locate(identity, hint, false), Ok(None))
    }

    /// Returns whether the global copy is what a stage-out of this replica leaves, and not what the identity attribute
    /// describes. The removal of the attribute then did not reach the medium. An undecided case counts as dirty.
    fn is_staged_out(&self, version: Version, identity_attribute: &IdentityAttribute) -> bool {
        let Ok(Some(anchor)) = self.store.locate(&identity_attribute.identity, &identity_attribute.hint, false) else {
            return false;
        };
        let (Ok(found), Ok(stat)) = (anchor.attributes(), self.replicas.stat(version)) else { return false };
        let ours = Fingerprint {
            size: stat.st_size as u64,
            mtime: mtime_of(&stat),
            ctime: identity_attribute.base.ctime,
            attributes: 0,
        };
        found.fingerprint.same_content(&ours) && !found.fingerprint.same_content(&identity_attribute.base)
    }
}
