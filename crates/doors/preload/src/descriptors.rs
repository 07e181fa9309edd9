//! Table of descriptors that may have windows: one word per descriptor, zero unless this library saw the open.
//!
//! A missing entry is always correct. Positions and bytes are the kernel's and the agent's, so a call without an entry
//! goes to the kernel. A wrong entry must not exist. Hence:
//!
//! 1. an entry is made only after an open by this process itself, never for descriptors 0, 1 and 2;
//! 2. an entry is removed before its descriptor is closed, and when its number turns out to mean something else;
//! 3. the kernel wipes the table in a forked child, which makes entries for its own opens;
//! 4. a window is unmapped by its last user.

use core::ffi::c_int;
use core::ptr::from_ref;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};

use window::client::Window;
use window::entry_use::{EntryUse, Word};
use window::gift::Gift;

use crate::limits::{ATTACH_AT_WRITE, CALLS_WAITED_FOR_MS, DESCRIPTORS_MAX, LARGE_WRITE, OPENS_MAX};
use crate::signals::Blocked;

/// Table of words, alone in its pages.
#[repr(C, align(4096))]
struct Table([Word; DESCRIPTORS_MAX]);

static TABLE: Table = Table([const { Word::new(NOTHING) }; DESCRIPTORS_MAX]);
static OPENS: [OpenEntry; OPENS_MAX] = [const { OpenEntry::new() }; OPENS_MAX];
/// Number of entries of `OPENS` that were ever in use.
static OPENS_USED: AtomicUsize = AtomicUsize::new(0);

const NOTHING: usize = 0;

pub struct OpenEntry {
    entry_use: EntryUse,
    number: AtomicI32,
    /// Whether that number means something else by now, or nothing.
    replaced: AtomicBool,
    /// Writes left before the window is asked for.
    patience: AtomicU32,
    window: Gift<Window>,
}

impl OpenEntry {
    const fn new() -> OpenEntry {
        OpenEntry {
            entry_use: EntryUse::new(),
            number: AtomicI32::new(-1),
            replaced: AtomicBool::new(false),
            patience: AtomicU32::new(0),
            window: Gift::none(),
        }
    }

    /// Returns whether the descriptor number means another file by now, or none. The answer may be a moment old, unless
    /// signals are blocked. A thread that gives the number a new meaning by `dup2` then waits for the caller.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(SeqCst)
    }

    pub fn window(&self) -> Option<&Window> {
        self.window.get()
    }

    /// Counts a write of `bytes` without a window; a large write counts for two. When the count is reached, one thread
    /// calls `ask`, which returns the window, if any, and the number of writes before asking again.
    pub fn count(&self, bytes: usize, ask: impl FnOnce() -> (Option<Window>, u32)) {
        let weight = if bytes < LARGE_WRITE { 1 } else { 2 };
        if self.window.is_wanted()
            && self.patience.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(weight)).unwrap_or(0) <= weight
        {
            // No handler may leave by a jump between the answer and storing it.
            let _blocked = Blocked::all();
            self.window.fetch(|| {
                let (window, patience) = ask();
                self.patience.store(patience, Relaxed);
                window
            });
        }
    }

    /// Ends a hold of [`hold`].
    pub fn release(&self) {
        self.entry_use.exit(|| self.empty());
    }

    fn leave(&self) {
        self.entry_use.leave(|| self.empty());
    }

    fn empty(&self) {
        // SAFETY: no descriptor leads here, and a caller that came by an old entry looks no further than the table.
        drop(unsafe { self.window.take() });
    }
}

fn slot(fd: c_int) -> Option<&'static Word> {
    TABLE.0.get(fd as u32 as usize)
}

fn open_at(word: usize) -> Option<&'static OpenEntry> {
    // SAFETY: words are zero or point into OPENS.
    unsafe { (word as *const OpenEntry).as_ref() }
}

/// Returns whether the descriptor has no entry: the one check of every call.
#[inline(always)]
pub fn is_foreign(fd: c_int) -> bool {
    slot(fd).is_none_or(|slot| slot.glance() == NOTHING)
}

