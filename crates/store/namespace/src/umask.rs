//! The umask of a caller, for as long as a creation takes.

thread_local! {
    static OWN_UMASK: bool = {
        // SAFETY: unshare with CLONE_FS gives this thread its own umask and working directory and touches no memory.
        unsafe { libc::unshare(libc::CLONE_FS) == 0 }
    };
}

/// Runs a creation under the caller's umask, so that the store applies the umask, or a default ACL instead. `create`
/// gets the mode to use. The umask is this thread's own; where a thread cannot have its own, the mode is masked.
pub fn with_umask<T>(mode: u32, umask: u32, create: impl FnOnce(u32) -> T) -> T {
    struct Restore(libc::mode_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: umask cannot fail and is this thread's own.
            unsafe { libc::umask(self.0) };
        }
    }
    if !OWN_UMASK.with(|own| *own) {
        return create(mode & !(umask & 0o777));
    }
    // SAFETY: as above.
    let _restore = Restore(unsafe { libc::umask(umask & 0o777) });
    create(mode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_umask_is_the_threads_own() {
        let directory = tempfile::tempdir().unwrap();
        let (inside, outside) = (directory.path().join("inside"), directory.path().join("outside"));
        let other = with_umask(0o666, 0o077, |_| {
            std::fs::write(&inside, b"").unwrap();
            let outside = outside.clone();
            std::thread::spawn(move || with_umask(0o666, 0o002, |_| std::fs::write(outside, b"").unwrap())).join()
        });
        other.unwrap();
        assert_eq!(std::fs::metadata(inside).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(outside).unwrap().mode() & 0o777, 0o664);
    }
}
