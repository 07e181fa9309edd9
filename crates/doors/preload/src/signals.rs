//! Moments in which no handler of a signal may run, the thread's `errno`, and the end of a panic.

use core::ffi::{c_int, c_long, c_void};

/// All signals of this thread wait until it is dropped.
pub struct Blocked(u64);

/// Those that the C library keeps for itself: cancellation, and the change of the user.
const ITS_OWN: u64 = 1 << 31 | 1 << 32;

/// A system call about signals, which are sets of 8 bytes: the C library's functions are in the table, where they say something of
/// the program.
///
/// # Safety
/// What the call does to the memory that it is given is as the caller wants it.
unsafe fn call(number: c_long, first: c_int, new: *const c_void, old: *mut c_void) -> c_long {
    let result;
    // SAFETY: as the caller says; the kernel keeps all other registers.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") c_long::from(first),
            in("rsi") new,
            in("rdx") old,
            in("r10") size_of::<u64>(),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

fn mask(how: c_int, set: *const u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the kernel reads a set, if there is one, and writes one.
    unsafe { call(libc::SYS_rt_sigprocmask, how, set.cast(), (&raw mut before).cast()) };
    before
}

impl Blocked {
    /// From now on.
    pub fn all() -> Blocked {
        Blocked(mask(libc::SIG_BLOCK, &!ITS_OWN))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        mask(libc::SIG_SETMASK, &raw const self.0);
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// The thread is not cancelled until it is dropped: what we do for ourselves closes descriptors, which is where threads are.
pub struct Uncancelled(c_int);

impl Uncancelled {
    /// From now on.
    pub fn here() -> Uncancelled {
        const DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: the state that was is written to a variable that lives.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that was; null asks for nothing.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// Gives `errno` back its value when dropped.
pub struct KeptErrno(i32);

impl KeptErrno {
    /// Remembers the value it has now.
    pub fn here() -> KeptErrno {
        // SAFETY: the thread's own errno.
        KeptErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// A panic ends the process here and not in the program's frames.
pub struct AbortOnPanic(());

impl AbortOnPanic {
    /// From now on.
    pub fn armed() -> AbortOnPanic {
        AbortOnPanic(())
    }

    /// All went well.
    pub fn disarm(self) {
        core::mem::forget(self);
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
