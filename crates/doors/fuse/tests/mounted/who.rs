//! Threads that act as another user or process: Linux has both per thread.

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

/// Thread of root that acts as one user after another.
pub struct Who(std::marker::PhantomData<*const ()>);

impl Who {
    /// Becomes this user, with these supplementary groups and no effective capability.
    pub fn become_user(&self, id: u32, groups: &[u32]) {
        // SAFETY: the raw calls change this thread's credentials only; the pointer and count describe `groups`.
        let done = unsafe {
            libc::syscall(libc::SYS_setresuid, -1, 0, -1)
                | libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr())
                | libc::syscall(libc::SYS_setresgid, -1, id, -1)
                | libc::syscall(libc::SYS_setresuid, -1, id, -1)
        };
        assert_eq!(done, 0, "become user {id}");
    }
}

/// Runs `act` in a thread that may change its user.
pub fn in_thread<T: Send>(act: impl FnOnce(&Who) -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| act(&Who(std::marker::PhantomData)));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `act` like [`as_user`], with the capabilities for files effective.
pub fn as_capable_user<T: Send>(id: u32, act: impl FnOnce() -> T + Send) -> T {
    in_thread(|_| {
        // `CAP_CHOWN` to `CAP_FOWNER`, in each of the three sets. Raw calls, since the C library would tell all
        // threads.
        let (header, data) = ([0x2008_0522u32, 0], [[0b1111u32; 3], [0; 3]]);
        // SAFETY: the raw calls change this thread's credentials only; the kernel reads a header and two sets of three words.
        let done = unsafe {
            libc::prctl(libc::PR_SET_KEEPCAPS, 1)
                | libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) as i32
                | libc::syscall(libc::SYS_setresgid, id, id, id) as i32
                | libc::syscall(libc::SYS_setresuid, id, id, id) as i32
                | libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) as i32
        };
        assert_eq!(done, 0, "become user {id}");
        act()
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

/// Gives this thread its own copy of the descriptor table. Files opened afterwards are closed with the thread.
/// Inherited descriptors must not be owned by it.
pub fn own_descriptors() {
    // SAFETY: the thread gets a copy of the table; numbers stay valid, and no Rust object is closed twice in one table.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
}
