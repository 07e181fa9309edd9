//! The seam under the ring: words and bytes that several processes share.
//!
//! Production maps a file ([`crate::Mapping`]); tests plug in memory that crashes at a chosen store or that `loom`
//! watches. Every access is bounds-checked by the implementation, so no number read from a ring can lead outside it.

mod heap;

use std::time::Duration;

pub use heap::Heap;

use crate::layout::payload_sum;
use crate::limits::COPY_CHUNK;
use crate::sync::AtomicU64;

/// Memory shared by the programs that write rings and the agent that reads them.
///
/// Offsets are bytes from the start. An access outside of `0..len()`, or to a word that is not aligned to 8, panics: the
/// callers of this crate check what they read from the ring before they use it.
pub trait Memory {
    /// Bytes.
    fn len(&self) -> usize;

    /// Whether there is not one byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `at`, a multiple of 8.
    fn word(&self, at: usize) -> &AtomicU64;

    /// Copies `bytes` to `at`. The caller owns that part of the ring: nobody else writes it.
    fn write(&self, at: usize, bytes: &[u8]);

    /// [`Memory::write`], and the checksum, continued from `before`, of what arrived: a program may change its buffer while it is copied,
    /// which is its own affair. At most [`COPY_CHUNK`] bytes.
    fn write_summed(&self, at: usize, bytes: &[u8], before: u64) -> u64 {
        self.write(at, bytes);
        self.sum(at, bytes.len(), before)
    }

    /// The checksum, continued from `before`, of at most [`COPY_CHUNK`] bytes at `at`. Another process may be changing them: it is then any
    /// number.
    fn sum(&self, at: usize, len: usize, before: u64) -> u64 {
        let mut copy = [0; COPY_CHUNK];
        self.read(at, &mut copy[..len]);
        payload_sum(before, &copy[..len])
    }

    /// Copies the bytes at `at` out. Another process may be changing them: the copy is then any mixture.
    fn read(&self, at: usize, bytes: &mut [u8]);

    /// Starts the way of `len` bytes from `at` to the medium; done after [`Memory::fence`]. Nothing on a volatile medium.
    fn flush(&self, at: usize, len: usize);

    /// Waits until flushed bytes are on the medium, before any later store. Nothing on a volatile medium.
    fn fence(&self);

    /// Whether its end was found cut off: what is read since then may be zeroes that nobody wrote.
    fn is_cut(&self) -> bool {
        false
    }

    /// Sleeps while the low half of the word at `at` is `value`, until woken or `timeout`. May return early.
    fn sleep(&self, at: usize, value: u32, timeout: Duration);

    /// Wakes all that sleep on the word at `at`.
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
