//! How long an entry of a program's table is in use: by the word that leads to it, and by the calls that look at it. Nobody waits.
//!
//! A call that finds an entry by a word enters it and looks at the word again. Who empties the word leaves the entry. Of those who then see that
//! nobody uses it one empties it, and another word may lead to it.

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::{AtomicU32, AtomicUsize};

#[cfg(all(loom, test))]
mod interleavings;

/// A word of a table: leads to an entry, whose address it is, or says something else. What that is is the table's.
#[repr(transparent)]
pub struct Word(AtomicUsize);

impl Word {
    /// That says `what`.
    #[cfg(not(loom))]
    pub const fn new(what: usize) -> Word {
        Word(AtomicUsize::new(what))
    }

    /// The same.
    #[cfg(loom)]
    pub fn new(what: usize) -> Word {
        Word(AtomicUsize::new(what))
    }

    /// What it says, for who looks at no entry by it.
    #[inline(always)]
    pub fn glance(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// What it says: what was put into an entry before the word led there can be looked at once it is entered.
    #[inline(always)]
    pub fn look(&self) -> usize {
        self.0.load(Acquire)
    }

    /// Says `what` from now on; what it said before, whose entry is to be left.
    #[inline]
    pub fn replace(&self, what: usize) -> usize {
        self.0.swap(what, SeqCst)
    }
}

/// In use, by a word or by a call that still runs.
const OCCUPIED: u32 = 1 << 31;
/// Its word has let go of it.
const LEFT: u32 = 1 << 30;

/// [`OCCUPIED`], [`LEFT`], and the number of calls that look at it.
///
/// `empty`, where it is asked for, is called if nobody uses the entry any more, by one alone; the entry is free afterwards.
pub struct EntryUse(AtomicU32);

#[allow(clippy::new_without_default, reason = "for statics")]
impl EntryUse {
    /// Of an entry that is free.
    #[cfg(not(loom))]
    pub const fn new() -> EntryUse {
        EntryUse(AtomicU32::new(0))
    }

    /// The same.
    #[cfg(loom)]
    pub fn new() -> EntryUse {
        EntryUse(AtomicU32::new(0))
    }

    /// Takes a free entry; false if it is not free.
    #[inline]
    pub fn occupy(&self) -> bool {
        self.0.compare_exchange(0, OCCUPIED, AcqRel, Relaxed).is_ok()
    }

    /// A call that `found` the entry's address in `word` looks at it from now on, until [`EntryUse::exit`]. False: not at all, for the
    /// word leads elsewhere by now.
    #[inline]
    pub fn enter(&self, word: &Word, found: usize, empty: impl FnOnce()) -> bool {
        // SeqCst for who asks [`EntryUse::entered`].
        self.0.fetch_add(1, SeqCst);
        // Against `leave`: either it sees us, or we see that the word was emptied.
        if word.0.load(SeqCst) == found {
            return true;
        }
        self.exit(empty);
        false
    }

    /// The call is over: once for each that [`EntryUse::enter`] let in.
    #[inline]
    pub fn exit(&self, empty: impl FnOnce()) {
        if self.0.fetch_sub(1, AcqRel) - 1 == OCCUPIED | LEFT {
            self.abandon(empty);
        }
    }

    /// Its word has let go of it: once for each that led here.
    pub fn leave(&self, empty: impl FnOnce()) {
        if self.0.fetch_or(LEFT, AcqRel) == OCCUPIED {
            self.abandon(empty);
        }
    }

    #[cold]
    fn abandon(&self, empty: impl FnOnce()) {
        // Of several that see it abandoned, one.
        if self.0.compare_exchange(OCCUPIED | LEFT, OCCUPIED, AcqRel, Relaxed).is_ok() {
            empty();
            self.0.fetch_and(!OCCUPIED, Release);
        }
    }

    /// Whether it is in use.
    #[inline]
    pub fn is_occupied(&self) -> bool {
        self.0.load(Relaxed) & OCCUPIED != 0
    }

    /// How many calls look at it now. Whoever enters later sees what the caller stored before, if that and the look at it are `SeqCst`.
    #[inline]
    pub fn entered(&self) -> u32 {
        self.0.load(SeqCst) & !(OCCUPIED | LEFT)
    }
}
