//! One mapping that a handler of signals looks for while others guard theirs and let go of them.

use crate::sync::AtomicUsize;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

#[cfg(all(loom, test))]
mod interleavings;

/// No mapping, and one that is not there yet.
const FREE: usize = 0;
const PREPARING: usize = 1;

/// The place for one.
pub(crate) struct Region {
    start: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicUsize,
}

impl Region {
    /// Free.
    #[cfg(not(loom))]
    pub const fn new() -> Region {
        Region { start: AtomicUsize::new(FREE), len: AtomicUsize::new(0), broken: AtomicUsize::new(0) }
    }

    /// The same.
    #[cfg(loom)]
    pub fn new() -> Region {
        Region { start: AtomicUsize::new(FREE), len: AtomicUsize::new(0), broken: AtomicUsize::new(0) }
    }

    /// Takes `len` bytes at `start`, which are mapped; false if it is not free.
    pub fn take(&self, start: usize, len: usize) -> bool {
        if self.start.compare_exchange(FREE, PREPARING, AcqRel, Relaxed).is_err() {
            return false;
        }
        self.broken.store(0, Relaxed);
        self.len.store(len, Release);
        self.start.store(start, Release);
        true
    }

    /// Lets go of them, before they are unmapped.
    pub fn free(&self) {
        self.len.store(0, Release);
        self.start.store(FREE, Release);
    }

    /// Start and length if `address` is among them. The caller is just accessing it, so its own mapping stays; all others may come and go.
    pub fn around(&self, address: usize) -> Option<(usize, usize)> {
        let (start, len) = (self.start.load(Acquire), self.len.load(Acquire));
        // Else the length may be that of the next one.
        let is_of_one = start > PREPARING && self.start.load(Relaxed) == start;
        (is_of_one && (start..start + len).contains(&address)).then_some((start, len))
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
