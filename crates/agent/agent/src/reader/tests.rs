//! Tests of advice: how much a program's announced reads fetch, and where nothing is fetched.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use types::HasErrno;

use config::PolicySet;
use data_store::{DataVersion, Foresee, InPlace, InPlaceAs, Passthrough, SeekFor, SyncScope, WriteResult, WriteWhere};

use super::*;

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
}

impl OpenData for Shared {
    fn read_ahead(&self, _: ByteRange, wanted: Option<u64>, foresee: Foresee<'_>) -> bool {
        if self.local {
            return false;
        }
        self.counted.store(wanted.unwrap(), Relaxed);
        let notice = foresee(SIZE, Fared::Miss, self.share, &mut |range| vec![range]);
        self.wanted.lock().extend(notice.following);
        true
    }

    // The rest is not called.
    fn data(&self) -> DataVersion {
        unreachable!()
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        unreachable!()
    }
    fn read_in_place(&self, _: ByteRange, _: InPlaceAs) -> Option<InPlace> {
        unreachable!()
    }
    fn write_at(&self, _: &[u8], _: WriteWhere) -> io::Result<WriteResult> {
        unreachable!()
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn fallocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        unreachable!()
    }
    fn seek(&self, _: u64, _: SeekFor) -> io::Result<u64> {
        unreachable!()
    }
    fn sync(&self, _: SyncScope) -> io::Result<bool> {
        unreachable!()
    }
    fn flush(&self) -> io::Result<()> {
        unreachable!()
    }
    fn passthrough(&self) -> Option<&dyn Passthrough> {
        unreachable!()
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
        told.unwrap_err().errno()
    };
    let (remote, local) = (Shared::default(), Shared { local: true, ..Shared::default() });
    assert_eq!(errno(&reader("read_ahead=8MiB"), &local, 0), Some(libc::EOPNOTSUPP));
    assert_eq!(errno(&reader("read_ahead=off"), &remote, 0), Some(libc::EOPNOTSUPP));
    assert_eq!(errno(&reader("read_ahead=8MiB"), &remote, 1 << 63), Some(libc::EINVAL));
}
