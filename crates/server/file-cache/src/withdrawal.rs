//! Taking back the intent of an open that failed.

use catalogue::{Change, Durability};
use global_store::Anchor;
use parking_lot::Mutex;
use types::{Identity, Version};

use crate::cache::Inner;
use crate::file::File;
use crate::limits::DOUBTS;

/// Fresh replicas whose intent failed and could not be taken back: the record may be there, also if its commit was answered
/// with an error.
#[derive(Default)]
pub(crate) struct Doubts(Mutex<Vec<(Identity, Version)>>);

impl Inner {
    /// The open of a fresh replica failed. Gate held.
    pub(crate) fn withdraw(&self, file: &File, anchor: &dyn Anchor, version: Version) {
        {
            let mut live = file.live.lock();
            (live.record, live.version) = (None, None);
        }
        if self.store.is_shared() {
            // Nobody would ever take it away.
            let _ = anchor.set_mark(None);
        }
        if !self.take_back(&file.identity, version) {
            // A record without its replica would tell of lost data. What is too much is left to the next start.
            let mut doubts = self.doubts.0.lock();
            if doubts.len() < DOUBTS {
                doubts.push((file.identity.clone(), version));
            }
        }
    }

    /// Tries again what `withdraw` could not do.
    pub(crate) fn settle_doubts(&self) {
        let doubts = std::mem::take(&mut *self.doubts.0.lock());
        for (identity, version) in doubts {
            let settled = self.gated(&identity, false, |file, _| {
                // It was read from the catalogue since: then it is the file.
                file.live.lock().version == Some(version) || self.take_back(&identity, version)
            });
            if !settled.unwrap_or(false) {
                self.doubts.0.lock().push((identity, version));
            }
        }
    }

    /// Removes a replica that nobody was told of and the record of it, if that is the one that is there. Gate held.
    fn take_back(&self, identity: &Identity, version: Version) -> bool {
        let gone = match self.catalogue.get(identity) {
            Ok(Some(record)) if record.version != version => Ok(()),
            // Also where none is found: a later start may find what a commit that failed has written.
            Ok(_) => self.commit(vec![Change::Remove(identity.clone())], Durability::Process),
            Err(error) => Err(crate::cache::broken(error)),
        };
        if let Err(error) = &gone {
            tracing::warn!(%error, %identity, "the intent of an open that failed could not be taken back yet");
            return false;
        }
        // It is garbage now; a failure leaves it to the next start's sweep.
        let _ = self.replicas.remove(version);
        true
    }
}
