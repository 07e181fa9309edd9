//! Acting as another user or another process, in a thread: Linux keeps both per thread.

/// Runs `act` in a thread whose user and group are `id`, with the supplementary `groups` and no capability.
pub fn as_user<T: Send>(id: u32, groups: &[u32], act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the raw calls change this thread's credentials only; the pointer and count describe `groups`.
            let done = unsafe {
                libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr())
                    | libc::syscall(libc::SYS_setresgid, id, id, id)
                    | libc::syscall(libc::SYS_setresuid, id, id, id)
            };
            assert_eq!(done, 0, "become user {id}");
            act()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `act` in a thread with a descriptor table of its own: for locks, another process.
pub fn as_process<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            own_descriptors();
            act()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives this thread a copy of the descriptor table. What it opens dies with it; what it inherits it must not own.
pub fn own_descriptors() {
    // SAFETY: the thread gets a copy of the table; numbers stay valid, and no Rust object is closed twice in one table.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
}
