//! Calls that separate an address space from its descriptor table. Entries for a descriptor number would then be about
//! two tables, so all windows are given up. Children of `fork` have tables of their own, and children of `vfork` make
//! no entries.

use core::ffi::{c_int, c_long, c_void};

use crate::{agent, unfinished};

/// Returns whether exactly one of memory and descriptors is shared while the parent does not wait.
fn parts(flags: c_int) -> bool {
    let (memory, descriptors) = (flags & libc::CLONE_VM != 0, flags & libc::CLONE_FILES != 0);
    memory != descriptors && flags & libc::CLONE_VFORK == 0
}

pub extern "C" fn before_clone(_: *const c_void, _: *const c_void, flags: c_int) {
    if parts(flags) {
        agent::give_up();
    }
}

pub extern "C" fn before_unshare(flags: c_int) {
    if flags & libc::CLONE_FILES != 0 {
        agent::give_up();
    }
}

/// Prepares for one of these calls made by `syscall(2)`.
pub fn before_system_call(number: c_long, first: c_long, third: c_long) {
    match number {
        libc::SYS_unshare => before_unshare(first as c_int),
        libc::SYS_close_range => before_close_range(third as c_int),
        libc::SYS_clone => before_clone_call(first as c_int),
        // SAFETY: the caller's structure, which begins with its flags.
        libc::SYS_clone3 if first != 0 => before_clone_call(unsafe { (first as *const u64).read() } as c_int),
        _ => {}
    }
}

fn before_clone_call(flags: c_int) {
    unfinished::before_clone(flags);
    if parts(flags) {
        agent::give_up();
    }
}

pub fn before_close_range(flags: c_int) {
    if flags & libc::CLOSE_RANGE_UNSHARE as c_int != 0 {
        agent::give_up();
    }
}
