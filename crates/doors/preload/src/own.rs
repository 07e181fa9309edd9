//! What is this process's and no child's: the kernel wipes it in a forked child, which begins anew.

use core::ptr::from_ref;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use window::client::Registration;

/// In a page of its own, and nothing else in its pages. All zero, as the kernel leaves it.
#[repr(C, align(4096))]
pub struct Own {
    /// The connection to the agent; null until there is one.
    pub registration: AtomicPtr<Registration>,
    /// The process that made it: a child that shares the memory of its parent (`vfork`) is another.
    pub owner: AtomicU64,
    /// A thread talks to the agent; no other waits for it, nor does its own signal handler.
    pub talking: AtomicBool,
    /// The thread that gives everything back, or [`DONE`].
    pub giving_up: AtomicU32,
}

/// No thread: everything is given back.
pub const DONE: u32 = u32::MAX;

/// That of this process.
pub static OWN: Own = Own {
    registration: AtomicPtr::new(core::ptr::null_mut()),
    owner: AtomicU64::new(0),
    talking: AtomicBool::new(false),
    giving_up: AtomicU32::new(0),
};

/// Has the kernel wipe a static in a forked child. It fills its pages, was never written but with zeroes where it is compiled in,
/// and means nothing when it is zero. False if the kernel cannot (before Linux 4.14).
pub fn wipe_on_fork<T>(what: &'static T) -> bool {
    use rustix::mm::{Advice, madvise};
    const { assert!(align_of::<T>() == 4096 && size_of::<T>().is_multiple_of(4096)) };
    let start = from_ref(what).cast_mut().cast();
    // SAFETY: whole pages, which are private memory of this process; nothing changes in it.
    unsafe { madvise(start, size_of::<T>(), Advice::LinuxWipeOnFork) }.is_ok()
}
