//! What one of several threads fetches for all of them, as a window for those who write to an open file. Nobody waits for it.

use crate::sync::AtomicU32;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::UnsafeCell;

#[cfg(all(loom, test))]
mod interleavings;

/// Not there, and nobody asks for it.
const WITHOUT: u32 = 0;
/// A thread asks for it.
const ASKING: u32 = 1;
/// It is there.
const WITH: u32 = 2;

/// There, or not.
pub struct Gift<T> {
    stage: AtomicU32,
    what: UnsafeCell<Option<T>>,
}

// SAFETY: `what` is written by the one thread that moved `stage` to ASKING, read by all after it is WITH, and taken when nobody looks.
unsafe impl<T: Send + Sync> Sync for Gift<T> {}

impl<T> Gift<T> {
    /// Not there.
    #[cfg(not(loom))]
    pub const fn none() -> Gift<T> {
        Gift { stage: AtomicU32::new(WITHOUT), what: UnsafeCell::new(None) }
    }

    /// The same.
    #[cfg(loom)]
    pub fn none() -> Gift<T> {
        Gift { stage: AtomicU32::new(WITHOUT), what: UnsafeCell::new(None) }
    }

    /// It, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.stage.load(Acquire) != WITH {
            return None;
        }
        // SAFETY: written before the stage was stored; taken only when nobody looks.
        self.what.with(|what| unsafe { (*what).as_ref() })
    }

    /// Whether somebody might ask for it.
    pub fn is_wanted(&self) -> bool {
        self.stage.load(Relaxed) == WITHOUT
    }

    /// One of those who find nothing there asks for it; `None`: it may be asked for again. Whether the caller was the one.
    #[inline]
    pub fn fetch(&self, ask: impl FnOnce() -> Option<T>) -> bool {
        if self.stage.compare_exchange(WITHOUT, ASKING, AcqRel, Relaxed).is_err() {
            return false;
        }
        let what = ask();
        let stage = if what.is_some() { WITH } else { WITHOUT };
        // SAFETY: this thread alone moved the stage to ASKING.
        self.what.with_mut(|place| unsafe { *place = what });
        self.stage.store(stage, Release);
        true
    }

    /// Takes it out.
    ///
    /// # Safety
    /// Nobody else looks at it: what it is part of is free for another afterwards ([`Life`](crate::life::EntryUse)), and not before.
    pub unsafe fn take(&self) -> Option<T> {
        // SAFETY: as the caller says.
        let what = self.what.with_mut(|what| unsafe { (*what).take() });
        self.stage.store(WITHOUT, Relaxed);
        what
    }
}
