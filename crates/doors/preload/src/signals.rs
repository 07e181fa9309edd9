//! Moments in which no handler of a signal may run, the thread's `errno`, and the end of a panic.

use core::ffi::c_int;
use core::mem::MaybeUninit;

/// All signals of this thread wait until it is dropped.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    /// From now on.
    pub fn all() -> Blocked {
        let mut every = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets live through the calls, which fill them.
        unsafe {
            libc::sigfillset(every.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, every.as_ptr(), before.as_mut_ptr());
            Blocked(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that the kernel told.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut()) };
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
