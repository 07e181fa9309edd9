//! A bounded count of what lives.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts one while it lives.
pub(crate) struct Counted<'a>(pub(crate) &'a AtomicUsize);

impl<'a> Counted<'a> {
    /// `None`: there are `most`.
    pub(crate) fn below(counter: &'a AtomicUsize, most: usize) -> Option<Counted<'a>> {
        let count = |now| (now < most).then_some(now + 1);
        counter.try_update(Ordering::AcqRel, Ordering::Acquire, count).ok().map(|_| Counted(counter))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
