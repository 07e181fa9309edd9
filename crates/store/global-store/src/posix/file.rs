//! Data access to one open file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{self, FallocateFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use types::{ByteRange, Timestamp};

use super::attributes_of;
use crate::calls::{Store, StoreCall};
use crate::limits::ZERO_BYTES;
use crate::{StoreAttributes, StoreFile};

/// An open file. All calls give their offset, so sharing the descriptor's file position with others is safe.
pub(super) struct PosixFile {
    calls: Store,
    file: File,
    /// Whether the file accepts writes only at its end.
    appends: bool,
}

impl PosixFile {
    pub(super) fn new(calls: Store, file: File, appends: bool) -> PosixFile {
        PosixFile { calls, file, appends }
    }

    fn write_zeros(&self, range: ByteRange) -> io::Result<()> {
        let zeros = vec![0; ZERO_BYTES.min(range.len() as usize)];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(zeros.len() as u64) as usize;
            self.file.write_all_at(&zeros[..len], at)?;
            at += len as u64;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(fs::fstat(&self.file)?.st_size as u64)
    }
}

impl StoreFile for PosixFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.calls.call(StoreCall::Read, || self.read_at_below(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.calls.call(StoreCall::Write, || self.write_at_below(data, offset))
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<ByteRange>> {
        self.calls.call(StoreCall::Read, || self.next_data_below(offset))
    }

    fn punch(&self, range: ByteRange) -> io::Result<()> {
        self.calls.call(StoreCall::Write, || self.punch_below(range))
    }

    fn allocate(&self, mode: u32, range: ByteRange) -> io::Result<()> {
        self.calls.call(StoreCall::Write, || self.allocate_below(mode, range))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.calls.call(StoreCall::Write, || self.set_len_below(len))
    }

    fn set_mtime(&self, mtime: Timestamp) -> io::Result<()> {
        self.calls.call(StoreCall::Change, || self.set_mtime_below(mtime))
    }

    fn attributes(&self) -> io::Result<StoreAttributes> {
        self.calls.call(StoreCall::Attributes, || self.attributes_below())
    }

    fn sync(&self) -> io::Result<()> {
        self.calls.call(StoreCall::Sync, || self.sync_below())
    }

    fn begin_sync(&self, range: ByteRange) {
        self.calls.call(StoreCall::Sync, || self.begin_sync_below(range))
    }

    fn leave_behind(&self, range: ByteRange) -> io::Result<()> {
        self.calls.call(StoreCall::Sync, || self.leave_behind_below(range))
    }
}

impl PosixFile {
    fn read_at_below(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at_below(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.appends && offset != self.size()? {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.file.write_all_at(data, offset)
    }

    fn next_data_below(&self, offset: u64) -> io::Result<Option<ByteRange>> {
        let start = match fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let all = ByteRange::new(offset, self.size()?);
                return Ok((!all.is_empty()).then_some(all));
            }
            Err(error) => return Err(error.into()),
        };
        match fs::seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) => Ok(Some(ByteRange::new(start, end))),
            // The file was truncated between the two calls.
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn punch_below(&self, range: ByteRange) -> io::Result<()> {
        let range = range.intersection(&ByteRange::new(0, self.size()?));
        if range.is_empty() {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fs::fallocate(&self.file, mode, range.start, range.len()) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.write_zeros(range),
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn allocate_below(&self, mode: u32, range: ByteRange) -> io::Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode);
        loop {
            match fs::fallocate(&self.file, mode, range.start, range.len()) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn set_len_below(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn set_mtime_below(&self, mtime: Timestamp) -> io::Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
        let mtime = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
        Ok(fs::futimens(&self.file, &Timestamps { last_access: omit, last_modification: mtime })?)
    }

    fn attributes_below(&self) -> io::Result<StoreAttributes> {
        attributes_of(self.file.as_fd())
    }

    fn sync_below(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn begin_sync_below(&self, range: ByteRange) {
        // SAFETY: a call on an open descriptor, without pointers. Errors are ignored: `sync` writes whatever this call
        // could not.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                range.start as libc::off64_t,
                range.len() as libc::off64_t,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
    }

    fn leave_behind_below(&self, range: ByteRange) -> io::Result<()> {
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let (fd, at, len) = (self.file.as_raw_fd(), range.start as libc::off64_t, range.len() as libc::off64_t);
        // SAFETY: a call on an open descriptor, without pointers.
        if unsafe { libc::sync_file_range(fd, at, len, all) } != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // The store does not support this: `sync` does all the work, and nothing can be dropped from the page
                // cache.
                Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::ESPIPE) => Ok(()),
                _ => Err(error),
            };
        }
        // A hint. Later reads of the file use the replica.
        let _ = fs::fadvise(&self.file, range.start, std::num::NonZeroU64::new(range.len()), fs::Advice::DontNeed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_serve_where_a_store_has_no_holes() {
        let file = PosixFile::new(Store::register(), tempfile::tempfile().unwrap(), false);
        let len = 3 * ZERO_BYTES as u64;
        file.write_at(&vec![7; len as usize], 0).unwrap();
        file.write_zeros(ByteRange::new(5, len - 5)).unwrap();
        let mut bytes = vec![1; len as usize + 1];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap() as u64, len);
        assert!(bytes[5..len as usize - 5].iter().all(|&byte| byte == 0));
        assert_eq!((&bytes[..5], &bytes[len as usize - 5..len as usize]), (&[7; 5][..], &[7; 5][..]));
    }
}
