//! The C library's own functions, found once.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// One function of the next library in line, usually libc.
pub struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    /// Not looked for yet.
    pub const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address, or null if nobody has looked for it, or found it.
    #[inline(always)]
    pub fn known(&self) -> *mut c_void {
        self.address.load(Relaxed)
    }

    /// Its address. Null if the C library has no such function: it is older than the call.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        let known = self.known();
        if known.is_null() { self.find() } else { known }
    }

    /// Looks for it. Here before our own constructor ran, from the constructor of another library, or by it.
    #[cold]
    #[inline(never)]
    pub fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string; RTLD_NEXT asks for the definition after this library's.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        // Relaxed: the code it points to was there before us; all who look find the same.
        self.address.store(address, Relaxed);
        address
    }
}

/// What a call answers that the C library does not have.
pub trait AbsentResult {
    /// The result; `errno` is `ENOSYS`.
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

/// Finds what no row of the table is about.
pub fn find_others() {
    TEST.find();
}

/// The calls that a window takes from the kernel are cancellation points all the same.
#[inline(always)]
pub fn test_cancel() {
    let address = TEST.address();
    if !address.is_null() {
        // SAFETY: the C library's function of this name takes and returns nothing.
        let test = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn()>(address) };
        // SAFETY: it may end the thread, whose frames of ours hold nothing.
        unsafe { test() };
    }
}
