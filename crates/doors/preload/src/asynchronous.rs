//! `libaio` and `io_uring`. For them the kernel reads by the last file size that it was told, and knows nothing of
//! later appends to a window. So a process that uses them has no windows from then on. No function of `liburing` is in
//! the table, because programs bring many versions and copies of it. A program that is loaded with `liburing` has no
//! windows at all.

use core::ffi::{c_int, c_long, c_uint, c_void};

use crate::signals::KeptErrno;
use crate::{agent, lifetime, sharing, unfinished};

/// Prepares for a call by `syscall(2)`. All other effects of that call are the kernel's alone.
pub extern "C" fn before_system_call(number: c_long, first: c_long, second: c_long, third: c_long) {
    sharing::before_system_call(number, first, third);
    match number {
        libc::SYS_io_submit | libc::SYS_io_uring_setup => agent::give_up(),
        libc::SYS_close => lifetime::closes(first as c_int),
        libc::SYS_dup2 | libc::SYS_dup3 if first != second => lifetime::closes(second as c_int),
        libc::SYS_close_range => lifetime::closes_range(first as c_uint, second as c_uint),
        libc::SYS_seccomp => before_prctl(libc::PR_SET_SECCOMP),
        libc::SYS_prctl => before_prctl(first as c_int),
        libc::SYS_fork => unfinished::before_fork(),
        _ => {}
    }
}

/// Prepares for `prctl`. A program that restricts its system calls might be ended by one of the library's.
pub extern "C" fn before_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        agent::give_up_calls();
    }
}

/// Replacement of libaio's `io_submit`. Returns the number of requests taken, or minus an errno.
pub unsafe fn io_submit(context: usize, count: c_long, requests: *mut c_void) -> c_int {
    agent::give_up();
    let _errno = KeptErrno::here();
    // SAFETY: the call is forwarded unchanged.
    let done = unsafe { libc::syscall(libc::SYS_io_submit, context, count, requests) };
    // SAFETY: the thread's own errno.
    if done < 0 { -unsafe { *libc::__errno_location() } } else { done as c_int }
}
