//! Lifetime of an entry in a program's table. An entry is in use by the word that leads to it and by the calls that
//! look at it. Nobody waits.
//!
//! A call that finds an entry by a word enters it and reads the word again. A thread that empties the word leaves the
//! entry. When nobody uses the entry any more, one of these threads empties it, and another word may then lead to it.

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU32, AtomicUsize};

#[cfg(all(loom, test))]
mod interleavings;

/// Word of a table. Holds the address of an entry or another value, whose meaning the table defines.
#[repr(transparent)]
pub struct Word(AtomicUsize);

impl Word {
    /// Makes a word that holds `what`.
    #[cfg(not(loom))]
    pub const fn new(what: usize) -> Word {
        Word(AtomicUsize::new(what))
    }

    /// Makes a word that holds `what`.
    #[cfg(loom)]
    pub fn new(what: usize) -> Word {
        Word(AtomicUsize::new(what))
    }

    /// Returns the value, for a caller that does not look at the entry.
    #[inline(always)]
    pub fn glance(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Returns the value. After entering the entry, the caller sees all that was put into it before the word led there.
    #[inline(always)]
    pub fn look(&self) -> usize {
        self.0.load(Acquire)
    }

    /// Sets the value to `what`. Returns the former value, whose entry the caller must leave.
    #[inline]
    pub fn replace(&self, what: usize) -> usize {
        self.0.swap(what, SeqCst)
    }
}

/// Bit: in use, by a word or by a call that still runs.
const OCCUPIED: u32 = 1 << 31;
/// Bit: the word no longer leads to the entry.
const LEFT: u32 = 1 << 30;

/// State of an entry: [`OCCUPIED`], [`LEFT`], and the number of calls that look at it.
///
/// Methods with an argument `empty` call it if nobody uses the entry any more. Only one thread does so; the entry is
/// free afterwards.
pub struct EntryUse(AtomicU32);

#[allow(clippy::new_without_default, reason = "for statics")]
impl EntryUse {
    /// Makes the state of a free entry.
    #[cfg(not(loom))]
    pub const fn new() -> EntryUse {
        EntryUse(AtomicU32::new(0))
    }

    /// Makes the state of a free entry.
    #[cfg(loom)]
    pub fn new() -> EntryUse {
        EntryUse(AtomicU32::new(0))
    }

    /// Takes a free entry. Returns false if it is not free.
    #[inline]
    pub fn occupy(&self) -> bool {
        self.0.compare_exchange(0, OCCUPIED, AcqRel, Relaxed).is_ok()
    }

    /// Enters the entry whose address a call `found` in `word`; the call may look at it until [`EntryUse::exit`]. Returns
    /// false, without entering, if the word leads elsewhere by now.
    #[inline]
    pub fn enter(&self, word: &Word, found: usize, empty: impl FnOnce()) -> bool {
        // SeqCst for callers of [`EntryUse::entered`].
        self.0.fetch_add(1, SeqCst);
        // Pairs with `leave`: either it sees this call, or this call sees that the word was emptied.
        if word.0.load(SeqCst) == found {
            return true;
        }
        self.exit(empty);
        false
    }

    /// Ends a call. To be called once for each successful [`EntryUse::enter`].
    #[inline]
    pub fn exit(&self, empty: impl FnOnce()) {
        if self.0.fetch_sub(1, AcqRel) - 1 == OCCUPIED | LEFT {
            self.abandon(empty);
        }
    }

    /// Notes that the word no longer leads to the entry. To be called once for each word that led here.
    pub fn leave(&self, empty: impl FnOnce()) {
        if self.0.fetch_or(LEFT, AcqRel) == OCCUPIED {
            self.abandon(empty);
        }
    }

    #[cold]
    fn abandon(&self, empty: impl FnOnce()) {
        // Of several threads that see it abandoned, one succeeds.
        if self.0.compare_exchange(OCCUPIED | LEFT, OCCUPIED, AcqRel, Relaxed).is_ok() {
            empty();
            self.0.fetch_and(!OCCUPIED, Release);
        }
    }

    /// Returns whether the entry is in use.
    #[inline]
    pub fn is_occupied(&self) -> bool {
        self.0.load(Relaxed) & OCCUPIED != 0
    }

    /// Returns how many calls look at the entry now. A call that enters later sees the caller's earlier stores, if
    /// those stores and its look at them are `SeqCst`.
    #[inline]
    pub fn entered(&self) -> u32 {
        self.0.load(SeqCst) & !(OCCUPIED | LEFT)
    }
}
