//! Copies out of mappings of files that others cut, or whose medium fails: the signal that the kernel sends then (SIGBUS) ends the copy and
//! not the program.
//!
//! The handler is there from the first mapping on, if the program leaves that signal as it was, and is not seen: a program that says or
//! asks anything of the signal's action, or has handlers during which it waits, has no mapped reads from then on. A thread that blocks it
//! has none meanwhile, for then the kernel would end the program.

use core::cell::Cell;
use core::ffi::{c_int, c_long, c_void};
use core::mem::{MaybeUninit, transmute};
use core::sync::atomic::Ordering::{Acquire, SeqCst};

use crate::limits::COPIES_WAITED_FOR_MS;
use crate::original::Original;
use crate::own::OWN;
use crate::signals::{self, Blocked};
use crate::{agent, reads};

/// Nobody has looked: in a forked child, whatever its parent had.
const UNTRIED: u32 = 0;
/// It is being installed.
const BEGINNING: u32 = 1;
/// It is there.
const INSTALLED: u32 = 2;
/// It is being taken away.
const ENDING: u32 = 3;
/// It is not there, and will not be.
const ENDED: u32 = 4;

static SIGACTION: Original = Original::new(c"sigaction");

/// Not looked at since it may have changed.
const UNKNOWN: u8 = 0;
/// The thread does not block the signal.
const FREE: u8 = 1;
/// It does, or is just changing what it blocks.
const BLOCKS: u8 = 2;

thread_local! {
    static MASK: Cell<u8> = const { Cell::new(UNKNOWN) };
    /// Calls of this thread that look at a mapping: more than one when a handler of a signal reads.
    static ENTERED: Cell<u32> = const { Cell::new(0) };
    /// Page faults of the thread for which the medium was read, when they were looked at last.
    static MAJOR_FAULTS: Cell<i64> = const { Cell::new(i64::MAX) };
}

/// Copies, and says how much was not copied: the rest could not be read.
///
/// Its first instruction is the one that the handler knows: the kernel keeps in the registers how far it came.
#[unsafe(naked)]
unsafe extern "C" fn copy_string(to: *mut u8, from: *const u8, unused: usize, length: usize) -> usize {
    core::arch::naked_asm!(".cfi_startproc", "rep movsb", "mov rax, rcx", "ret", ".cfi_endproc")
}

/// Bytes of that instruction.
const INSTRUCTION_BYTES: i64 = 2;

/// Copies `length` bytes out of a mapping, and says how many are missing at the end because their page cannot be had.
///
/// # Safety
/// [`may_copy`] said yes to this thread; `from` is mapped and `to` the program's own.
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize) -> usize {
    // SAFETY: as the caller says; the direction flag is clear between functions.
    unsafe { copy_string(to, from, 0, length) }
}

fn sigaction(new: *const libc::sigaction, old: *mut libc::sigaction) -> bool {
    let address = SIGACTION.address();
    if address.is_null() {
        return false;
    }
    type Call = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    // SAFETY: the C library's function of this name takes and returns these types.
    let call = unsafe { transmute::<*mut c_void, Call>(address) };
    // SAFETY: both are null or the caller's variables.
    unsafe { call(libc::SIGBUS, new, old) == 0 }
}

extern "C" fn on_sigbus(_: c_int, about: *const libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel hands to a handler that asked for it.
    let (code, at) = unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        ((*about).si_code, &mut registers[libc::REG_RIP as usize])
    };
    if code > 0 && code != libc::BUS_MCEERR_AO && *at == copy_string as *const () as i64 {
        *at += INSTRUCTION_BYTES;
        return;
    }
    // Not ours: what would have happened without us. A fault comes again; a process that is the first of its namespace lives on.
    OWN.handler.store(ENDED, SeqCst);
    signals::set_default(libc::SIGBUS);
    if code <= 0 || code == libc::BUS_MCEERR_AO {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS);
    }
}

fn handler_now() -> Option<usize> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeroes are an action, and the call fills it.
    sigaction(core::ptr::null(), now.as_mut_ptr()).then(|| unsafe { now.assume_init() }.sa_sigaction)
}

/// Whether the handler is there. Called with all signals blocked.
pub fn prepare() -> bool {
    if OWN.handler.compare_exchange(UNTRIED, BEGINNING, SeqCst, SeqCst).is_err() {
        return OWN.handler.load(Acquire) == INSTALLED;
    }
    // SAFETY: a structure of numbers and null pointers.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = on_sigbus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    let now = handler_now();
    let untouched = now == Some(ours.sa_sigaction)
        || (now == Some(libc::SIG_DFL) && sigaction(&raw const ours, core::ptr::null_mut()));
    OWN.handler.store(if untouched { INSTALLED } else { ENDED }, SeqCst);
    untouched
}

