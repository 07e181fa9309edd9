//! The work that a background thread repeats: expiry, room, and the tries of whatever failed before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catalogue::Durability;

use crate::cache::Inner;
use crate::errors::errno;
use crate::limits::{BACKOFF_MAX, REPLAY_BYTES_IDLE, REPLAY_BYTES_MAX, ROUND, ROUND_SHORT};

impl Inner {
    /// Returns the pause before the next round. Writes of the kernel without the agent find only room made before.
    pub(crate) fn round(&self) -> Duration {
        let reserve = self.spaces.reserve(&self.settings.policy);
        let pressed = self.counters.kernel_writers.load(Ordering::Relaxed) > 0 && self.spaces.now().free / 2 < reserve;
        if pressed { ROUND_SHORT } else { ROUND }
    }

    /// Runs one round of housekeeping: drops expired replicas, makes room, and restores the ballast.
    pub(crate) fn housekeep(self: &Arc<Inner>) {
        if self.look_after_refusal() {
            // Dropping replicas would free nothing.
            return;
        }
        if self.look_after_catalogue() {
            self.settle_doubts();
            self.drop_removed();
            if self.removals.is_due(self.now(), || self.spaces.now().free) {
                self.hurry_removals();
            }
            self.drop_expired();
        }
        self.retry_identity_attributes();
        self.look_after_growing();
        self.condense_catalogue();
        let excess = self.spaces.excess();
        if excess > 0 {
            self.hurry_removals_of(excess);
            let waits = self.ask_neighbours(excess) && self.spaces.admit(0, &self.settings.policy);
            if !waits {
                self.evict_bytes(excess);
            }
            // The last room that can be had for writers that cannot wait for the agent.
            if self.counters.kernel_writers.load(Ordering::Relaxed) > 0
                && self.spaces.now().free < self.spaces.ballast_bytes
            {
                self.give_up_removals();
                return;
            }
        }
        self.superblock.keep_room(self.spaces.now().free);
        let _tops_up = self.catalogue.has_room();
        if let Err(error) = self.spaces.make_ballast() {
            tracing::debug!(%error, "could not make the ballast again: it is tried again");
        }
    }

    /// Drops the replicas whose time is up. An error that does not come from the file itself would hit all: the others
    /// wait for the next round.
    fn drop_expired(&self) {
        let mut fails = false;
        while !fails && let Some(identity) = self.expiry.pop(self.now()) {
            let expired = self.gated(&identity, false, |file, _| {
                if let Err(error) = self.evict_gated(file) {
                    fails = !matches!(errno(&error), libc::EBUSY | libc::EINVAL | libc::EPERM);
                    self.evict_later(file, &error, BACKOFF_MAX);
                }
            });
            if let Err(error) = expired {
                fails = true;
                tracing::warn!(%error, %identity, "could not look up a file whose replica has expired: it is tried again");
                self.expiry.set(&identity, self.now().saturating_add(BACKOFF_MAX));
            }
        }
    }

    /// Tests a catalogue that takes no changes, which says so again and again. It is tested even if nobody asks for
    /// changes. Returns whether it takes changes.
    fn look_after_catalogue(&self) -> bool {
        let Some(reason) = self.catalogue.trouble() else { return true };
        // The tables of the catalogue find no room. They get the ballast, unless programs would take that first.
        if !self.catalogue.has_room() && self.counters.kernel_writers.load(Ordering::Relaxed) == 0 {
            self.spaces.drop_ballast();
        }
        let tried = self.commit(Vec::new(), Durability::Process);
        match &tried {
            Ok(()) => tracing::warn!(reason, "the catalogue takes changes again"),
            Err(error) if self.refuses(error) => {}
            Err(_) => tracing::error!(reason, "the catalogue takes no changes: files cannot be opened for writing"),
        }
        tried.is_ok()
    }

    /// Bounds the log that the next start would have to read after a kill: when nobody changes anything, or when the
    /// log has become long.
    fn condense_catalogue(&self) {
        let commits = self.commits.done.load(Ordering::Acquire);
        let idle = self.commits.seen.swap(commits, Ordering::AcqRel) == commits;
        let most = if idle { REPLAY_BYTES_IDLE } else { REPLAY_BYTES_MAX };
        if self.catalogue.replay_bytes() > most
            && let Err(error) = self.catalogue.condense()
        {
            tracing::warn!(%error, "could not condense the log of the catalogue: the next start may take longer");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use models::global::MemoryStore;
    use models::{DataStoreExt, OpenDataExt};

    use super::*;
    use crate::{FileCache, Settings, Space};
    use data_store::OpenHow;

    #[test] // S31
    fn housekeeping_hurries_while_the_kernel_writes_into_the_last_of_the_room() {
        let dir = tempfile::tempdir().unwrap();
        let (store, free) = (MemoryStore::new(), Arc::new(AtomicU64::new(1 << 30)));
        let mut settings = Settings::new(dir.path(), Arc::new(store.clone()), "facts");
        let left = Arc::clone(&free);
        settings.space = Some(Arc::new(move || Ok(Space { total: 1 << 30, free: left.load(Ordering::Relaxed) })));
        settings.background = false;
        settings.ballast_bytes = 0;
        let cache = FileCache::open(settings).unwrap();
        store.create("f");
        let policy = Arc::new(config::Policy::default());
        let how = OpenHow { read: true, write: true, created: true, policy, ..OpenHow::default() };
        let handle = cache.open_file(store.anchor("f").unwrap(), how).unwrap();
        let with_free = |bytes: u64| {
            free.store(bytes, Ordering::Relaxed);
            cache.inner.spaces.forget();
            cache.inner.round()
        };
        let little = (1 << 30) / 10 - (1 << 20);
        assert_eq!(with_free(little), ROUND, "nobody writes past us");
        assert!(handle.begin_passthrough());
        assert_eq!((with_free(little), with_free(1 << 29)), (ROUND_SHORT, ROUND));
        drop(handle);
        assert_eq!(with_free(little), ROUND);
    }
}
