//! Mapping of a file of the window directory into this process's memory.

mod gather;
mod guard;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use crate::layout::payload_sum;
use crate::limits::ZERO_CHUNK;
use crate::memory::Memory;
use crate::persist::WriteBack;
use crate::summed_copy::copy_summed;
use crate::sync::AtomicU64;

pub use gather::Gather;

/// Medium of a window's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowMedium {
    /// DRAM behind a tmpfs: survives processes but not the machine.
    Volatile,
    /// Persistent memory behind a DAX file system; the kernel must confirm it (`MAP_SYNC`).
    Persistent,
    /// Volatile memory used with the instructions of persistent memory, to measure their cost without the device.
    Emulated,
}

impl WindowMedium {
    /// Returns the medium of files in the directory `dir`. Asks kernel and processor by a file without a name, which
    /// nobody else sees and which leaves nothing behind. Errors: those of making that file.
    pub fn of(dir: &Path) -> io::Result<WindowMedium> {
        let nameless = OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(dir);
        let mapped = nameless.and_then(|file| {
            file.set_len(PROBE_BYTES)?;
            Mapping::of(file, WindowMedium::Persistent)
        });
        match mapped.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(WindowMedium::Persistent),
            // All file systems on persistent memory have such files.
            Err((Some(libc::EOPNOTSUPP | libc::EINVAL | libc::EISDIR), _)) => Ok(WindowMedium::Volatile),
            Err((_, error)) => Err(error),
        }
    }

    /// Returns the medium's number in [`crate::attach::WindowMessage::medium`].
    pub fn number(self) -> u32 {
        match self {
            WindowMedium::Volatile => 0,
            WindowMedium::Persistent => 1,
            WindowMedium::Emulated => 2,
        }
    }

    /// Returns the medium with this number, or `None` if this version does not know it.
    pub fn numbered(number: u32) -> Option<WindowMedium> {
        [WindowMedium::Volatile, WindowMedium::Persistent, WindowMedium::Emulated]
            .into_iter()
            .find(|medium| medium.number() == number)
    }

    /// Returns whether flushed and fenced bytes are taken to survive a crash of the machine.
    pub fn is_durable(self) -> bool {
        self != WindowMedium::Volatile
    }
}

/// Size of the file by which a medium is detected, bytes.
const PROBE_BYTES: u64 = 4096;

/// Shared, writable mapping of a whole file. Unmapped when dropped.
///
/// The file must not shrink while it is mapped: the kernel answers an access past its end with SIGBUS. A process that
/// passes the descriptor to a program must decide whether that can happen, and then guard its own mapping
/// ([`Mapping::guarded`]).
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    write_back: Option<WriteBack>,
    /// Open file; `None` in a program, which must find no descriptor that it did not open.
    file: Option<File>,
    guard: Option<guard::Guard>,
}

// SAFETY: the mapping belongs to the value until drop, and all access goes through atomics or through copies whose races
// the `Memory` contract allows.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates the file `path` (mode 0600; it must not exist) with `len` zero bytes and maps it. Errors: those of open,
    /// fallocate and mmap; a full file system is found here and not by a signal later. `EOPNOTSUPP` if `Persistent` is
    /// asked of a medium or processor without it. The caller must sync the name of a persistent file.
    pub fn create(path: &Path, len: usize, medium: WindowMedium) -> io::Result<Mapping> {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // Set the size first: older kernels use huge pages (`huge=within_size`) only within it.
        file.set_len(len as u64)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
        if medium == WindowMedium::Persistent {
            // Written, not only allocated: otherwise the kernel would commit its journal at the first touch of each
            // page.
            let zeroes = vec![0; len.min(ZERO_CHUNK)];
            for at in (0..len).step_by(ZERO_CHUNK) {
                file.write_all(&zeroes[..ZERO_CHUNK.min(len - at)])?;
            }
            file.sync_all()?;
        }
        Mapping::of(file, medium)
    }

    /// Maps the existing file `path`. Errors: those of open and mmap; `EINVAL` for an empty file.
    pub fn open(path: &Path, medium: WindowMedium) -> io::Result<Mapping> {
        Mapping::of(OpenOptions::new().read(true).write(true).open(path)?, medium)
    }

    /// Maps an open file, as a program does with a descriptor that it was given.
    pub fn of(file: File, medium: WindowMedium) -> io::Result<Mapping> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // DRAM is touched only when it is filled. Allocating new memory takes longer than filling it, and meanwhile the
        // process could map nothing else.
        let flags = match medium {
            WindowMedium::Volatile => MapFlags::SHARED,
            WindowMedium::Emulated => MapFlags::SHARED | MapFlags::POPULATE,
            WindowMedium::Persistent => MapFlags::SHARED_VALIDATE | MapFlags::SYNC | MapFlags::POPULATE,
        };
        let write_back = match medium {
            WindowMedium::Volatile => None,
            WindowMedium::Persistent | WindowMedium::Emulated => {
                Some(WriteBack::detect().ok_or(io::Error::from_raw_os_error(libc::EOPNOTSUPP))?)
            }
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags, &file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len, write_back, file: Some(file), guard: None })
    }

    /// Maps a file that was handed over, and closes its descriptor.
    pub fn handed(file: OwnedFd, medium: WindowMedium) -> io::Result<Mapping> {
        let mut mapping = Mapping::of(File::from(file), medium)?;
        mapping.file = None;
        Ok(mapping)
    }

    /// Guards the mapping against truncation of its file by others. The mapping then reads as zeroes and
    /// [`Mapping::is_broken`], instead of ending the process. From the first call on, this module's handler of SIGBUS
    /// is the process's. Errors: `EMFILE` if too many are guarded.
    pub fn guarded(mut self) -> io::Result<Mapping> {
        let guard = guard::Guard::new(self.base.as_ptr() as usize, self.len);
        self.guard = Some(guard.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?);
        Ok(self)
    }

    /// Returns whether the file was found shorter than the mapping, without looking at the file ([`Memory::is_cut`]).
    pub fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(guard::Guard::is_broken)
    }

    /// Returns whether flushed and fenced bytes survive a crash of the machine.
    pub fn flushes(&self) -> bool {
        self.write_back.is_some()
    }

    fn check(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "bytes {at}+{len} of a mapping of {}", self.len);
        // SAFETY: `at` was just checked to be inside the mapping or at its end.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Returns the half of the word at `at` on which the kernel lets processes sleep.
    fn low_half(&self, at: usize) -> &AtomicU32 {
        const { assert!(cfg!(target_endian = "little"), "the low half of a word comes first") };
        let word = self.check(at, 8);
        assert!(at.is_multiple_of(8), "a word at {at}");
        // SAFETY: inside the mapping and aligned. Only the kernel compares it; the process uses the whole word.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }
}

