//! Prediction of an open file's reads: the detector of the window crate, for files being staged in and for files at a
//! server.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::Mutex;
use config::Policy;
use data_store::{Fared, OpenData, ReadNotice, read_ahead_bytes};
use types::ByteRange;
use window::attach::advice;
use window::detector::{Advice, Detector, RequestOutcome};

/// Data found by a read.
pub enum ReadData {
    /// Number of bytes copied to the caller's buffer.
    Copied(usize),
    /// Parts of memory that hold the bytes.
    InPlace(Vec<Box<dyn AsRef<[u8]> + Send + Sync>>),
}

/// Observer of the reads of one open file.
pub(crate) struct ReadObserver {
    /// Read-ahead budget, bytes; 0: none.
    budget: u64,
    /// Whether the program switched read-ahead off.
    off: AtomicBool,
    /// Created by the first read of a file that is not complete in this node's burst buffer.
    detector: Mutex<Option<Box<Detector>>>,
}

impl ReadObserver {
    /// Creates an observer with the policy of the file's directory.
    pub fn new(policy: &Policy) -> ReadObserver {
        ReadObserver { budget: read_ahead_bytes(policy), off: AtomicBool::new(false), detector: Mutex::new(None) }
    }

    /// Notes that `range` is about to be read.
    pub fn reads(&self, data: &dyn OpenData, range: ByteRange) {
        if self.budget == 0 || self.off.load(Ordering::Relaxed) {
            return;
        }
        data.read_ahead(range, None, &mut |size, fared, share, absent| {
            let outcome = match fared {
                Fared::Hit => RequestOutcome::Hit,
                Fared::Late => RequestOutcome::Late,
                Fared::Miss => RequestOutcome::Miss,
            };
            let mut detector = self.detector.lock();
            let detector = self.made(&mut detector);
            detector.set_budget(self.budget.min(share));
            let request = range.intersection(&ByteRange::new(0, size));
            let following = detector.read(request, outcome, size, absent);
            // In a strided pattern, the detector may count the range about to be read as spent.
            let spent = detector.spent(request).filter(|spent| spent.end <= request.start && !spent.is_empty());
            ReadNotice { following, spent }
        });
    }

    fn made<'a>(&self, detector: &'a mut Option<Box<Detector>>) -> &'a mut Detector {
        detector.get_or_insert_with(|| Box::new(Detector::new(self.budget)))
    }

    /// Turns read-ahead off or on again.
    pub fn switch(&self, off: bool) {
        self.off.store(off, Ordering::Relaxed);
    }

    /// Applies a program's advice on future reads; see [`crate::OpenFile::advise`].
    pub fn advise(&self, data: &dyn OpenData, said: u32, start: u64, len: u64) -> io::Result<()> {
        let said = match said {
            advice::NORMAL => Advice::Normal,
            advice::RANDOM => Advice::Random,
            advice::SEQUENTIAL => Advice::Sequential,
            advice::WILL_NEED => return self.will_need(data, start, len),
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        if self.budget > 0 {
            self.made(&mut self.detector.lock()).advise(said);
        }
        Ok(())
    }

    /// Fetches bytes that a program will need. `EOPNOTSUPP` for data on this node, which the kernel reads into its page
    /// cache.
    fn will_need(&self, data: &dyn OpenData, start: u64, len: u64) -> io::Result<()> {
        let unsupported = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        if self.budget == 0 {
            return Err(unsupported());
        }
        if start > i64::MAX as u64 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let end = if len == 0 { u64::MAX } else { start.saturating_add(len) };
        // The request counts as a read. Memory is shared with all readers.
        let wanted = end.saturating_sub(start).min(self.budget);
        let fetched = data.read_ahead(ByteRange::at(start, 0), Some(wanted), &mut |size, _, share, absent| {
            let mut detector = self.detector.lock();
            let detector = self.made(&mut detector);
            detector.set_budget(self.budget.min(share));
            let following = detector.will_need(ByteRange::new(start, end), size, absent);
            ReadNotice { following, spent: None }
        });
        if fetched { Ok(()) } else { Err(unsupported()) }
    }
}

#[cfg(test)]
mod tests;
