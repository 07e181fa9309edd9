//! Reads of files whose replica the kernel reads by itself: after a number of small ones out of a mapping of the program's own descriptor,
//! which costs no system call.
//!
//! There is a word for each descriptor. Losing what it says is always right: the call goes to the kernel. Having one too many is what must
//! not be; hence:
//!
//! 1. small reads are counted only of descriptors that a call of the table opened for reading alone, never of 0, 1 and 2; whether
//!    the file is such a one is asked of the agent, about the open file that the descriptor means then;
//! 2. the word is emptied before a descriptor is closed or replaced, and what was asked about it before is thrown away;
//! 3. the kernel wipes the words in a forked child, and does not give it the mappings;
//! 4. a mapping goes with its descriptor, by whoever uses it last: longer it would keep the replica from others.
//!
//! What is copied is believed if it lies within the size that the replica had when it was mapped, and nothing has been cut since
//! ([`window::cuts`]). It is the kernel's answer then: the mapping shows the pages that the kernel copies from. All else the kernel is
//! asked, who knows why: a copy that ends early (`faults`), an end of the file, an error of the medium.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};

use libc::{off_t, size_t, ssize_t};
use window::cuts::{Standing, Watch};
use window::life::{Life, Word};

use crate::limits::{
    ADDRESS_MIN, DESCRIPTORS_MAX, MAJOR_FAULTS_MAX, MAPPED_READ_MAX, MAPPINGS_MAX, READS_BEFORE_MAPPING,
    READS_BETWEEN_LOOKS, READS_UNTIL_NEXT,
};
use crate::original::test_cancel;
use crate::own::{OWN, wipe_on_fork as wipe};
use crate::signals::Blocked;
use crate::{agent, faults};

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type CheckedRead = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;

/// In pages of its own, and nothing else in them.
#[repr(C, align(4096))]
struct Table([Word; DESCRIPTORS_MAX]);

static TABLE: Table = Table([const { Word::new(NOTHING) }; DESCRIPTORS_MAX]);
static MAPPINGS: Places = Places([const { Mapped::new() }; MAPPINGS_MAX]);
/// No descriptor above has a word.
static HIGHEST: AtomicI32 = AtomicI32::new(0);
/// The program, its environment or what it does to signals wants none of this.
static OFF: AtomicBool = AtomicBool::new(false);
/// Makes each question another one.
static QUESTIONS: AtomicUsize = AtomicUsize::new(0);

/// Not one whose reads are counted.
const NOTHING: usize = 0;
/// The agent said no. This and all that are odd count; what is even leads to a mapping.
const NEVER: usize = 1;
/// In an odd word: the agent is being asked, and the rest of the word names the question.
const ASKING: usize = 1 << (usize::BITS - 1);

/// So many small reads more until the agent is asked.
const fn counting(reads: usize) -> usize {
    reads << 1 | 1
}

/// A mapped replica.
pub struct View {
    /// What tells of cuts.
    pub watch: &'static Watch,
    /// What it told before the size was taken.
    pub standing: Standing,
    /// Where the mapping begins.
    pub base: *const u8,
    /// Bytes of the replica, and of the mapping.
    pub size: usize,
}

/// What the agent says of a descriptor.
pub enum Asked {
    /// This open file is no such one, or this process.
    Never,
    /// Another thread asks something just now.
    Soon,
    /// Not now.
    Later,
    /// Here it is.
    Mapped(View),
}

/// In pages of their own.
#[repr(C, align(4096))]
struct Places([Mapped; MAPPINGS_MAX]);

/// A place for a mapping; free when it is all zero.
struct Mapped {
    life: Life,
    /// Reads since it was made; wraps around.
    reads: AtomicU32,
    /// Reads that it did not serve for they went beyond.
    beyond: AtomicU32,
    view: UnsafeCell<MaybeUninit<View>>,
}

// SAFETY: `view` is written by the thread that occupied the place, before a word leads to it, read by those who entered by such a word, and
// taken by the one to whom `life` said that it is the last.
unsafe impl Sync for Mapped {}

/// What became of a read.
enum Outcome {
    /// The bytes are there.
    Done,
    /// The kernel's.
    Kernel,
    /// The kernel's, and the mapping is good for nothing any more.
    Over,
}

/// `pread`.
pub unsafe fn pread(original: Read, fd: c_int, buffer: *mut c_void, length: size_t, at: off_t) -> ssize_t {
    // SAFETY: as the caller says of its buffer.
    if unsafe { copied(fd, buffer, length, at) } {
        return length as ssize_t;
    }
    // SAFETY: the call as it came.
    unsafe { original(fd, buffer, length, at) }
}

