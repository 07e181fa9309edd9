//! Bytes of mappings on their way into a file without a copy in between.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Mapping;

/// Bytes of mappings that one call of the kernel writes one after another. Programs may change them until then, as with
/// [`Memory::read`](crate::Memory::read).
#[derive(Debug, Default)]
pub struct Gather<'a> {
    parts: Vec<libc::iovec>,
    bytes: usize,
    mappings: PhantomData<&'a Mapping>,
}

impl<'a> Gather<'a> {
    /// Adds `len` bytes from `at` of `mapping`, within which they must be. The kernel takes 1,024 parts.
    pub fn add(&mut self, mapping: &'a Mapping, at: usize, len: usize) {
        let start = mapping.check(at, len);
        if len > 0 {
            self.parts.push(libc::iovec { iov_base: start.cast(), iov_len: len });
            self.bytes += len;
        }
    }

    /// Writes them at `offset` of `to`; whether all are there. If not, any part of them may be, whatever went wrong: for one of a mapping
    /// whose file was cut the kernel answers `EFAULT`, and sends no signal.
    pub fn write(&self, to: BorrowedFd<'_>, offset: u64) -> bool {
        let Ok(offset) = libc::off_t::try_from(offset) else { return false };
        // SAFETY: each part lies inside of a mapping (`add`) that lives as long as `'a`, and is mapped until then. The kernel only reads
        // there, and no reference to the shared bytes is made.
        let written = unsafe { libc::pwritev(to.as_raw_fd(), self.parts.as_ptr(), self.parts.len() as i32, offset) };
        usize::try_from(written).is_ok_and(|written| written == self.bytes)
    }
}
