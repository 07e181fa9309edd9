//! Copies of `liburing` that a program brings along.

use core::ffi::{CStr, c_int, c_void};

/// Returns whether the program was loaded with a library for `io_uring`, which makes the system calls itself. Called by
/// the loader.
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