/// `__pread_chk`: what does not fit the C library has an end for.
pub unsafe fn pread_chk(
    original: CheckedRead,
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: as the caller says of its buffer.
    if length <= room && unsafe { copied(fd, buffer, length, at) } {
        return length as ssize_t;
    }
    // SAFETY: the call as it came.
    unsafe { original(fd, buffer, length, at, room) }
}

/// Whether a read of the descriptor is the kernel's: the one question of every call.
#[inline(always)]
pub fn is_plain(fd: c_int) -> bool {
    slot(fd).is_none_or(|slot| slot.glance() <= NEVER)
}

#[inline(always)]
fn slot(fd: c_int) -> Option<&'static Word> {
    TABLE.0.get(fd as u32 as usize)
}

/// Whether the bytes were copied.
unsafe fn copied(fd: c_int, buffer: *mut c_void, length: size_t, at: off_t) -> bool {
    let sound = (buffer as usize) >= ADDRESS_MIN && (buffer as isize) > 0 && at >= 0;
    let Some(slot) = slot(fd).filter(|_| sound && (1..=MAPPED_READ_MAX).contains(&length)) else { return false };
    let found = slot.look();
    if found & 1 == 1 {
        count(slot, fd, found);
        return false;
    }
    let Some(mapped) = mapped_at(found) else { return false };
    test_cancel();
    let outcome = if mapped.life.enter(slot, found, || mapped.empty()) {
        // After it: a handler in between waits in `faults::end` for this call too, rather than not for another thread's.
        faults::enter();
        // SAFETY: as the caller says of its buffer; entered by a word that leads here.
        let outcome = unsafe { mapped.read(buffer.cast(), length, at as usize) };
        faults::exit();
        mapped.life.exit(|| mapped.empty());
        outcome
    } else {
        Outcome::Kernel
    };
    if matches!(outcome, Outcome::Over) && slot.exchange(found, counting(READS_UNTIL_NEXT)) {
        mapped.leave();
    }
    matches!(outcome, Outcome::Done)
}

/// A small read that is the kernel's; the last of them has the agent asked.
#[inline(never)]
fn count(slot: &Word, fd: c_int, found: usize) {
    if found & ASKING != 0 || found == NEVER {
        return;
    }
    if found > counting(1) {
        // One that is not counted is none the worse.
        let _ = slot.exchange(found, found - (counting(1) - counting(0)));
        return;
    }
    let question = ASKING | QUESTIONS.fetch_add(1, Relaxed) << 1 & !ASKING | 1;
    let ask = || match agent::view(fd) {
        Asked::Never => (NEVER, None),
        Asked::Soon => (counting(READS_BEFORE_MAPPING), None),
        Asked::Later => (counting(READS_UNTIL_NEXT), None),
        Asked::Mapped(view) => match Mapped::place(view) {
            Some(mapped) => (from_ref(mapped) as usize, Some(mapped)),
            None => (counting(READS_UNTIL_NEXT), None),
        },
    };
    // A handler that leaves by a jump must not do so between the answer and its place.
    let _blocked = Blocked::all();
    // The number may mean something else by now.
    if let Some((false, Some(mapped))) = slot.ask(found, question, ask) {
        mapped.leave();
    }
}

impl Mapped {
    const fn new() -> Mapped {
        Mapped {
            life: Life::new(),
            reads: AtomicU32::new(0),
            beyond: AtomicU32::new(0),
            view: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }

    /// Keeps a view; `None` when all places are taken.
    fn place(view: View) -> Option<&'static Mapped> {
        let Some(mapped) = MAPPINGS.0.iter().find(|mapped| mapped.life.occupy()) else {
            view.unmap();
            return None;
        };
        mapped.reads.store(0, Relaxed);
        mapped.beyond.store(0, Relaxed);
        // SAFETY: occupied by this thread just now, and no word leads to it.
        unsafe { (*mapped.view.get()).write(view) };
        Some(mapped)
    }

