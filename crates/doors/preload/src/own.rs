//! State of this process only. The kernel wipes it in a forked child, which begins anew.

use core::ptr::from_ref;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use window::client::Registration;

/// State of this process, alone in its pages. All zero initially, which is also what the kernel leaves in a forked
/// child.
#[repr(C, align(4096))]
pub struct Own {
    /// Connection to the agent; null until there is one.
    pub registration: AtomicPtr<Registration>,
    /// Process id that made the connection. A child that shares its parent's memory (`vfork`) has another.
    pub owner: AtomicU64,
    /// Whether a thread talks to the agent. Other threads, and its own signal handler, do not wait for it.
    pub talking: AtomicBool,
    /// Thread id that gives everything back, or [`DONE`].
    pub giving_up: AtomicU32,
}

/// Value of `giving_up` when everything has been given back.
pub const DONE: u32 = u32::MAX;

pub static OWN: Own = Own {
    registration: AtomicPtr::new(core::ptr::null_mut()),
    owner: AtomicU64::new(0),
    talking: AtomicBool::new(false),
    giving_up: AtomicU32::new(0),
};

/// Makes the kernel wipe a static in a forked child. The static must fill its pages, must be all zero in the compiled
/// library, and must be valid when zero. Returns false if the kernel cannot (before Linux 4.14).
pub fn wipe_on_fork<T>(what: &'static T) -> bool {
    use rustix::mm::{Advice, madvise};
    const { assert!(align_of::<T>() == 4096 && size_of::<T>().is_multiple_of(4096)) };
    let start = from_ref(what).cast_mut().cast();
    // SAFETY: whole pages, which are private memory of this process; nothing changes in it.
    unsafe { madvise(start, size_of::<T>(), Advice::LinuxWipeOnFork) }.is_ok()
}
