//! When a program believes what it copied out of the mapping of a replica: if nothing was cut since it took the size.
//!
//! The words lie in the page of [`cuts`](crate::cuts).

use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release, SeqCst};
use crate::sync::fence;

#[cfg(all(loom, test))]
mod interleavings;

/// What is said of a group of replicas.
pub(crate) struct Words<'a> {
    /// Cuts that were begun.
    pub begun: &'a AtomicU64,
    /// Those that are over.
    pub over: &'a AtomicU64,
    /// The thread that stands for the agent.
    pub tenure: &'a AtomicU64,
}

/// What was the case when the size of a replica was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub(crate) pair: usize,
    begun: u64,
    tenure: u64,
}

/// No thread's id: the kernel marked it.
const MARKED: u64 = 1 << 30;

impl Words<'_> {
    /// Before a cut.
    pub fn begin(&self) {
        self.begun.fetch_add(1, SeqCst);
        // Who sees what follows sees that it was begun.
        fence(Release);
    }

    /// After it.
    pub fn end(&self) {
        self.over.fetch_add(1, SeqCst);
    }

    /// Before the size is taken. `None`: a cut is under way, or the agent has gone.
    pub fn stand(&self, pair: usize) -> Option<Standing> {
        let over = self.over.load(SeqCst);
        let begun = self.begun.load(SeqCst);
        let tenure = self.tenure.load(SeqCst);
        (over == begun && tenure != 0 && tenure < MARKED).then_some(Standing { pair, begun, tenure })
    }

    /// A standing, and then the size that `take` takes.
    pub fn stand_before<T>(&self, pair: usize, take: impl FnOnce() -> Option<T>) -> Option<(Standing, T)> {
        let standing = self.stand(pair)?;
        take().map(|size| (standing, size))
    }

    /// Whether no cut was begun since.
    #[inline(always)]
    pub fn stands(&self, standing: Standing) -> bool {
        self.begun.load(Acquire) == standing.begun && self.tenure.load(Acquire) == standing.tenure
    }

    /// Whether what `copy` copied is all there and was in the replica.
    #[inline(always)]
    pub fn believes(&self, standing: Standing, copy: impl FnOnce() -> bool) -> bool {
        let is_whole = copy();
        order_loads();
        is_whole && self.stands(standing)
    }
}

/// What follows is loaded after what was loaded before, by instructions on strings too.
#[inline(always)]
fn order_loads() {
    fence(Acquire);
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: every x86-64 has it.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}
