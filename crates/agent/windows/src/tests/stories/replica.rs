//! The replica of a story.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::{Mutex, below};
use data_store::{AcknowledgedBytes, Removed, WindowFile, WindowTarget};
use types::Timestamp;

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

impl Replica {
    /// Returns the replica as the file to which windows are applied.
    pub fn file(self: &Arc<Replica>) -> WindowFile {
        let target = Box::new(Applied(Arc::clone(self)));
        WindowFile { target, part_bytes: u64::MAX, is_remote: false, write_back: None }
    }
}

struct Applied(Arc<Replica>);

impl WindowTarget for Applied {
    fn write(&self, parts: &[(u64, AcknowledgedBytes<'_>)], _: Timestamp) -> io::Result<Option<u64>> {
        for (offset, bytes) in parts {
            let AcknowledgedBytes::Copied(data) = bytes else { return Ok(None) };
            let done = self.0.put(data, *offset);
            if done.is_err() && below(2) == 0 {
                // There was room for a part of the data.
                self.0.lay(&data[..data.len() / 3], *offset);
            }
            done?;
        }
        Ok(Some(0))
    }
    fn sync(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn removed(&self) -> Removed {
        Removed::No
    }
    fn report_loss(&self) -> io::Result<()> {
        Ok(())
    }
}