/// Returns the open file of a descriptor. The caller must release it.
pub fn hold(fd: c_int) -> Option<&'static OpenEntry> {
    let slot = slot(fd)?;
    let found = slot.look();
    let open = open_at(found)?;
    open.entry_use.enter(slot, found, || open.empty()).then_some(open)
}

/// Returns whether the descriptor still means this open file, which the caller holds.
#[inline]
pub fn leads_to(fd: c_int, open: &OpenEntry) -> bool {
    slot(fd).is_some_and(|slot| slot.look() == from_ref(open) as usize)
}

/// Makes an entry. Makes none if all are in use.
pub fn adopt(fd: c_int, patience: u32) {
    forget(fd);
    let Some(slot) = slot(fd).filter(|_| fd > 2) else { return };
    let Some((place, open)) = OPENS.iter().enumerate().find(|(_, open)| open.entry_use.occupy()) else {
        return;
    };
    OPENS_USED.fetch_max(place + 1, SeqCst);
    open.patience.store(patience, Relaxed);
    open.replaced.store(false, SeqCst);
    open.number.store(fd, SeqCst);
    if let Some(before) = open_at(slot.replace(from_ref(open) as usize)) {
        before.leave();
    }
}

/// Returns the open files in use by calls that began when a number from `first` to `last` meant them. The table may say
/// otherwise by now.
fn under_way(first: u32, last: u32) -> impl Iterator<Item = &'static OpenEntry> {
    let used = OPENS_USED.load(SeqCst).min(OPENS_MAX);
    let of_them = move |open: &&OpenEntry| (first..=last).contains(&(open.number.load(SeqCst) as u32));
    OPENS[..used].iter().filter(|open| open.entry_use.entered() > 0).filter(of_them)
}

/// Patience of a new entry.
pub const FRESH: u32 = ATTACH_AT_WRITE;

/// Removes the entry. Returns whether there was one.
pub fn forget(fd: c_int) -> bool {
    let Some(slot) = slot(fd).filter(|slot| slot.glance() != NOTHING) else { return false };
    let before = open_at(slot.replace(NOTHING));
    before.into_iter().for_each(OpenEntry::leave);
    before.is_some()
}

/// Removes the entries of descriptors that are about to be closed or replaced. Calls in progress are told. Their bytes
/// do not go by the number to a file whose position was not taken.
pub fn closes(first: u32, last: u32) {
    let end = (last as usize).min(DESCRIPTORS_MAX - 1);
    for fd in first as usize..=end {
        forget(fd as c_int);
    }
    under_way(first, last).for_each(|open| open.replaced.store(true, SeqCst));
}

/// Removes the entry of a descriptor that is replaced at once, as by `dup2`. Waits for calls in progress, up to
/// [`CALLS_WAITED_FOR_MS`]: a call that has checked the number here and moved the position then has moved it of the
/// right file. Later steps of a call may take long and are not waited for.
pub fn closes_at_once(fd: c_int) {
    forget(fd);
    let fd = fd as u32;
    let nap = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 100_000 };
    for round in 0..CALLS_WAITED_FOR_MS * 10 {
        // A call that a handler left by a jump is there for good, and is waited for only once.
        if under_way(fd, fd).all(OpenEntry::is_replaced) {
            return;
        }
        if round == 0 {
            rustix::thread::sched_yield();
        } else {
            let _ = rustix::thread::nanosleep(&nap);
        }
    }
    under_way(fd, fd).for_each(|open| open.replaced.store(true, SeqCst));
}

/// Makes the kernel wipe the table in a forked child. Returns false if the kernel cannot.
pub fn wipe_on_fork() -> bool {
    crate::own::wipe_on_fork(&TABLE)
}

/// Abandons the open files of the parent in a forked child, whose table was wiped. An open file that is in use stays,
/// because the call may be of the thread that forked.
#[cold]
pub fn abandon_inherited() {
    OPENS.iter().filter(|open| open.entry_use.is_occupied()).for_each(OpenEntry::leave);
}
