//! Room in the burst buffer, which trees share with replicas.

use delegation::DataPlace;
use rustix::fs::statvfs;

use crate::limits;
use crate::registry::Trees;

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
