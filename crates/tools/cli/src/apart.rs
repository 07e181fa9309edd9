//! System calls that go through our own mount, made by a process that holds nothing of this one.
//!
//! An agent that was killed while it waited for its own answer would wait for ever, unkillable: the kernel withdraws no request
//! that was read. So would everybody on the mount, which ends with the agent's descriptors. A child without them waits in
//! its place, and is answered by the end of the connection.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, WaitOptions};

use crate::limits::DESCRIPTORS_AT_START;

/// Asks for a directory's status.
pub fn look_into(dir: &Path) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: system calls alone, on a C string and a status that live on the caller's stack.
    apart(None, || unsafe {
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        libc::stat(path.as_ptr(), status.as_mut_ptr()) == 0
    })
}

/// Puts a detached mount on a directory.
pub fn put_on(mount: BorrowedFd<'_>, dir: &Path) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let (empty, flags) = (c"", libc::MOVE_MOUNT_F_EMPTY_PATH);
    // SAFETY: one system call, on C strings that live through it; the mount is the child's descriptor 0.
    apart(Some(mount), || unsafe {
        libc::syscall(libc::SYS_move_mount, 0, empty.as_ptr(), libc::AT_FDCWD, path.as_ptr(), flags) == 0
    })
}

/// Runs `calls` in a child whose only descriptor is `kept`, as 0. It must make nothing but system calls - other threads may have
/// held locks - and be true unless `errno` says why not.
fn apart(kept: Option<BorrowedFd<'_>>, calls: impl FnOnce() -> bool) -> io::Result<()> {
    let kept = kept.map(|fd| fd.as_raw_fd());
    // SAFETY: the child makes system calls alone, which is all that it may where other threads ran, and ends.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: in the child, on its own descriptors.
        0 => unsafe {
            let done = kept.is_none_or(|fd| fd == 0 || libc::dup2(fd, 0) == 0) && {
                let from = i32::from(kept.is_some());
                if libc::syscall(libc::SYS_close_range, from, libc::c_uint::MAX, 0) != 0 {
                    (from..DESCRIPTORS_AT_START).for_each(|fd| _ = libc::close(fd)); // before Linux 5.9
                }
                calls()
            };
            libc::_exit(if done { 0 } else { *libc::__errno_location() })
        },
        // SAFETY: a positive result of fork is a process id.
        child => unsafe { Pid::from_raw_unchecked(child) },
    };
    let status = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_there_is_told_here() {
        look_into(Path::new("/")).unwrap();
        assert_eq!(look_into(Path::new("/none/here")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let file = std::fs::File::open("/").unwrap();
        // It is no detached mount.
        use std::os::fd::AsFd;
        assert!(put_on(file.as_fd(), Path::new("/none/here")).is_err());
    }
}
