//! Acknowledged writes lost because their window was damaged, by its program or by a medium, and their reports.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::WindowCounters;

#[derive(Debug, Clone, Default)]
pub(crate) struct Damages(Arc<AtomicU64>);

impl Damages {
    pub fn note(&self, counters: &WindowCounters) {
        self.0.fetch_add(1, Ordering::AcqRel);
        WindowCounters::add(&counters.damaged, 1);
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Creates the notice of an open file, which reports damages found from now on.
    pub fn told(&self) -> DamageNotice {
        DamageNotice { seen: AtomicU64::new(self.count()), damages: self.clone() }
    }
}

/// Damages reported to an open file. Each is reported once to each file open at that time, as the kernel reports
/// write-back errors.
#[derive(Debug)]
pub(crate) struct DamageNotice {
    damages: Damages,
    seen: AtomicU64,
}

impl DamageNotice {
    /// Returns `EIO` if a damage was found since the last call.
    pub fn tell(&self) -> io::Result<()> {
        let now = self.damages.count();
        if self.seen.fetch_max(now, Ordering::AcqRel) >= now {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }
}