/// The handler goes, and with it all mapped reads, for good.
#[cold]
pub fn end() {
    if OWN.handler.load(SeqCst) == INSTALLED && !agent::is_owner() {
        return; // a child that shares the memory of its parent, whose handler that is
    }
    // A handler of ours that came by here would wait for itself.
    let _blocked = Blocked::all();
    loop {
        match OWN.handler.load(SeqCst) {
            ENDED => break,
            state @ (UNTRIED | INSTALLED) if OWN.handler.compare_exchange(state, ENDING, SeqCst, SeqCst).is_ok() => {
                // Who copies now may still need it. A copy that this call interrupted is not over before it.
                let mine = ENTERED.get();
                let nap = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                for _ in 0..COPIES_WAITED_FOR_MS {
                    if reads::entered() <= mine {
                        break;
                    }
                    let _ = rustix::thread::nanosleep(&nap);
                }
                if handler_now() == Some(on_sigbus as *const () as usize) {
                    signals::set_default(libc::SIGBUS);
                }
                OWN.handler.store(ENDED, SeqCst);
                break;
            }
            _ => rustix::thread::sched_yield(),
        }
    }
    reads::end();
}

/// A call of this thread looks at a mapping.
pub fn enter() {
    ENTERED.set(ENTERED.get() + 1);
}

/// It is over.
pub fn exit() {
    ENTERED.set(ENTERED.get() - 1);
}

/// Finds what no call that reads is to look for.
pub fn find() {
    SIGACTION.find();
}

/// Whether a fault of this thread would come to the handler.
#[inline]
pub fn may_copy() -> bool {
    // After the call has entered, in the order of all that is SeqCst: `end` waits for it, or it sees that `end` began.
    OWN.handler.load(SeqCst) == INSTALLED
        && MASK.with(|mask| match mask.get() {
            FREE => true,
            BLOCKS => false,
            _ => look(mask),
        })
}

#[cold]
fn look(mask: &Cell<u8>) -> bool {
    let free = signals::blocked_now() & signals::bit(libc::SIGBUS) == 0;
    mask.set(if free { FREE } else { BLOCKS });
    free
}

/// Page faults of this thread since it asked last for which the medium was read.
#[cold]
pub fn major_faults() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: zeroes are a usage, and the call fills it.
    let now = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_majflt
    };
    MAJOR_FAULTS.with(|before| now.saturating_sub(before.replace(now)).max(0))
}

/// `pthread_sigmask` and `sigprocmask`.
pub unsafe fn mask(
    original: unsafe extern "C-unwind" fn(c_int, *const c_void, *mut c_void) -> c_int,
    how: c_int,
    set: *const c_void,
    old: *mut c_void,
) -> c_int {
    if !set.is_null() {
        MASK.with(|mask| mask.set(BLOCKS));
    }
    // SAFETY: the call as it came.
    let result = unsafe { original(how, set, old) };
    if !set.is_null() {
        MASK.with(|mask| mask.set(UNKNOWN));
    }
    result
}

/// What a function does that waits under a mask of its own: handlers that run then may read.
fn under<T>(set: *const c_void, wait: impl FnOnce() -> T) -> T {
    if set.is_null() {
        return wait();
    }
    MASK.with(|mask| mask.set(BLOCKS));
    let result = wait();
    MASK.with(|mask| mask.set(UNKNOWN));
    result
}

/// `sigsuspend`.
pub unsafe fn sigsuspend(original: unsafe extern "C-unwind" fn(*const c_void) -> c_int, set: *const c_void) -> c_int {
    // SAFETY: the call as it came.
    under(set, || unsafe { original(set) })
}

/// `ppoll`.
pub unsafe fn waiting_of_four<A, B, C>(
    original: unsafe extern "C-unwind" fn(A, B, C, *const c_void) -> c_int,
    a: A,
    b: B,
    c: C,
    set: *const c_void,
) -> c_int {
    // SAFETY: the call as it came.
    under(set, || unsafe { original(a, b, c, set) })
}

/// `__ppoll_chk`.
pub unsafe fn ppoll_chk<A, B, C, D>(
    original: unsafe extern "C-unwind" fn(A, B, C, *const c_void, D) -> c_int,
    a: A,
    b: B,
    c: C,
    set: *const c_void,
    room: D,
) -> c_int {
    // SAFETY: the call as it came.
    under(set, || unsafe { original(a, b, c, set, room) })
}

