//! One mapping that a handler of signals looks for while others guard theirs and let go of them.

use crate::sync::AtomicUsize;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

#[cfg(all(loom, test))]
mod interleavings;

/// No mapping, and one that is not there yet: of no address.
const FREE: usize = 0;
const PREPARING: usize = 1;

/// What starts and lengths are multiples of, or rounded up to.
const PAGE: usize = 4096;
/// Bits of a place that count pages: 64 GiB at most. The others say where the first is, as far as addresses go.
const COUNT_BITS: u32 = 24;

/// The place for one.
pub(crate) struct Region {
    /// Start and length in one word, for a length must not be taken for that of another start.
    place: AtomicUsize,
    broken: AtomicUsize,
}

impl Region {
    /// Free.
    #[cfg(not(loom))]
    pub const fn new() -> Region {
        Region { place: AtomicUsize::new(FREE), broken: AtomicUsize::new(0) }
    }

    /// The same.
    #[cfg(loom)]
    pub fn new() -> Region {
        Region { place: AtomicUsize::new(FREE), broken: AtomicUsize::new(0) }
    }

    /// Takes `len` bytes at `start`, whole pages that are mapped; false if it is not free, or they are too many.
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

    /// Lets go of them, before they are unmapped.
    pub fn free(&self) {
        self.place.store(FREE, Release);
    }

    /// Start and length if `address` is among them. The caller is just accessing it, so its own mapping stays; all others may come and go.
    pub fn around(&self, address: usize) -> Option<(usize, usize)> {
        let place = self.place.load(Acquire);
        let (start, len) = ((place >> COUNT_BITS) * PAGE, (place & ((1 << COUNT_BITS) - 1)) * PAGE);
        (start > 0 && (start..start + len).contains(&address)).then_some((start, len))
    }

    /// Its file was found shorter.
    pub fn note_broken(&self) {
        self.broken.store(1, Release);
    }

    /// Whether it was.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Acquire) != 0
    }
}
