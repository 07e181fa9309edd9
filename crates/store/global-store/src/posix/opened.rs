//! A small file whose content is read ahead while other requests about it are sent.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::UNIX_EPOCH;

use rustix::fs::Advice;
use types::Timestamp;

use super::{anchor, attributes_in_memory};
use crate::StoreAttributes;
use crate::calls::{Store, StoreCall};
use crate::limits::{SETTLED, SETTLED_COARSE};

/// A file that was opened for reading.
pub struct OpenedForReading {
    /// The open file.
    pub(super) file: File,
    /// Attributes from before the read-ahead started, until they are taken as the result of a `stat`. Afterwards the
    /// store's client may not know the access time and would have to request it.
    pub(super) before: Option<StoreAttributes>,
}

impl OpenedForReading {
    /// Opens a file and starts reading ahead without waiting, if it has at most `read_max` bytes. A file that has just
    /// changed is not read ahead, because another change might not update its times.
    pub(super) fn new(calls: Store, fd: BorrowedFd, read_max: u64) -> io::Result<OpenedForReading> {
        let before = calls.call(StoreCall::Attributes, || attributes_in_memory(fd))?;
        let file = calls.call(StoreCall::Open, || anchor::open_reading(fd))?;
        let comes = (1..=read_max).contains(&before.fingerprint.size)
            && is_settled(before.fingerprint.ctime)
            && calls.call(StoreCall::Read, || rustix::fs::fadvise(&file, 0, None, Advice::WillNeed)).is_ok();
        Ok(OpenedForReading { file, before: comes.then_some(before) })
    }
}

/// Returns whether another change from now on would certainly give the file a new time.
fn is_settled(changed: Timestamp) -> bool {
    let Ok(now) = concurrency::wall_clock().duration_since(UNIX_EPOCH) else { return false };
    let changed_ns = i128::from(changed.seconds) * 1_000_000_000 + i128::from(changed.nanos);
    let rest = if changed.nanos == 0 { SETTLED_COARSE } else { SETTLED };
    now.as_nanos() as i128 - changed_ns > rest.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(seconds: i64, nanos: u32) -> Timestamp {
        let now = concurrency::wall_clock().duration_since(UNIX_EPOCH).unwrap();
        Timestamp { seconds: now.as_secs() as i64 - seconds, nanos }
    }

    #[test]
    fn a_file_that_changed_just_now_is_not_settled() {
        let now = concurrency::wall_clock().duration_since(UNIX_EPOCH).unwrap();
        assert!(!is_settled(Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }));
        assert!(is_settled(ago(2, 1)));
        assert!(!is_settled(ago(1, 0)), "times of whole seconds");
        assert!(is_settled(ago(4, 0)));
        assert!(!is_settled(ago(-100, 1)), "a clock that runs ahead");
    }
}
