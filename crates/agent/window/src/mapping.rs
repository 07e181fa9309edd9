//! A file of the window directory in this process's memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use crc_fast::Digest;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use crate::limits::COPY_CHUNK;
use crate::memory::Memory;
use crate::persist::WriteBack;
use crate::sync::AtomicU64;

/// What keeps the bytes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// DRAM behind a tmpfs: survives processes, not the machine.
    Volatile,
    /// Persistent memory behind a DAX file system; the kernel is asked to confirm it (`MAP_SYNC`).
    Persistent,
    /// Volatile, with the instructions of persistent memory: what they cost, without the device.
    Emulated,
}

/// A shared, writable mapping of a whole file. Unmapped when dropped.
///
/// The file must not shrink while it is mapped: the kernel answers an access past its end with SIGBUS. Whoever hands the
/// descriptor to a program decides whether that can happen.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    write_back: Option<WriteBack>,
    file: File,
}

// SAFETY: the mapping belongs to the value until drop, and all access goes through atomics or through copies whose races
// the `Memory` contract allows.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates the file `path` (mode 0600, it must not exist) with `len` zero bytes and maps it. Errors: those of open,
    /// fallocate (a full file system is found here, not by a signal later) and mmap; `EOPNOTSUPP` when `Persistent` is asked
    /// of a medium or processor without it.
    pub fn create(path: &Path, len: usize, medium: Medium) -> io::Result<Mapping> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
        Mapping::of(file, medium)
    }

    /// Maps the existing file `path`. Errors: those of open and mmap; `EINVAL` for an empty file.
    pub fn open(path: &Path, medium: Medium) -> io::Result<Mapping> {
        Mapping::of(OpenOptions::new().read(true).write(true).open(path)?, medium)
    }

    /// Maps an open file, as a program does that was handed the descriptor.
    pub fn of(file: File, medium: Medium) -> io::Result<Mapping> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let flags = match medium {
            Medium::Volatile | Medium::Emulated => MapFlags::SHARED,
            Medium::Persistent => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
        };
        let write_back = match medium {
            Medium::Volatile => None,
            Medium::Persistent | Medium::Emulated => {
                Some(WriteBack::detect().ok_or(io::Error::from_raw_os_error(libc::EOPNOTSUPP))?)
            }
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags | MapFlags::POPULATE, &file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len, write_back, file })
    }

    /// Whether a flushed and fenced byte survives the machine.
    pub fn flushes(&self) -> bool {
        self.write_back.is_some()
    }

    fn check(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "bytes {at}+{len} of a mapping of {}", self.len);
        // SAFETY: `at` was just found to be inside the mapping or at its end.
        unsafe { self.base.as_ptr().add(at) }
    }

    #[cfg(target_endian = "little")]
    fn low_half(&self, at: usize) -> &futex::AtomicU32Alias {
        let word = self.check(at, 8);
        assert!(at.is_multiple_of(8), "a word at {at}");
        // SAFETY: inside the mapping, aligned, and on little-endian machines the first four bytes of the word; the kernel
        // compares it as an atomic, nobody in the process does.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(word.cast()) }
    }
}
