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
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};

use window::client::Window;
use window::gift::Gift;
use window::life::{EntryUse, Word};

use crate::limits::{ATTACH_AT_WRITE, CALLS_WAITED_FOR_MS, DESCRIPTORS_MAX, LARGE_WRITE, OPENS_MAX};
use crate::signals::Blocked;

/// In a page of its own, and nothing else in its pages.
#[repr(C, align(4096))]
struct Table([Word; DESCRIPTORS_MAX]);

static TABLE: Table = Table([const { Word::new(NOTHING) }; DESCRIPTORS_MAX]);
static OPENS: [OpenEntry; OPENS_MAX] = [const { OpenEntry::new() }; OPENS_MAX];
/// None was ever in use from this one on.
static OPENS_USED: AtomicUsize = AtomicUsize::new(0);

/// Not one of ours.
const NOTHING: usize = 0;

/// One open file that may have a window.
pub struct OpenEntry {
    life: EntryUse,
    /// The number by which it was opened.
    number: AtomicI32,
    /// The number means something else by now, or nothing.
    replaced: AtomicBool,
    /// Writes until it is asked for.
    patience: AtomicU32,
    window: Gift<Window>,
}

impl OpenEntry {
    const fn new() -> OpenEntry {
        OpenEntry {
            life: EntryUse::new(),
            number: AtomicI32::new(-1),
            replaced: AtomicBool::new(false),
            patience: AtomicU32::new(0),
            window: Gift::none(),
        }
    }

    /// Whether the number by which it was held means something else by now, or nothing. Not more than a moment later, unless signals are
    /// blocked: then nobody has it mean something else by `dup2` who does not wait for the caller.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(SeqCst)
    }

    /// Its window, if it has one.
    pub fn window(&self) -> Option<&Window> {
        self.window.get()
    }

    /// Counts a write of `bytes` without a window. When it is time one thread asks for one: what came of it, and the writes until it may be
    /// asked for again. A large write counts for two.
    pub fn count(&self, bytes: usize, ask: impl FnOnce() -> (Option<Window>, u32)) {
        let weight = if bytes < LARGE_WRITE { 1 } else { 2 };
        if self.window.is_wanted()
            && self.patience.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(weight)).unwrap_or(0) <= weight
        {
            // A handler that leaves by a jump must not do so between the answer and its place.
            let _blocked = Blocked::all();
            self.window.fetch(|| {
                let (window, patience) = ask();
                self.patience.store(patience, Relaxed);
                window
            });
        }
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

fn open_at(word: usize) -> Option<&'static OpenEntry> {
    // SAFETY: words are zero or lead into OPENS.
    unsafe { (word as *const OpenEntry).as_ref() }
}

/// Whether the descriptor is not ours: the one question of every call.
#[inline(always)]
pub fn is_foreign(fd: c_int) -> bool {
    slot(fd).is_none_or(|slot| slot.glance() == NOTHING)
}

/// The open file of a descriptor, to be released.
pub fn hold(fd: c_int) -> Option<&'static OpenEntry> {
    let slot = slot(fd)?;
    let found = slot.look();
    let open = open_at(found)?;
    open.life.enter(slot, found, || open.empty()).then_some(open)
}

/// Whether the number means that open file still, which the caller holds.
#[inline]
pub fn leads_to(fd: c_int, open: &OpenEntry) -> bool {
    slot(fd).is_some_and(|slot| slot.look() == from_ref(open) as usize)
}

/// Makes an entry. None is made when all are in use.
pub fn adopt(fd: c_int, patience: u32) {
    forget(fd);
    let Some(slot) = slot(fd).filter(|_| fd > 2) else { return };
    let Some((place, open)) = OPENS.iter().enumerate().find(|(_, open)| open.life.occupy()) else {
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

/// What calls look at that began when a number of these meant it, whatever the table says of that by now.
fn under_way(first: u32, last: u32) -> impl Iterator<Item = &'static OpenEntry> {
    let used = OPENS_USED.load(SeqCst).min(OPENS_MAX);
    let of_them = move |open: &&OpenEntry| (first..=last).contains(&(open.number.load(SeqCst) as u32));
    OPENS[..used].iter().filter(|open| open.life.entered() > 0).filter(of_them)
}

/// The patience of a new entry.
pub const FRESH: u32 = ATTACH_AT_WRITE;

/// Takes the entry out. True if there was one.
pub fn forget(fd: c_int) -> bool {
    let Some(slot) = slot(fd).filter(|slot| slot.glance() != NOTHING) else { return false };
    let before = open_at(slot.replace(NOTHING));
    before.into_iter().for_each(OpenEntry::leave);
    before.is_some()
}

/// Before numbers mean something else, or nothing: calls that still run know it then, and their bytes do not go by the number to where the
/// position of another file was taken. Takes the entries out.
pub fn closes(first: u32, last: u32) {
    let end = (last as usize).min(DESCRIPTORS_MAX - 1);
    for fd in first as usize..=end {
        forget(fd as c_int);
    }
    under_way(first, last).for_each(|open| open.replaced.store(true, SeqCst));
}

/// The same before the number means something else at once, as `dup2` has it: a call that has looked here and moved the position by this
/// number moved that of the file that it meant. What calls do after that may take long, and such a call is not waited for longer.
pub fn closes_at_once(fd: c_int) {
    forget(fd);
    let fd = fd as u32;
    let nap = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 100_000 };
    for round in 0..CALLS_WAITED_FOR_MS * 10 {
        // One that a handler has left by a jump is there for good, and waited for once.
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

/// Has the kernel wipe the table in a forked child. False if it cannot.
pub fn wipe_on_fork() -> bool {
    crate::own::wipe_on_fork(&TABLE)
}

/// In a forked child, whose table was wiped: nothing leads to what its parent had any more. What a call was using stays, for it
/// may be one of the thread that forked.
#[cold]
pub fn abandon_inherited() {
    OPENS.iter().filter(|open| open.life.is_occupied()).for_each(OpenEntry::leave);
}
