//! The program's environment, as it was when the library was loaded.

use core::ffi::CStr;

/// Returns the value of a variable, if it is set. Called by the loader, before the program begins.
pub fn value(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a C string; the environment does not change while libraries are loaded.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: what getenv finds is a C string, used before anybody changes it.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_bytes())
}