/// `epoll_pwait` and `epoll_pwait2`.
pub unsafe fn waiting_of_five<A, B, C, D>(
    original: unsafe extern "C-unwind" fn(A, B, C, D, *const c_void) -> c_int,
    a: A,
    b: B,
    c: C,
    d: D,
    set: *const c_void,
) -> c_int {
    // SAFETY: the call as it came.
    under(set, || unsafe { original(a, b, c, d, set) })
}

/// `pselect`.
#[allow(clippy::too_many_arguments)] // pselect's own, and the original
pub unsafe fn waiting_of_six<A, B, C, D, E>(
    original: unsafe extern "C-unwind" fn(A, B, C, D, E, *const c_void) -> c_int,
    a: A,
    b: B,
    c: C,
    d: D,
    e: E,
    set: *const c_void,
) -> c_int {
    // SAFETY: the call as it came.
    under(set, || unsafe { original(a, b, c, d, e, set) })
}

/// What this thread blocks is changed behind our back: it reads through the kernel until it changes that otherwise.
pub fn mask_behind_our_back() {
    MASK.with(|mask| mask.set(BLOCKS));
}

/// What this thread blocks will be `mask`, as a jump is about to bring back. A handler that runs before that looks for itself.
fn mask_becomes(mask: u64) {
    MASK.with(|now| now.set(if mask & signals::bit(libc::SIGBUS) == 0 { UNKNOWN } else { BLOCKS }));
}

/// A `jmp_buf` of the C library on x86-64, as its headers have it.
#[repr(C)]
pub struct JumpBuffer {
    registers: [c_long; 8],
    /// By `sigsetjmp` that was asked to.
    mask_was_saved: c_int,
    mask: u64,
}

/// Before `longjmp`, `siglongjmp` and their like.
pub unsafe extern "C" fn before_jump(to: *const JumpBuffer) {
    // SAFETY: filled by one of the `setjmp`s, as the C library needs it.
    let to = unsafe { &*to };
    if to.mask_was_saved != 0 {
        mask_becomes(to.mask);
    }
}

/// Before `setcontext`.
pub unsafe extern "C" fn before_context(to: *const libc::ucontext_t) {
    // SAFETY: a context, as the C library needs it, whose set is an array of words.
    mask_becomes(unsafe { (&raw const (*to).uc_sigmask).cast::<u64>().read() });
}

/// Before `swapcontext`.
pub unsafe extern "C" fn before_swap(_: *mut libc::ucontext_t, to: *const libc::ucontext_t) {
    // SAFETY: as the caller says of the second.
    unsafe { before_context(to) };
}

/// Before `sigaction`. A handler during which the signal waits may read, and a fault would end the program.
pub unsafe extern "C" fn before_sigaction(signal: c_int, new: *const libc::sigaction) {
    // SAFETY: the caller's action, or null; the C library looks at it too.
    let waits = unsafe { new.as_ref() }.is_some_and(|new| {
        // SAFETY: a set is an array of words.
        let first = unsafe { (&raw const new.sa_mask).cast::<u64>().read() };
        new.sa_sigaction != libc::SIG_DFL
            && new.sa_sigaction != libc::SIG_IGN
            && first & signals::bit(libc::SIGBUS) != 0
    });
    // Programs look at what all signals do when they begin.
    let ours = || handler_now() == Some(on_sigbus as *const () as usize);
    let asks = new.is_null() && OWN.handler.load(SeqCst) == UNTRIED && (signal != libc::SIGBUS || !ours());
    if (signal == libc::SIGBUS && !asks) || waits {
        end();
    }
}

/// Before the other calls that say what a signal does.
pub extern "C" fn before_signal(signal: c_int) {
    if signal == libc::SIGBUS {
        end();
    }
}

/// Before `sigblock`, `sigsetmask` and `sigpause`, whose argument is a set; the `sigpause` of the headers, which takes a signal, has another
/// name in the C library. `__sigpause` takes the one or the other: a signal in whose number that bit is ends the mapped reads for nothing.
pub extern "C" fn before_old_mask(blocked: c_int) {
    if blocked as u32 as u64 & signals::bit(libc::SIGBUS) != 0 {
        end();
    }
}

/// Before `prctl`: a program that may make few system calls from then on might be ended by one of ours.
pub extern "C" fn before_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        end();
        agent::give_up_calls();
    }
}

/// Before a program keeps all its memory from being paged out: the mapped files would be read in whole.
pub extern "C" fn before_mlockall(_: c_long) {
    end();
}
