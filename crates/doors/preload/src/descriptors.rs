//! Which descriptors may have windows: one word for each descriptor, empty unless this library saw it opened.
//!
//! Losing an entry is always right: positions and bytes are the kernel's and the agent's, so a call that finds none goes to the
//! kernel. Having one too many is what must not be; hence:
//!
//! 1. an entry is made only after an open that this process made itself, never for descriptors 0, 1 and 2;
//! 2. it is taken out before a descriptor is closed, and whenever its number turns out to mean something else;
//! 3. the kernel wipes the table in a forked child, which has entries for what it opens itself;
//! 4. a window is unmapped by whoever uses it last.

use core::ffi::c_int;
use core::ptr::from_ref;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use window::client::Window;
use window::gift::Gift;
use window::life::{Life, Word};

use crate::limits::{ATTACH_AT_WRITE, DESCRIPTORS_MAX, LARGE_WRITE, OPENS_MAX};

/// In a page of its own, and nothing else in its pages.
#[repr(C, align(4096))]
struct Table([Word; DESCRIPTORS_MAX]);

static TABLE: Table = Table([const { Word::new(NOTHING) }; DESCRIPTORS_MAX]);
static OPENS: [Open; OPENS_MAX] = [const { Open::new() }; OPENS_MAX];

/// Not one of ours.
const NOTHING: usize = 0;

/// One open file that may have a window.
pub struct Open {
    life: Life,
    /// Writes until it is asked for.
    patience: AtomicU32,
    window: Gift<Window>,
}

impl Open {
    const fn new() -> Open {
        Open { life: Life::new(), patience: AtomicU32::new(0), window: Gift::none() }
    }

    /// Its window, if it has one.
    pub fn window(&self) -> Option<&Window> {
        self.window.get()
    }

    /// Counts a write of `bytes` without a window; true when it is time to ask for one, for one thread at a time. A large write
    /// counts for two.
    pub fn wants_window(&self, bytes: usize) -> bool {
        let weight = if bytes < LARGE_WRITE { 1 } else { 2 };
        self.window.is_wanted()
            && self.patience.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(weight)).unwrap_or(0) <= weight
            && self.window.ask()
    }

    /// The answer, from the thread to which [`Open::wants_window`] said true.
    pub fn give(&self, window: Option<Window>, patience: u32) {
        self.patience.store(patience, Relaxed);
        // SAFETY: as the caller says.
        unsafe { self.window.give(window) };
    }

    /// The call that held it is over.
    pub fn release(&self) {
        self.life.exit(|| self.empty());
    }

    fn leave(&self) {
        self.life.leave(|| self.empty());
    }

    fn empty(&self) {
        // SAFETY: no descriptor leads here, and nobody who came by an old one looks further than the table.
        drop(unsafe { self.window.take() });
    }
}

fn slot(fd: c_int) -> Option<&'static Word> {
    TABLE.0.get(fd as u32 as usize)
}

fn open_at(word: usize) -> Option<&'static Open> {
    // SAFETY: words are zero or lead into OPENS.
    unsafe { (word as *const Open).as_ref() }
}

/// Whether the descriptor is not ours: the one question of every call.
#[inline(always)]
pub fn is_foreign(fd: c_int) -> bool {
    slot(fd).is_none_or(|slot| slot.glance() == NOTHING)
}

/// The open file of a descriptor, to be released.
pub fn hold(fd: c_int) -> Option<&'static Open> {
    let slot = slot(fd)?;
    let found = slot.look();
    let open = open_at(found)?;
    open.life.enter(slot, found, || open.empty()).then_some(open)
}

/// Makes an entry. None is made when all are in use.
pub fn adopt(fd: c_int, patience: u32) {
    forget(fd);
    let Some(slot) = slot(fd).filter(|_| fd > 2) else { return };
    let Some(open) = OPENS.iter().find(|open| open.life.occupy()) else {
        return;
    };
    open.patience.store(patience, Relaxed);
    if let Some(before) = open_at(slot.replace(from_ref(open) as usize)) {
        before.leave();
    }
}

/// The patience of a new entry.
pub const FRESH: u32 = ATTACH_AT_WRITE;

/// Takes the entry out. True if there was one.
pub fn forget(fd: c_int) -> bool {
    let Some(slot) = slot(fd).filter(|slot| slot.glance() != NOTHING) else { return false };
    let before = open_at(slot.replace(NOTHING));
    before.into_iter().for_each(Open::leave);
    before.is_some()
}

/// Takes all entries from `first` to `last` out.
pub fn forget_range(first: u32, last: u32) {
    let end = (last as usize).min(DESCRIPTORS_MAX - 1);
    for fd in first as usize..=end {
        forget(fd as c_int);
    }
}

/// Has the kernel wipe the table in a forked child. False if it cannot.
pub fn wipe_on_fork() -> bool {
    crate::own::wipe_on_fork(&TABLE)
}

/// In a forked child, whose table was wiped: nothing leads to what its parent had any more. What a call was using stays, for it
/// may be one of the thread that forked.
#[cold]
pub fn abandon_inherited() {
    OPENS.iter().filter(|open| open.life.is_occupied()).for_each(Open::leave);
}
