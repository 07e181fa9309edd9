//! Slot for one guarded mapping. A signal handler searches the slots while other threads take and free theirs.

use crate::sync::AtomicUsize;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

#[cfg(all(loom, test))]
mod interleavings;

/// Place of a free slot, and of one being prepared: no address has these values.
const FREE: usize = 0;
const PREPARING: usize = 1;

/// Granularity of starts and lengths, bytes; lengths are rounded up.
const PAGE: usize = 4096;
/// Bits of a place that count pages: 64 GiB at most. The other bits are the first page, as far as addresses go.
const COUNT_BITS: u32 = 24;

/// Slot for one mapping.
pub(crate) struct Region {
    /// Start and length in one word, so that a length is never combined with another start.
    place: AtomicUsize,
    broken: AtomicUsize,
}

impl Region {
    /// Makes a free slot.
    #[cfg(not(loom))]
    pub const fn new() -> Region {
        Region { place: AtomicUsize::new(FREE), broken: AtomicUsize::new(0) }
    }

    /// Makes a free slot.
    #[cfg(loom)]
    pub fn new() -> Region {
        Region { place: AtomicUsize::new(FREE), broken: AtomicUsize::new(0) }
    }

    /// Takes the slot for `len` mapped bytes at `start`, in whole pages. Returns false if the slot is not free or the
    /// mapping is too large.
    pub fn take(&self, start: usize, len: usize) -> bool {
        let (first, pages) = (start / PAGE, len.div_ceil(PAGE));
        let fits = pages < 1 << COUNT_BITS && first < 1 << (usize::BITS - COUNT_BITS);
        if !fits || self.place.compare_exchange(FREE, PREPARING, AcqRel, Relaxed).is_err() {
            return false;
        }
        self.broken.store(0, Relaxed);
        self.place.store(first << COUNT_BITS | pages, Release);
        true
    }

    /// Frees the slot; to be called before the mapping is unmapped.
    pub fn free(&self) {
        self.place.store(FREE, Release);
    }

    /// Returns start and length if `address` is in the mapping. The caller is just accessing that address, so its own
    /// mapping stays; other slots may change meanwhile.
    pub fn around(&self, address: usize) -> Option<(usize, usize)> {
        let place = self.place.load(Acquire);
        let (start, len) = ((place >> COUNT_BITS) * PAGE, (place & ((1 << COUNT_BITS) - 1)) * PAGE);
        (start > 0 && (start..start + len).contains(&address)).then_some((start, len))
    }

    /// Notes that the file was found shorter than the mapping.
    pub fn note_broken(&self) {
        self.broken.store(1, Release);
    }

    /// Returns whether the file was found shorter.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Acquire) != 0
    }
}