    /// The caller has entered.
    unsafe fn read(&self, buffer: *mut u8, length: usize, at: usize) -> Outcome {
        // SAFETY: written before a word led here, and taken after everybody has left.
        let view = unsafe { (*self.view.get()).assume_init_ref() };
        if at.checked_add(length).is_none_or(|end| end > view.size) {
            let often = self.beyond.fetch_add(1, Relaxed) as usize >= READS_UNTIL_NEXT;
            return if often { Outcome::Over } else { Outcome::Kernel };
        }
        if !faults::may_copy() {
            return if OFF.load(Relaxed) { Outcome::Over } else { Outcome::Kernel };
        }
        if !view.watch.stands(view.standing) {
            return Outcome::Over;
        }
        let reads = self.reads.fetch_add(1, Relaxed);
        if reads % READS_BETWEEN_LOOKS == READS_BETWEEN_LOOKS - 1 && faults::major_faults() > MAJOR_FAULTS_MAX {
            // The pages are not there: the kernel reads them with fewer waits.
            return Outcome::Over;
        }
        // SAFETY: inside the mapping, and the caller's buffer; one that is not there ends the program, as any store into it would.
        let copy = || unsafe { faults::copy(buffer, view.base.add(at), length) } == 0;
        if view.watch.believes(view.standing, copy) { Outcome::Done } else { Outcome::Over }
    }

    fn leave(&self) {
        self.life.leave(|| self.empty());
    }

    fn empty(&self) {
        // SAFETY: no word leads here, and nobody who came by an old one looks further than the table.
        unsafe { (*self.view.get()).assume_init_read() }.unmap();
    }
}

fn mapped_at(word: usize) -> Option<&'static Mapped> {
    let address = if word & 1 == 0 { word } else { 0 };
    // SAFETY: even words lead into MAPPINGS, but for 0.
    unsafe { (address as *const Mapped).as_ref() }
}

impl View {
    fn unmap(self) {
        // SAFETY: a mapping of that length, which nobody copies from any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.size) };
    }
}

/// The program opened something: what the number meant before is gone.
pub fn opened(fd: c_int, flags: c_int) {
    forget(fd);
    let others = libc::O_ACCMODE | libc::O_PATH | libc::O_DIRECT | libc::O_DIRECTORY;
    if flags & others == libc::O_RDONLY
        && agent::is_offered()
        && !OFF.load(Relaxed)
        && let Some(slot) = slot(fd).filter(|_| fd > 2)
        && is_readers_own()
    {
        if HIGHEST.load(Relaxed) < fd {
            HIGHEST.fetch_max(fd, Relaxed);
        }
        replace(slot, counting(READS_BEFORE_MAPPING));
    }
}

/// Whether this process is the one whose descriptors the words are about.
fn is_readers_own() -> bool {
    let here = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let known = OWN.reader.load(Relaxed);
    known == here || (known == 0 && OWN.reader.compare_exchange(0, here, Relaxed, Relaxed).is_ok())
}

/// The number means nothing any more, or something else.
pub fn forget(fd: c_int) {
    let Some(slot) = slot(fd).filter(|slot| slot.glance() != NOTHING) else { return };
    replace(slot, NOTHING);
}

fn replace(slot: &Word, word: usize) {
    mapped_at(slot.replace(word)).into_iter().for_each(Mapped::leave);
}

/// The same for all from `first` to `last`.
pub fn forget_range(first: u32, last: u32) {
    for fd in first..=last.min(HIGHEST.load(Relaxed) as u32) {
        forget(fd as c_int);
    }
}

/// None of this any more, for good.
#[cold]
pub fn end() {
    OFF.store(true, SeqCst);
    forget_range(0, u32::MAX);
}

/// How many calls look at a mapping now.
pub fn entered() -> u32 {
    MAPPINGS.0.iter().map(|mapped| mapped.life.entered()).sum()
}

/// Whether it has ended, or never was.
pub fn is_off() -> bool {
    OFF.load(SeqCst)
}

/// Has the kernel wipe words and places in a forked child. False if it cannot.
pub fn wipe_on_fork() -> bool {
    wipe(&TABLE) && wipe(&MAPPINGS)
}

/// Maps the replica behind a descriptor. A forked child does not get it, and pages that are not there are read one by one. `None`: the
/// kernel refuses, for want of addresses too.
pub fn map(file: std::os::fd::BorrowedFd<'_>, size: usize) -> Option<*const u8> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { mmap(null_mut(), size, ProtFlags::READ, MapFlags::SHARED, file, 0) }.ok()?;
    // SAFETY: the mapping just made.
    let own = unsafe { madvise(base, size, Advice::LinuxDontFork).and_then(|()| madvise(base, size, Advice::Random)) };
    if own.is_err() {
        // SAFETY: as above, and nobody knows of it.
        let _ = unsafe { munmap(base, size) };
        return None;
    }
    Some(base.cast())
}
