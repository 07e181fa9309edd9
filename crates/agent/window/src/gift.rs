//! Value that one of several threads fetches for all of them, such as the window of an open file. Nobody waits for it.

use crate::sync::AtomicU32;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::UnsafeCell;

#[cfg(all(loom, test))]
mod interleavings;

/// Stage: no value, and no thread asks for it.
const WITHOUT: u32 = 0;
/// Stage: a thread asks for the value.
const ASKING: u32 = 1;
/// Stage: the value is there.
const WITH: u32 = 2;

/// Value that is there or not.
pub struct Gift<T> {
    stage: AtomicU32,
    what: UnsafeCell<Option<T>>,
}

// SAFETY: `what` is written by the one thread that moved `stage` to ASKING, read by all after it is WITH, and taken
// when nobody looks.
unsafe impl<T: Send + Sync> Sync for Gift<T> {}

impl<T> Gift<T> {
    /// Makes an empty gift.
    #[cfg(not(loom))]
    pub const fn none() -> Gift<T> {
        Gift { stage: AtomicU32::new(WITHOUT), what: UnsafeCell::new(None) }
    }

    /// Makes an empty gift.
    #[cfg(loom)]
    pub fn none() -> Gift<T> {
        Gift { stage: AtomicU32::new(WITHOUT), what: UnsafeCell::new(None) }
    }

    /// Returns the value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.stage.load(Acquire) != WITH {
            return None;
        }
        // SAFETY: written before the stage was stored; taken only when nobody looks.
        self.what.with(|what| unsafe { (*what).as_ref() })
    }

    /// Returns whether there is no value and no thread asks for one.
    pub fn is_wanted(&self) -> bool {
        self.stage.load(Relaxed) == WITHOUT
    }

    /// Lets one of the threads that find no value call `ask`; if `ask` returns `None`, it may be called again later.
    /// Returns whether the caller was that thread.
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

    /// Takes the value out.
    ///
    /// # Safety
    /// Nobody else may look at the value. Its place may be reused afterwards and not before
    /// ([`EntryUse`](crate::entry_use::EntryUse)).
    pub unsafe fn take(&self) -> Option<T> {
        // SAFETY: as the caller promises.
        let what = self.what.with_mut(|what| unsafe { (*what).take() });
        self.stage.store(WITHOUT, Relaxed);
        what
    }
}
