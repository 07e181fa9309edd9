//! Acknowledged writes that were lost because their window was damaged, by its program or by a medium, and whom that is told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::WindowCounters;

/// How often that was found of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Damages(Arc<AtomicU64>);

impl Damages {
    /// Once more.
    pub fn note(&self, counters: &WindowCounters) {
        self.0.fetch_add(1, Ordering::AcqRel);
        WindowCounters::add(&counters.damaged, 1);
    }

    /// So often.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// For an open file, which is told what is found from now on.
    pub fn told(&self) -> DamageNotice {
        DamageNotice { seen: AtomicU64::new(self.count()), damages: self.clone() }
    }
}

/// What an open file was told, as the kernel tells errors of writing back: each that there was then, once.
#[derive(Debug)]
pub(super) struct DamageNotice {
    damages: Damages,
    seen: AtomicU64,
}

impl DamageNotice {
    /// `EIO`: something was found since the last time.
    pub fn tell(&self) -> io::Result<()> {
        let now = self.damages.count();
        if self.seen.fetch_max(now, Ordering::AcqRel) >= now {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }
}