impl Memory for Mapping {
    fn len(&self) -> usize {
        self.len
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        let word = self.check(at, 8);
        assert!(at.is_multiple_of(8), "a word at {at}");
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned; every access to header words is atomic.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.check(at, bytes.len());
        // SAFETY: inside the mapping; the caller owns these bytes of the ring. `bytes` is ordinary memory of the
        // process, and does not overlap a mapping, of which only this type hands out words.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn sum(&self, at: usize, len: usize, before: u64) -> u64 {
        let from = self.check(at, len);
        // SAFETY: inside the mapping. A hostile owner of the ring may change the bytes meanwhile, but every value of
        // `u8` is valid. A checksum neither branches on the bytes nor uses them as addresses, so its result is then any
        // number and nothing else happens. Copying the bytes first, into memory that nobody changes, would take as long
        // again as the checksum.
        payload_sum(before, unsafe { std::slice::from_raw_parts(from, len) })
    }

    fn write_summed(&self, at: usize, bytes: &[u8], before: u64) -> u64 {
        let to = self.check(at, bytes.len());
        // SAFETY: inside the mapping; the caller owns these bytes of the ring, and `bytes` overlaps no mapping.
        unsafe { copy_summed(to, bytes.as_ptr(), bytes.len(), before) }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.check(at, bytes.len());
        // SAFETY: inside the mapping. A hostile owner of the ring may change the bytes meanwhile. The copy is then any
        // mixture; every value of `u8` is valid, and no reference to the shared bytes is ever made.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), bytes.as_mut_ptr(), bytes.len()) }
    }

    fn flush(&self, at: usize, len: usize) {
        let start = self.check(at, len);
        if let Some(write_back) = self.write_back {
            write_back.lines(start, len);
        }
    }

    fn fence(&self) {
        if let Some(write_back) = self.write_back {
            write_back.fence();
        }
    }

    /// Looks at the file's size: the page in which the file was truncated can be read without a signal.
    fn is_cut(&self) -> bool {
        if let (Some(guard), Some(file)) = (&self.guard, &self.file)
            && rustix::fs::fstat(file).is_ok_and(|file| (file.st_size as u64) < self.len as u64)
        {
            guard.note_broken();
        }
        self.is_broken()
    }

    fn sleep(&self, at: usize, value: u32, timeout: Duration) {
        let timeout = futex::Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // Woken, timed out, interrupted, or changed already: in each case the caller checks again.
        let _ = futex::wait(self.low_half(at), futex::Flags::empty(), value, Some(&timeout));
    }

    fn wake(&self, at: usize) {
        // Fails only for an address that is not mapped.
        let _ = futex::wake(self.low_half(at), futex::Flags::empty(), i32::MAX as u32);
    }
}

impl AsFd for Mapping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("only a program's mapping has no descriptor, and it hands out none").as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard = None; // before the addresses can be reused
        // SAFETY: made by `mmap` with this length, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering::Relaxed;

    #[test] // S39
    fn a_guarded_mapping_outlives_the_truncation_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let ours = Mapping::create(&path, 1 << 20, WindowMedium::Volatile).unwrap().guarded().unwrap();
        ours.word(512 << 10).store(7, Relaxed);
        assert!(!ours.is_broken());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(ours.word(512 << 10).load(Relaxed), 0);
        assert!(ours.is_broken());
        ours.word(0).store(1, Relaxed); // no further signal
        let cut_within_a_page =
            Mapping::create(&dir.path().join("other"), 8192, WindowMedium::Volatile).unwrap().guarded().unwrap();
        assert!(!cut_within_a_page.is_cut());
        OpenOptions::new().write(true).open(dir.path().join("other")).unwrap().set_len(8000).unwrap();
        assert_eq!(cut_within_a_page.word(8184).load(Relaxed), 0);
        assert!(!cut_within_a_page.is_broken(), "no signal tells");
        assert!(cut_within_a_page.is_cut() && cut_within_a_page.is_broken());
    }

    #[test]
    fn a_directory_without_persistent_memory_is_found_out_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(WindowMedium::of(dir.path()).unwrap(), WindowMedium::Volatile);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(WindowMedium::of(&dir.path().join("absent")).is_err());
    }

    #[test]
    fn a_guard_ends_with_its_mapping() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..2 * crate::limits::GUARDED_MAX {
            let path = dir.path().join(number.to_string());
            Mapping::create(&path, 4096, WindowMedium::Volatile).unwrap().guarded().unwrap();
        }
    }
}
