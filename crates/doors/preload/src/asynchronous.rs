//! `libaio` and `io_uring`. The kernel reads for them by the size of a file that it was told last, and knows nothing of what was
//! appended to a window since: a process that uses them has no windows from then on. Nothing of `liburing` is in the table, for
//! there are many of that name, of versions and copies of their own: a program that comes with one has no windows at all.

use core::ffi::{CStr, c_int, c_long, c_uint, c_void};

use crate::signals::KeptErrno;
use crate::{agent, lifetime, sharing, unfinished};

/// Before `syscall(2)`. What else it does is the kernel's alone.
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

/// Before `prctl`: a program that may make few system calls from then on might be ended by one of ours.
pub extern "C" fn before_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        agent::give_up_calls();
    }
}

/// `io_submit` of libaio: minus an errno, or how many requests were taken.
pub unsafe fn io_submit(context: usize, count: c_long, requests: *mut c_void) -> c_int {
    agent::give_up();
    let _errno = KeptErrno::here();
    // SAFETY: the call as it came.
    let done = unsafe { libc::syscall(libc::SYS_io_submit, context, count, requests) };
    // SAFETY: the thread's own errno.
    if done < 0 { -unsafe { *libc::__errno_location() } } else { done as c_int }
}

/// Whether the program came with a library for `io_uring`, which has the system calls inside. Called by the loader.
pub fn has_liburing() -> bool {
    unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader's description of one object, whose name is a C string or null.
        let name = unsafe { (*object).dlpi_name };
        // SAFETY: as above.
        let named =
            !name.is_null() && unsafe { CStr::from_ptr(name) }.to_bytes().windows(8).any(|part| part == b"liburing");
        if named {
            // SAFETY: the variable of the caller, who waits.
            unsafe { *found.cast::<bool>() = true };
        }
        c_int::from(named)
    }
    let mut found = false;
    // SAFETY: `look` takes what it is given, and the variable outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}
