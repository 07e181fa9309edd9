//! Leases as a question to the kernel: can anybody still write, or read, a local file?
//!
//! RELEASE comes at close although a mapping lives on, and nothing else tells of it. A read lease is refused while any
//! writable descriptor or shared writable mapping of the file exists; a write lease while any other use exists.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use types::HasErrno;

/// Kind of use that must not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nobody {
    /// No writable descriptor or mapping.
    Writes,
    /// No other descriptor or mapping at all; one with `O_PATH` is none.
    Uses,
}

/// Returns true if there is no such use. `fd` is the only descriptor of ours that could be in the way, and a read-only one for
/// [`Nobody::Writes`]. The lease is released at once: an open that met it would wait for us.
///
/// Errors: those of fcntl(2), such as `EINVAL` on a file system without leases. The process must ignore SIGIO
/// ([`ignore_signals`]).
pub fn probe(fd: BorrowedFd<'_>, nobody: Nobody) -> io::Result<bool> {
    let kind = match nobody {
        Nobody::Writes => libc::F_RDLCK,
        Nobody::Uses => libc::F_WRLCK,
    };
    // SAFETY: fcntl on a descriptor that is borrowed for the call; no pointer is passed.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) } != 0 {
        let error = io::Error::last_os_error();
        return match error.errno() {
            Some(libc::EAGAIN) => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY: as above.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    Ok(true)
}

/// Ignores SIGIO, which the kernel sends to the holder of a broken lease and which kills by default.
pub fn ignore_signals() {
    // SAFETY: SIG_IGN is a valid disposition; nothing in this process waits for SIGIO.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::fd::AsFd;

    #[test]
    fn a_writer_refuses_the_read_lease_and_a_reader_the_write_lease() {
        ignore_signals();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let ours = std::fs::File::open(&path).unwrap();
        assert!(probe(ours.as_fd(), Nobody::Writes).unwrap());
        assert!(probe(ours.as_fd(), Nobody::Uses).unwrap());
        let reader = std::fs::File::open(&path).unwrap();
        assert!(probe(ours.as_fd(), Nobody::Writes).unwrap());
        assert!(!probe(ours.as_fd(), Nobody::Uses).unwrap());
        drop(reader);
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(!probe(ours.as_fd(), Nobody::Writes).unwrap());
        drop(writer);
        assert!(probe(ours.as_fd(), Nobody::Writes).unwrap());
    }

    #[test]
    fn a_writable_mapping_refuses_the_read_lease_after_its_descriptor_is_closed() {
        ignore_signals();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [0; 4096]).unwrap();
        let ours = std::fs::File::open(&path).unwrap();
        let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: a fresh mapping of 4096 bytes of a file that long, unmapped below and never dereferenced.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                writer.as_raw_fd(),
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        drop(writer);
        assert!(!probe(ours.as_fd(), Nobody::Writes).unwrap());
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(map, 4096) };
        assert!(probe(ours.as_fd(), Nobody::Writes).unwrap());
    }
}
