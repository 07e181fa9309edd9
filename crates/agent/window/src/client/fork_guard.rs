//! Fork guard: detects whether this is still the process that registered.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

const BYTES: usize = 4096;

/// Fork guard: a page that the kernel wipes in a forked child, however it was forked. One load distinguishes parent and
/// child.
///
/// A child that shares the parent's memory (`vfork`) is not detected. Such a child may only execute a program or end.
#[derive(Debug)]
pub struct ForkGuard(NonNull<AtomicU64>);

// SAFETY: one atomic word, alive until drop.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// Marks this process. Errors: those of mmap and madvise (`MADV_WIPEONFORK`, Linux 4.14).
    pub fn here() -> std::io::Result<ForkGuard> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE)? };
        let fork_guard = ForkGuard(NonNull::new(page.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?);
        // SAFETY: the page just mapped; wiping it in a child changes no byte here.
        unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork)? };
        fork_guard.word().store(1, Relaxed);
        Ok(fork_guard)
    }

    /// Returns true in the process that made the guard, false in a forked child.
    pub fn is_here(&self) -> bool {
        self.word().load(Relaxed) == 1
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped, aligned to a page, and accessed through atomics alone.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: made by `mmap_anonymous` with this length.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_not_at_home() {
        let fork_guard = ForkGuard::here().unwrap();
        assert!(fork_guard.is_here());
        // SAFETY: the child makes no call but _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(fork_guard.is_here())) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0));
        assert!(fork_guard.is_here());
    }
}
