//! Counts of who holds each node, beside the tree: holding and letting go need no lock of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use concurrency::Mutex;

/// Bit of a count: the node is to be freed by the last who lets go.
const FORGOTTEN: u32 = 1 << 31;
const FIRST_CHUNK: usize = 1024;
/// Chunks of doubling size; together they have more slots than a tree.
const CHUNKS: usize = 23;

/// Counts by slot.
pub(crate) struct Holders {
    chunks: [OnceLock<Box<[AtomicU32]>>; CHUNKS],
    /// Slots of forgotten nodes that nobody holds any more.
    released: Mutex<Vec<u32>>,
}

impl Holders {
    pub fn new() -> Holders {
        Holders { chunks: [const { OnceLock::new() }; CHUNKS], released: Mutex::new(Vec::new()) }
    }

    fn count(&self, slot: u32) -> &AtomicU32 {
        let at = slot as usize + FIRST_CHUNK;
        let chunk = (at / FIRST_CHUNK).ilog2() as usize;
        let length = FIRST_CHUNK << chunk;
        let counts = self.chunks[chunk].get_or_init(|| (0..length).map(|_| AtomicU32::new(0)).collect());
        &counts[at - length]
    }

    /// Adds a holder. The caller has the tree locked, or holds the node already.
    pub fn hold(&self, slot: u32) {
        self.count(slot).fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a holder.
    pub fn release(&self, slot: u32) {
        if self.count(slot).fetch_sub(1, Ordering::AcqRel) == FORGOTTEN | 1 {
            self.released.lock().push(slot);
        }
    }

    /// Notes that a node is to be freed when nobody holds it. Returns whether that is so now. The caller has the tree locked for
    /// a change.
    pub fn forget(&self, slot: u32) -> bool {
        self.count(slot).fetch_or(FORGOTTEN, Ordering::AcqRel) & !FORGOTTEN == 0 && self.take(slot)
    }

    /// Whether any node is held.
    pub fn has_any(&self) -> bool {
        let mut counts = self.chunks.iter().filter_map(OnceLock::get).flatten();
        counts.any(|count| count.load(Ordering::Acquire) & !FORGOTTEN != 0)
    }

    fn take(&self, slot: u32) -> bool {
        self.count(slot).compare_exchange(FORGOTTEN, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes a slot that was forgotten and is held by nobody now, if there is one. Its node may have got a name meanwhile: a file can
    /// be made without one. The caller has the tree locked for a change.
    pub fn take_released(&self) -> Option<u32> {
        loop {
            let slot = self.released.lock().pop()?;
            if self.take(slot) {
                return Some(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_node_is_freed_once_by_whoever_lets_go_last() {
        let holders = Holders::new();
        for slot in [0, 1023, 1024, 3071, 3072, 1 << 20, (1 << 28) - 1] {
            assert!(holders.forget(slot), "nobody holds it");
            holders.hold(slot);
            holders.hold(slot);
            assert!(!holders.forget(slot));
            holders.release(slot);
            assert_eq!(holders.take_released(), None);
            holders.release(slot);
            assert_eq!((holders.take_released(), holders.take_released()), (Some(slot), None));
        }
    }
}
