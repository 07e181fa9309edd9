//! How long an entry of a table is in use: by its descriptor, and by the calls that look at it.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// In use, by a descriptor or by a call that still runs.
const OCCUPIED: u32 = 1 << 31;
/// Its descriptor has let go of it.
const LEFT: u32 = 1 << 30;

/// [`OCCUPIED`], [`LEFT`], and the number of calls that look at it.
pub struct Life(AtomicU32);

impl Life {
    /// Of an entry that is free.
    pub const fn new() -> Life {
        Life(AtomicU32::new(0))
    }

    /// Takes a free entry; false if it is not free.
    pub fn occupy(&self) -> bool {
        self.0.compare_exchange(0, OCCUPIED, AcqRel, Relaxed).is_ok()
    }

    /// A call looks at it from now on. What led here must be looked at again afterwards.
    pub fn enter(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// The call is over. True: nobody uses it any more, and the caller empties it and says [`Life::end`].
    #[must_use]
    pub fn exit(&self) -> bool {
        self.0.fetch_sub(1, AcqRel) - 1 == OCCUPIED | LEFT && self.is_mine()
    }

    /// Its descriptor lets go of it. True as of [`Life::exit`].
    #[must_use]
    pub fn leave(&self) -> bool {
        self.0.fetch_or(LEFT, AcqRel) == OCCUPIED && self.is_mine()
    }

    /// Of several that see it abandoned, one.
    #[cold]
    fn is_mine(&self) -> bool {
        self.0.compare_exchange(OCCUPIED | LEFT, OCCUPIED, AcqRel, Relaxed).is_ok()
    }

    /// It is empty, and free.
    pub fn end(&self) {
        self.0.fetch_and(!OCCUPIED, Release);
    }

    /// Whether it is in use.
    pub fn is_occupied(&self) -> bool {
        self.0.load(Relaxed) & OCCUPIED != 0
    }

    /// How many calls look at it now.
    pub fn entered(&self) -> u32 {
        self.0.load(Acquire) & !(OCCUPIED | LEFT)
    }
}
