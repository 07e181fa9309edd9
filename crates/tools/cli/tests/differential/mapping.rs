//! Mapping of a file that is accessed only through system calls: a page past the end of the file then gives `EFAULT`
//! instead of killing the test.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, fstat, memfd_create};
use rustix::io::Errno;

/// Properties of the mapping to make.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub at: u64,
    pub len: usize,
    pub shared: bool,
    pub writable: bool,
}

/// Mapping, which outlives the descriptor it was made from.
pub struct Mapping {
    address: *mut libc::c_void,
    wanted: Wanted,
    /// The file, without being an open of it.
    file: OwnedFd,
    /// Memory file through which bytes are copied.
    memory: OwnedFd,
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Mapping {
    /// Calls `mmap`.
    pub fn new(fd: BorrowedFd<'_>, wanted: Wanted) -> Result<Mapping, Errno> {
        let protection = if wanted.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let sharing = if wanted.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let memory = memfd_create("differential", MemfdFlags::CLOEXEC)?;
        // SAFETY: the kernel chooses an address that nothing else uses; the pages are touched by system calls only.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), wanted.len, protection, sharing, fd.as_raw_fd(), wanted.at as libc::off_t)
        };
        if address == libc::MAP_FAILED {
            return Err(last_error());
        }
        Ok(Mapping { address, wanted, file, memory })
    }

    /// Returns the inode number of the file.
    pub fn inode(&self) -> Result<u64, Errno> {
        Ok(fstat(&self.file)?.st_ino)
    }

    /// Returns whether the file has a name.
    pub fn has_name(&self) -> Result<bool, Errno> {
        Ok(fstat(&self.file)?.st_nlink > 0)
    }

    /// Returns the part of `at..at + len` inside the mapping and the file. The rest of a last page has undefined
    /// contents.
    fn clamp(&self, at: u64, len: usize) -> Result<(usize, usize), Errno> {
        let size = fstat(&self.file)?.st_size as u64;
        let end = size.saturating_sub(self.wanted.at).min(self.wanted.len as u64) as usize;
        let at = (at as usize) % self.wanted.len;
        Ok((at, len.min(end.saturating_sub(at))))
    }

    /// Returns the mapped bytes at `at`.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let (at, len) = self.clamp(at, len)?;
        // SAFETY: the range lies in the mapping; the kernel reads it and reports pages that are not there.
        let copied = unsafe { libc::pwrite(self.memory.as_raw_fd(), self.address.byte_add(at), len, 0) };
        if copied < 0 {
            return Err(last_error());
        }
        let mut bytes = vec![0; copied as usize];
        let read = rustix::io::pread(&self.memory, &mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Stores `bytes` at `at`. Returns the number stored.
    pub fn store(&self, at: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let (at, len) = self.clamp(at, bytes.len())?;
        rustix::io::pwrite(&self.memory, bytes, 0)?;
        // SAFETY: the range lies in the mapping, which no reference points into; the kernel reports pages that are
        // not there or not writable.
        let stored = unsafe { libc::pread(self.memory.as_raw_fd(), self.address.byte_add(at), len, 0) };
        if stored < 0 { Err(last_error()) } else { Ok(stored as usize) }
    }

    /// Calls `msync`.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is the mapping.
        let result = unsafe { libc::msync(self.address, self.wanted.len, libc::MS_SYNC) };
        if result < 0 { Err(last_error()) } else { Ok(()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it.
        unsafe { libc::munmap(self.address, self.wanted.len) };
    }
}
