//! Shared memory of a ring as a trait: words and bytes that several processes share.
//!
//! Production maps a file ([`crate::Mapping`]). Tests use memory that crashes at a chosen store or that `loom` watches.
//! Each implementation checks the bounds of every access, so no number read from a ring can lead outside it.

mod heap;

use std::time::Duration;

pub use heap::Heap;

use crate::layout::payload_sum;
use crate::limits::COPY_CHUNK;
use crate::sync::AtomicU64;

/// Memory shared by programs that write rings and the agent that reads them.
///
/// Offsets are bytes from the start. Panics at an access outside of `0..len()`, or to a word that is not aligned to 8.
/// The callers in this crate check values read from the ring before they use them.
pub trait Memory {
    /// Returns the size in bytes.
    fn len(&self) -> usize;

    /// Returns whether the size is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the word at `at`, a multiple of 8.
    fn word(&self, at: usize) -> &AtomicU64;

    /// Copies `bytes` to `at`. The caller must own that part of the ring: nobody else writes it.
    fn write(&self, at: usize, bytes: &[u8]);

    /// Copies at most [`COPY_CHUNK`] bytes as [`Memory::write`] does. Returns the checksum of the copied bytes,
    /// continued from `before`. A program may change its buffer during the copy; the checksum is of the bytes that
    /// arrived.
    fn write_summed(&self, at: usize, bytes: &[u8], before: u64) -> u64 {
        self.write(at, bytes);
        self.sum(at, bytes.len(), before)
    }

    /// Returns the checksum of at most [`COPY_CHUNK`] bytes at `at`, continued from `before`. If another process
    /// changes the bytes meanwhile, the result is any number.
    fn sum(&self, at: usize, len: usize, before: u64) -> u64 {
        let mut copy = [0; COPY_CHUNK];
        self.read(at, &mut copy[..len]);
        payload_sum(before, &copy[..len])
    }

    /// Copies the bytes at `at` to `bytes`. If another process changes them meanwhile, the copy is any mixture.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Starts writing `len` bytes from `at` back to the medium; complete after [`Memory::fence`]. Does nothing on a
    /// volatile medium.
    fn flush(&self, at: usize, len: usize);

    /// Waits until flushed bytes are on the medium, before any later store. Does nothing on a volatile medium.
    fn fence(&self);

    /// Returns whether the memory was found truncated: bytes read since then may be zeroes that nobody wrote.
    fn is_cut(&self) -> bool {
        false
    }

    /// Sleeps while the low half of the word at `at` is `value`, until woken or for `timeout`. May return early.
    fn sleep(&self, at: usize, value: u32, timeout: Duration);

    /// Wakes all sleepers on the word at `at`.
    fn wake(&self, at: usize);
}

impl<M: Memory + ?Sized> Memory for std::sync::Arc<M> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        (**self).word(at)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        (**self).write(at, bytes);
    }

    fn sum(&self, at: usize, len: usize, before: u64) -> u64 {
        (**self).sum(at, len, before)
    }

    fn write_summed(&self, at: usize, bytes: &[u8], before: u64) -> u64 {
        (**self).write_summed(at, bytes, before)
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        (**self).read(at, bytes);
    }

    fn flush(&self, at: usize, len: usize) {
        (**self).flush(at, len);
    }

    fn fence(&self) {
        (**self).fence();
    }

    fn is_cut(&self) -> bool {
        (**self).is_cut()
    }

    fn sleep(&self, at: usize, value: u32, timeout: Duration) {
        (**self).sleep(at, value, timeout);
    }

    fn wake(&self, at: usize) {
        (**self).wake(at);
    }
}
