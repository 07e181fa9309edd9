//! Memory for fetches, reused because new pages cost as much as the copy into them.
//!
//! 1. A buffer is lent to one fetch, and returns when nobody reads its content any more.
//! 2. At most [`SERVER_FREE_BUFFERS`] are kept free. All are released when nothing was fetched for a while, and with
//!    the last file that is read ahead.

use std::sync::Arc;

use concurrency::Mutex;
use wire::limits::DATA_BYTES_MAX;

use crate::limits::SERVER_FREE_BUFFERS;

/// Free buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// Memory for one fetch.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    /// Pool to which the buffer returns; `None` if it is too small to be kept.
    home: Option<Arc<Buffers>>,
}

impl Buffers {
    /// Returns memory for `len` bytes, at most as many as a message holds. The content is arbitrary.
    pub fn take(self: &Arc<Buffers>, len: usize) -> Buffer {
        let whole = DATA_BYTES_MAX as usize;
        // A reused buffer must be at least half used.
        if len <= whole / 2 {
            return Buffer { bytes: vec![0; len], len, home: None };
        }
        let free = self.0.lock().pop();
        Buffer { bytes: free.unwrap_or_else(|| vec![0; whole]), len, home: Some(Arc::clone(self)) }
    }

    /// Releases the free buffers.
    pub fn clear(&self) {
        let free = std::mem::take(&mut *self.0.lock());
        drop(free); // outside the lock
    }

    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.0.lock().len()
    }
}

impl Buffer {
    /// The whole buffer.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Shortens the buffer to at most `len` bytes.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        let mut free = home.0.lock();
        if free.len() < SERVER_FREE_BUFFERS {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nobody_has_it_and_few_wait() {
        let buffers = Arc::new(Buffers::default());
        let whole = DATA_BYTES_MAX as usize;
        let mut first = buffers.take(whole);
        let place = first.room().as_ptr();
        first.room().fill(7);
        drop(first);
        assert_eq!(buffers.free(), 1);
        let mut again = buffers.take(whole - 1);
        assert_eq!((again.room().as_ptr(), again.room().len(), buffers.free()), (place, whole - 1, 0));
        again.cut(10);
        assert_eq!(again.as_ref(), [7; 10]);
        let many: Vec<Buffer> = (0..2 * SERVER_FREE_BUFFERS).map(|_| buffers.take(whole)).collect();
        drop((again, many));
        assert_eq!(buffers.free(), SERVER_FREE_BUFFERS);
        drop(buffers.take(whole / 2));
        assert_eq!(buffers.free(), SERVER_FREE_BUFFERS, "a small one has its own memory");
    }
}
