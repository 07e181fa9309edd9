//! Tests of child processes of a program with a window.

use super::*;

/// Starts a process that does `work` and exits with its answer, or waits to be killed if there is none. `flags`: those
/// of clone(2).
pub(super) fn process(flags: i32, work: &dyn Fn() -> Option<i32>) -> i32 {
    // SAFETY: the child works on a copy of our memory, with system calls alone, and ends without a destructor.
    match unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => match work() {
            // SAFETY: as above.
            Some(answer) => unsafe { libc::_exit(answer) },
            None => loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            },
        },
        pid => pid as i32,
    }
}

/// Waits for the child. Returns its exit code; -1 if a signal ended it.
pub(super) fn ended(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
}

/// Kills the child.
pub(super) fn end(pid: i32) {
    // SAFETY: our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    ended(pid);
}

#[test]
fn a_forked_child_has_no_window_and_its_parent_keeps_its_own() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    let open = stand.windowed("file");
    let window = stand.attach(&open);
    window.append(0, b"before").unwrap();
    let child = process(0, &|| {
        let refused = window.append(0, b"child!") == Err(AppendRefused::Revoked) && window.is_revoked();
        Some(i32::from(!refused || stand.registration.is_here()))
    });
    assert_eq!(ended(child), 0);
    assert!(!window.is_revoked() && stand.registration.is_here());
    window.append(6, b" after").unwrap();
    assert_eq!(stand.content(&open), b"before after");
    // A child that dies in between affects nothing; one that shares the descriptors closes none of ours.
    end(process(libc::CLONE_FILES, &|| None));
    window.append(12, b"!").unwrap();
    assert_eq!(stand.content(&open), b"before after!");
    assert_eq!(stand.agent.window_status().unwrap().revoked, 0);
}

#[test] // S40
fn a_child_that_goes_on_with_an_append_of_its_parent_makes_it_by_the_kernel() {
    let tree = tempfile::tempdir().unwrap();
    let stand = Stand::new(tree.path(), &[]);
    // A short record has its offset before it is in the ring, a long one after that.
    for (ends, bytes) in [(false, 6), (true, 6), (false, 100_000), (true, 100_000)] {
        let open = stand.windowed(&format!("{ends} {bytes}"));
        let window = stand.attach_sized(&open, 1 << 20);
        window.append(0, b"before").unwrap();
        let (mut child, after) = (None, vec![b'a'; bytes]);
        let appended = window.append_where(&[std::io::IoSlice::new(&after)], || {
            if ends {
                window.end_before_fork();
                assert!(window.has_ended(Instant::now() + PATIENCE));
            }
            // SAFETY: the child goes on with system calls and this memory alone.
            let pid = unsafe { libc::fork() };
            child = Some(pid);
            if pid > 0 {
                assert_eq!(ended(pid), 0, "refused");
            }
            Some(6)
        });
        if child == Some(0) {
            // SAFETY: ends without a destructor.
            unsafe { libc::_exit(i32::from(appended != Err(AppendRefused::Revoked))) };
        }
        assert_eq!(appended, if ends { Err(AppendRefused::Revoked) } else { Ok(()) });
        let after = if ends { &[][..] } else { &after };
        assert!(stand.content(&open) == [b"before", after].concat());
    }
}
