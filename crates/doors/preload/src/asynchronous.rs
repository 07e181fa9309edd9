//! `libaio` and `io_uring`. The kernel reads for them by the size of a file that it was told last, and knows nothing of what was appended
//! to a window since: a process that uses them has no windows from then on.

use core::ffi::{c_int, c_long, c_void};

use crate::agent;
use crate::signals::KeptErrno;

/// Before `syscall(2)`. What else it does is the kernel's alone.
pub extern "C" fn before_system_call(number: c_long) {
    if matches!(number, libc::SYS_io_submit | libc::SYS_io_uring_setup) {
        before_rings();
    }
}

/// Before rings are made: what is put into them nobody sees.
pub extern "C" fn before_rings() {
    agent::give_up();
}

/// `io_submit` of libaio: minus an errno, or how many requests were taken.
pub unsafe fn io_submit(context: usize, count: c_long, requests: *mut c_void) -> c_int {
    let _errno = KeptErrno::here();
    // SAFETY: the call as it came, by the function that gives up windows first.
    let done = unsafe { libc::syscall(libc::SYS_io_submit, context, count, requests) };
    // SAFETY: the thread's own errno.
    if done < 0 { -unsafe { *libc::__errno_location() } } else { done as c_int }
}
