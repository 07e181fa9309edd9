//! Room in the burst buffer, which trees share with replicas, and in the global store, which has to take what waits.

use concurrency::Instant;
use delegation::DataPlace;
use rustix::fs::statvfs;

use crate::limits;
use crate::registry::Trees;

/// Whether less than the margin of `all` is free once `waiting` has come.
fn is_scarce(free: u64, waiting: u64, all: u64) -> bool {
    free.saturating_sub(waiting) < all / limits::STORE_MARGIN_PART
}

impl Trees {
    /// Whether the burst buffer has less than the policy's reserve left, times `times`.
    fn lacks_room(&self, times: u64) -> bool {
        let Some(burst_buffer) = self.settings.directory.parent() else { return false };
        let Ok(found) = statvfs(burst_buffer) else { return false };
        let reserve = u64::from((self.settings.policy)("".as_ref()).reserve_thousandths);
        found.f_bavail.saturating_mul(1000) < found.f_blocks.saturating_mul(reserve * times)
    }

    /// Whether there is room for another tree.
    pub(crate) fn has_room(&self) -> bool {
        !self.lacks_room(limits::BEGIN_RESERVES)
    }

    /// Whether the global store has little room for more than what waits for it: names that are acknowledged now might not find any.
    /// A store that does not say has enough.
    /// Asked anew after [`limits::SPACE_KNOWN`].
    pub(crate) fn store_lacks_room(&self) -> bool {
        let known = *self.store_room.lock();
        if let Some((lacks, asked)) = known
            && asked.elapsed() < limits::SPACE_KNOWN
        {
            return lacks;
        }
        let lacks = self.looks_scarce_below();
        *self.store_room.lock() = Some((lacks, Instant::now()));
        lacks
    }

    fn looks_scarce_below(&self) -> bool {
        let Ok(space) = self.settings.namespace.space() else { return false };
        let trees = self.all();
        let names: u64 = trees.iter().map(|tree| tree.tree.pending_len() as u64).sum();
        // Some file systems do not count inodes.
        if space.files > 0 && is_scarce(space.ffree, names, space.files) {
            return true;
        }
        let free = space.bavail.saturating_mul(space.frsize);
        let all = space.blocks.saturating_mul(space.frsize);
        // What waits is in the burst buffer. Its sum is asked for only if that may matter.
        if all == 0 || !is_scarce(free, self.burst_buffer_used(), all) {
            return false;
        }
        is_scarce(free, trees.iter().map(|tree| tree.files.waiting_bytes()).sum(), all)
    }

    fn burst_buffer_used(&self) -> u64 {
        let found = self.settings.directory.parent().map(statvfs);
        let used = |found: rustix::fs::StatVfs| (found.f_blocks - found.f_bfree).saturating_mul(found.f_frsize);
        found.and_then(Result::ok).map_or(u64::MAX, used)
    }

    /// Drops local data that the global store has, while room is scarce: what was written longest ago goes first.
    pub(crate) fn make_room(&self) {
        if self.is_empty() || !self.lacks_room(limits::EVICT_RESERVES) {
            return;
        }
        for tree in self.all() {
            let is_clean = |state: &delegation::NodeState| {
                state.stamp == 0
                    && !state.names.is_empty()
                    && matches!(state.data, DataPlace::Replica(_) | DataPlace::Packed(_))
            };
            let mut clean: Vec<_> =
                tree.tree.states().into_iter().filter(is_clean).map(|state| (state.mtime, state.number)).collect();
            clean.sort_unstable();
            for some in clean.chunks(limits::EVICTED_AT_ONCE) {
                for (_, node) in some {
                    if let Err(error) = tree.files.evict(*node) {
                        tracing::warn!(%error, node = node.0, "local data could not be dropped");
                        return;
                    }
                }
                if !self.lacks_room(limits::EVICT_RESERVES) {
                    return;
                }
            }
        }
    }
}
