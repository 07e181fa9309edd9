//! Notes about files whose names or attributes the agent changes in the global store.

use std::sync::atomic::Ordering;

use catalogue::{Durability, State};
use data_store::FileChange;
use global_store::Anchor;
use types::Identity;

use crate::cache::Inner;
use crate::clock::wall;

impl Inner {
    pub(crate) fn note(&self, identity: &Identity, change: FileChange<'_>) {
        match change {
            FileChange::Seen(found) => self.known(identity).iter().for_each(|file| self.saw(file, found)),
            FileChange::Attributes(began) => self.known(identity).iter().for_each(|file| self.note_own(file, began)),
            FileChange::Names(anchor) => self.note_names(anchor),
            FileChange::Removing => self.note_removing(identity),
            FileChange::Unlinked => {
                let done = self.gated(identity, false, |file, _| self.unlinked(file));
                if let Err(error) | Ok(Err(error)) = done {
                    tracing::error!(%error, %identity, "could not remove the replica of an unlinked file: the next start removes it");
                }
            }
            FileChange::Elsewhere => {}
        }
    }

    /// Notes our own rename, link or unlink: the hint of a dirty file follows. Without a notice of the time of that
    /// change, the file's ctime counts as meaningless where the bytes decide nothing.
    fn note_names(&self, anchor: &dyn Anchor) {
        let Some(file) = self.known(anchor.identity()) else { return };
        let _gate = file.gate();
        let record = file.peek(|live| {
            let told = live.below.own.is_some() || live.below.doubted;
            let record = live.record_mut().filter(|record| record.state != State::Clean);
            let record = record.map(|record| {
                record.base.attributes = if told { record.base.attributes } else { 0 };
                record.clone()
            });
            if !told {
                live.change_attributes(wall(), None);
            }
            record
        });
        let Some(mut record) = record else { return };
        let hint = anchor.path_hint();
        let named = record.removing && anchor.attributes().is_ok_and(|found| found.links > 0);
        if hint != record.hint || named {
            record.hint = hint;
            record.removing &= !named;
            // The path is a hint: the durable handle finds the file nevertheless.
            if self.put(&file, record.clone(), Durability::Process).is_ok() {
                self.update_identity_attribute(&file, &record);
            }
        }
    }

    /// Prepares the removal of a last name, or of a file that never had one. If the agent dies before it tells that
    /// the name is gone, recovery checks that, and keeps the dirty data only if the name is there. A note of names, of
    /// a file that has one, ends this. If the intent cannot be recorded, the file becomes an orphan in that case.
    fn note_removing(&self, identity: &Identity) {
        let tried = match self.known(identity) {
            Some(file) => self.removing(&file),
            // The file's record was forgotten, and it was clean.
            None => self.sync_commits(self.commits.forgotten.load(Ordering::Acquire)),
        };
        if let Err(error) = tried {
            tracing::warn!(%error, %identity, "could not record that a file is being removed: if the agent dies now, the file becomes an orphan");
        }
    }
}
