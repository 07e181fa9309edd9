//! Whole files, staged in by commands and by the background fetchers.

use std::io;
use std::sync::Arc;

use config::{Cache, Policy};
use data_store::OpenHow;
use global_store::Anchor;

use super::BlockClaim;
use crate::cache::Inner;
use crate::errors::os;
use crate::limits::FETCH_TRIES;
use crate::residency::File;

impl Inner {
    /// Stages in a whole file and waits. Errors: `EBUSY` if the file changed during each try, or is open for writing
    /// in the global store; `ENOSPC` if the burst buffer has no room for it; `EIO` if the catalogue takes no changes.
    pub(crate) fn stage_in(self: &Arc<Inner>, anchor: &Arc<dyn Anchor>, policy: &Arc<Policy>) -> io::Result<()> {
        let policy = Arc::new(Policy { cache: Cache::Both, ..Policy::clone(policy) });
        for _ in 0..FETCH_TRIES {
            let how = OpenHow { read: true, policy: Arc::clone(&policy), ..OpenHow::default() };
            let handle = self.open_file(anchor, how, &|| false)?;
            let file = &handle.file;
            let through = file.peek(|live| {
                live.fetch_mut().into_iter().for_each(|fetch| fetch.commanded = true);
                live.is_through()
            });
            if through && !self.spaces.admit(anchor.attributes()?.fingerprint.size, &policy) {
                return os(libc::ENOSPC);
            }
            if through && self.catalogue.trouble().is_some() {
                return os(libc::EIO);
            }
            self.fetch_rest(file, &|| self.is_dead())?;
            if file.live.lock().is_whole() {
                return Ok(());
            }
        }
        os(libc::EBUSY)
    }

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
