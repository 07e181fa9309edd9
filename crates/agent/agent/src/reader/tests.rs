//! Tests of advice: how much a program's announced reads fetch, and where nothing is fetched.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use config::PolicySet;
use file_cache::{Foresee, SeekFor, WriteResult};
use types::Version;

use super::*;
use crate::burst_buffer::DataVersion;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 1 << 30;

/// A file of which nothing is cached, with a share of the readers' common memory.
#[derive(Default)]
struct Shared {
    share: u64,
    local: bool,
    /// Bytes for which the share was requested.
    counted: AtomicU64,
    /// Ranges to be fetched.
    wanted: Mutex<Vec<ByteRange>>,
    /// Number of fetches begun.
    fetches: AtomicU64,
}

impl OpenData for Shared {
    fn is_remote(&self) -> bool {
        !self.local
    }
    fn ahead_share(&self, bytes: u64) -> u64 {
        self.counted.store(bytes, Relaxed);
        self.share
    }
    fn read_ahead(&self, _: ByteRange, foresee: Foresee<'_>) {
        self.wanted.lock().extend(foresee(SIZE, Fared::Miss, &mut |range| vec![range]));
    }
    fn fetch(&self) {
        self.fetches.fetch_add(1, Relaxed);
    }

    // The rest is not called.
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
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }
    fn write_at(&self, data: &[u8], offset: u64, _: bool) -> io::Result<WriteResult> {
        Ok(WriteResult { offset, written: data.len() })
    }
    fn write_acknowledged(&self, _: &[u8], _: u64, _: types::Timestamp) -> io::Result<()> {
        Ok(())
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

fn reader(rule: &str) -> ReadObserver {
    ReadObserver::new(&PolicySet::parse([rule]).unwrap().apply(Policy::default()))
}

#[test] // S47
fn of_what_a_program_will_need_no_more_is_fetched_than_its_file_may_have_and_its_share() {
    let reader = reader("read_ahead=8MiB");
    // Columns: share, start and length of the advice, bytes fetched.
    for (share, start, len, fetched) in [
        (u64::MAX, 0, 0, 8 * MIB),
        (3 * MIB, 0, 0, 3 * MIB),
        (3 * MIB, 5 * MIB, 100 * MIB, 3 * MIB),
        (3 * MIB, 7, MIB, MIB),
        (20 * MIB, SIZE - MIB, 0, MIB),
        (0, 0, 0, 0),
        (u64::MAX, MIB, 0, 8 * MIB), // with fewer readers, the share is larger
    ] {
        let file = Shared { share, ..Shared::default() };
        reader.advise(&file, advice::WILL_NEED, start, len).unwrap();
        let wanted = file.wanted.lock();
        let expected: Vec<_> = (fetched > 0).then(|| ByteRange::at(start, fetched)).into_iter().collect();
        assert_eq!(*wanted, expected, "a share of {share}, {len} bytes from {start}");
        assert_eq!(file.fetches.load(Relaxed), 1);
        // The request counts as a read of no more than its budget.
        let counted = if len == 0 { 8 * MIB } else { len.min(8 * MIB) };
        assert_eq!(file.counted.load(Relaxed), counted);
    }
}

#[test] // S47
fn what_a_program_will_need_is_refused_where_nothing_is_fetched() {
    let errno = |reader: &ReadObserver, file: &Shared, start| {
        let told = reader.advise(file, advice::WILL_NEED, start, 0);
        assert!(file.wanted.lock().is_empty());
        told.unwrap_err().raw_os_error()
    };
    let (remote, local) = (Shared::default(), Shared { local: true, ..Shared::default() });
    assert_eq!(errno(&reader("read_ahead=8MiB"), &local, 0), Some(libc::EOPNOTSUPP));
    assert_eq!(errno(&reader("read_ahead=off"), &remote, 0), Some(libc::EOPNOTSUPP));
    assert_eq!(errno(&reader("read_ahead=8MiB"), &remote, 1 << 63), Some(libc::EINVAL));
}
