//! The background fetchers and the files that wait for them.

use std::sync::Arc;

use super::BlockClaim;
use crate::cache::Inner;
use crate::residency::File;

impl Inner {
    pub(crate) fn fetch_in_background(self: &Arc<Inner>) {
        while let Some(file) = self.fetches.pop() {
            while let Some(claim) = self.next_claim(&file) {
                if let Err(error) = self.fetch_claimed(&file, claim) {
                    tracing::warn!(%error, file = %file.identity, "a stage-in failed; readers will try again");
                    self.stop_fetch(&file);
                    break;
                }
                if self.fetches.is_waiting() {
                    self.fetches.push(&file); // its turn comes again
                    break;
                }
            }
        }
    }

    /// Returns the next block for this fetcher, or `None` if the file needs it no more.
    fn next_claim(&self, file: &Arc<File>) -> Option<BlockClaim> {
        let mut live = file.live.lock();
        let fetch = live.fetch_mut()?;
        let wanted = !self.is_dead() && fetch.fetchers <= fetch.fetchers_max;
        if wanted && let Some(block) = fetch.next_block() {
            return BlockClaim::of(fetch, block);
        }
        fetch.fetchers = fetch.fetchers.saturating_sub(1);
        None
    }

    fn stop_fetch(&self, file: &Arc<File>) {
        let _gate = file.gate();
        let mut live = file.live.lock();
        let unused = !live.is_open();
        if let Some(fetch) = live.fetch_mut() {
            fetch.started = false;
            fetch.fetchers = fetch.fetchers.saturating_sub(1);
        }
        drop(live);
        if unused {
            self.abandon_fetch(file);
        }
    }
}
