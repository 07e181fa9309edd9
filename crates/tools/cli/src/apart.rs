//! System calls through our own mount, made by a child process that has none of this process's descriptors.
//!
//! An agent that is killed while it waits for its own answer would wait for ever: the kernel withdraws no request
//! that was read. Everybody on the mount would wait too, since the connection ends only with the agent's descriptors.
//! So a child without them waits instead, and the end of the connection releases it.

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::limits::{ANSWER_BYTES, DESCRIPTORS_AT_START, SILENCE};

pub fn look_into(dir: &Path) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: system calls alone, on a C string and a status that live on the caller's stack.
    apart(None, || unsafe {
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        libc::stat(path.as_ptr(), status.as_mut_ptr()) == 0
    })
}

/// Attaches a detached mount to a directory.
pub fn put_on(mount: BorrowedFd<'_>, dir: &Path) -> io::Result<()> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let (empty, flags) = (c"", libc::MOVE_MOUNT_F_EMPTY_PATH);
    // SAFETY: one system call, on C strings that live through it; the mount is the child's descriptor 0.
    apart(Some(mount), || unsafe {
        libc::syscall(libc::SYS_move_mount, 0, empty.as_ptr(), libc::AT_FDCWD, path.as_ptr(), flags) == 0
    })
}

/// Reads an attribute of a directory, at most [`ANSWER_BYTES`] long. Errors: `TimedOut` if the file system's server
/// does not answer.
pub fn attribute(dir: &Path, name: &CStr) -> io::Result<Vec<u8>> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let (answer, asks) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: system calls alone, on C strings and a buffer that live on the stack; the pipe is the child's descriptor 0.
    let child = start(Some(asks.as_fd()), || unsafe {
        let mut value = [0_u8; ANSWER_BYTES];
        let len = libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len());
        len >= 0 && libc::write(0, value.as_ptr().cast(), len as usize) == len
    })?;
    drop(asks);
    let patience = Timespec { tv_sec: SILENCE.as_secs() as i64, tv_nsec: 0 };
    if !matches!(poll(&mut [PollFd::new(&answer, PollFlags::IN)], Some(&patience)), Ok(1..)) {
        // The child ends when its request is answered, or with the mount.
        let _ = rustix::process::kill_process(child, Signal::KILL);
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut value = Vec::new();
    std::fs::File::from(answer).read_to_end(&mut value)?;
    end(child).map(|()| value)
}

/// Runs `calls` in a child whose only descriptor is `kept`, as number 0, and waits for its end. `calls` must only
/// make system calls, since other threads may have held locks. If it returns false, `errno` is the error.
fn apart(kept: Option<BorrowedFd<'_>>, calls: impl FnOnce() -> bool) -> io::Result<()> {
    end(start(kept, calls)?)
}

/// Starts such a child and returns its process id.
fn start(kept: Option<BorrowedFd<'_>>, calls: impl FnOnce() -> bool) -> io::Result<Pid> {
    let kept = kept.map(|fd| fd.as_raw_fd());
    // SAFETY: the child makes system calls alone, which is all that it may where other threads ran, and ends.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
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
        child => Ok(unsafe { Pid::from_raw_unchecked(child) }),
    }
}

/// Waits for the child's end. Errors: the one that the child reported.
fn end(child: Pid) -> io::Result<()> {
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
        // An ordinary directory is not a detached mount.
        assert!(put_on(file.as_fd(), Path::new("/none/here")).is_err());
    }
}
