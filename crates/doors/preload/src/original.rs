//! Original functions of the C library, each found once.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Function of the next library in line, usually libc.
pub struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    /// Makes an original that has not been looked up yet.
    pub const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns the address, or null if it was not looked up or not found.
    #[inline(always)]
    pub fn known(&self) -> *mut c_void {
        self.address.load(Relaxed)
    }

    /// Returns the address, looked up if necessary. Null if the C library is older than the function.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        let known = self.known();
        if known.is_null() { self.find() } else { known }
    }

    /// Looks the function up. Reached outside our own constructor only if another library's constructor calls us before
    /// it.
    #[cold]
    #[inline(never)]
    pub fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string; RTLD_NEXT asks for the definition after this library's.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // Relaxed: the code pointed to existed before this library, and all lookups find the same address.
        self.address.store(address, Relaxed);
        address
    }
}

/// Results of calls that the C library does not have.
pub trait AbsentResult {
    /// Returns the failure value and sets `errno` to `ENOSYS`.
    fn absent() -> Self;
}

fn not_implemented() {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

impl AbsentResult for i32 {
    fn absent() -> i32 {
        not_implemented();
        -1
    }
}

impl AbsentResult for i64 {
    fn absent() -> i64 {
        not_implemented();
        -1
    }
}

impl AbsentResult for isize {
    fn absent() -> isize {
        not_implemented();
        -1
    }
}

impl AbsentResult for *mut c_void {
    fn absent() -> *mut c_void {
        not_implemented();
        null_mut()
    }
}

impl AbsentResult for () {
    fn absent() {
        not_implemented();
    }
}

static TEST: Original = Original::new(c"pthread_testcancel");

/// Finds the originals that have no row in the table.
pub fn find_others() {
    TEST.find();
}

/// Tests for cancellation. Calls that a window takes from the kernel remain cancellation points.
#[inline(always)]
pub fn test_cancel() {
    let address = TEST.address();
    if !address.is_null() {
        // SAFETY: the C library's function of this name takes and returns nothing.
        let test = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn()>(address) };
        // SAFETY: it may end the thread, on which our frames hold nothing.
        unsafe { test() };
    }
}
