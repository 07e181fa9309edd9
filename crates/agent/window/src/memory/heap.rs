//! Memory of this process only.

use std::time::Duration;

use super::Memory;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// Words on the heap: for tests, for `loom`, and to examine a copy of a ring.
#[derive(Debug)]
pub struct Heap(Box<[AtomicU64]>);

impl Heap {
    /// Makes `len` zero bytes, a multiple of 8.
    pub fn zeroed(len: usize) -> Heap {
        assert!(len.is_multiple_of(8), "{len} bytes are no whole words");
        Heap((0..len / 8).map(|_| AtomicU64::new(0)).collect())
    }

    /// Makes memory with the bytes of `image`, for instance of a file.
    pub fn from_image(image: &[u8]) -> Heap {
        let heap = Heap::zeroed(image.len());
        heap.write(0, image);
        heap
    }

    /// Returns a copy of all bytes.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.len()];
        self.read(0, &mut image);
        image
    }

    /// Returns the words that `len` bytes at `at` touch: index, first byte within, number of bytes.
    fn words(at: usize, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut at, end) = (at, at + len);
        std::iter::from_fn(move || {
            let (word, from) = (at / 8, at % 8);
            let count = (8 - from).min(end - at);
            at += count;
            (count > 0).then_some((word, from, count))
        })
    }
}

impl Memory for Heap {
    fn len(&self) -> usize {
        self.0.len() * 8
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "a word at {at}");
        &self.0[at / 8]
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let mut bytes = bytes;
        for (word, from, count) in Heap::words(at, bytes.len()) {
            let (now, rest) = bytes.split_at(count);
            let mut value = [0; 8];
            if count < 8 {
                value = self.0[word].load(Relaxed).to_le_bytes();
            }
            value[from..from + count].copy_from_slice(now);
            self.0[word].store(u64::from_le_bytes(value), Relaxed);
            bytes = rest;
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let mut done = 0;
        for (word, from, count) in Heap::words(at, bytes.len()) {
            let value = self.0[word].load(Relaxed).to_le_bytes();
            bytes[done..done + count].copy_from_slice(&value[from..from + count]);
            done += count;
        }
    }

    fn flush(&self, _at: usize, _len: usize) {}

    fn fence(&self) {}

    fn sleep(&self, _at: usize, _value: u32, _timeout: Duration) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        std::thread::yield_now();
    }

    fn wake(&self, _at: usize) {}
}
