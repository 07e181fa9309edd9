//! The replica of a story.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Mutex, below};
use file_cache::{SeekFor, WriteResult};
use types::{Timestamp, Version};

use crate::burst_buffer::{DataVersion, OpenData};

/// The burst buffer's copy of the file.
#[derive(Default)]
pub(super) struct Replica {
    bytes: Mutex<Vec<u8>>,
    full: AtomicBool,
    was_full: AtomicBool,
}

impl Replica {
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
        self.was_full.fetch_or(full, Ordering::Relaxed);
    }

    /// Whether an operation may have failed because the burst buffer was full.
    pub fn was_full(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    pub fn put(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.lay(data, offset);
        Ok(())
    }

    fn lay(&self, data: &[u8], offset: u64) {
        let mut bytes = self.bytes.lock();
        let end = offset as usize + data.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[offset as usize..end].copy_from_slice(data);
    }

    pub fn cut(&self, len: u64) {
        self.bytes.lock().truncate(len as usize);
    }

    pub fn register(&self, at: u64) -> u64 {
        let mut register = [0; 8];
        self.get(&mut register, at);
        u64::from_le_bytes(register)
    }

    pub fn get(&self, out: &mut [u8], at: u64) -> usize {
        let bytes = self.bytes.lock();
        let there = &bytes[bytes.len().min(at as usize)..bytes.len().min(at as usize + out.len())];
        out[..there.len()].copy_from_slice(there);
        there.len()
    }
}

impl OpenData for Arc<Replica> {
    fn data(&self) -> DataVersion {
        DataVersion::There(Default::default())
    }
    fn version(&self) -> Option<Version> {
        None
    }
    fn backing(&self) -> Option<Arc<OwnedFd>> {
        None
    }
    fn use_passthrough(&self) -> bool {
        false
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.get(out, offset))
    }
    fn write_at(&self, data: &[u8], offset: u64, _: bool) -> io::Result<WriteResult> {
        self.put(data, offset).map(|()| WriteResult { offset, written: data.len() })
    }
    fn write_acknowledged(&self, data: &[u8], offset: u64, _: Timestamp) -> io::Result<()> {
        let done = self.put(data, offset);
        if done.is_err() && below(2) == 0 {
            // There was room for a part of the data.
            self.lay(&data[..data.len() / 3], offset);
        }
        done
    }
    fn is_unshared(&self) -> bool {
        true
    }
    fn is_last_of_removed(&self) -> bool {
        false
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn fallocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn seek(&self, offset: u64, _: SeekFor) -> io::Result<u64> {
        Ok(offset)
    }
    fn sync(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
