//! Guards of a thread: no signal handler runs, no cancellation, `errno` is restored, a panic aborts.

use core::ffi::{c_int, c_long, c_void};

/// Guard that blocks all signals of this thread until dropped.
pub struct Blocked(u64);

/// Signals that the C library keeps for itself: cancellation and setuid.
const ITS_OWN: u64 = 1 << 31 | 1 << 32;

/// Makes a system call about signals, whose sets have 8 bytes. The C library's functions cannot be used: they are in
/// the table, where a call means a call of the program.
///
/// # Safety
/// The call's effect on the memory that it is given must be as the caller intends.
unsafe fn call(number: c_long, first: c_int, new: *const c_void, old: *mut c_void) -> c_long {
    let result;
    // SAFETY: as the caller promises; the kernel preserves all other registers.
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

/// Guard that prevents cancellation of the thread until dropped. The library itself closes descriptors, and `close` is
/// a cancellation point.
pub struct Uncancelled(c_int);

impl Uncancelled {
    /// Disables cancellation from now on.
    pub fn here() -> Uncancelled {
        const DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: the former state is written to a live variable.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: restores the former state; null asks for no old value.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// Guard that restores the thread's `errno` when dropped.
pub struct KeptErrno(i32);

impl KeptErrno {
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

/// Guard that ends the process if a panic drops it, so that no panic reaches the program's frames.
pub struct AbortOnPanic(());

impl AbortOnPanic {
    /// Arms the guard from now on.
    pub fn armed() -> AbortOnPanic {
        AbortOnPanic(())
    }

    pub fn disarm(self) {
        core::mem::forget(self);
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
