//! The time of a file to which bytes from windows come later than they were written.

use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::RwLock;

/// Changes of one open file through the agent. Those that no window makes keep their time.
#[derive(Default)]
pub(super) struct Dating {
    /// Begins and ends of changes that no window makes.
    changes: AtomicU64,
    /// Read by such a change, and locked while the time of bytes from windows is set.
    setting: RwLock<()>,
}

impl Dating {
    /// Makes a change that no window makes.
    pub fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let _setting = self.setting.read();
        self.changes.fetch_add(1, Ordering::AcqRel);
        let done = change();
        self.changes.fetch_add(1, Ordering::AcqRel);
        done
    }

    /// Number of such changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Sets a time, unless there was such a change since there were this many. None begins meanwhile.
    pub fn set<T>(&self, since: u64, set: impl FnOnce() -> T) -> Option<T> {
        let _setting = self.setting.write();
        (self.changes() == since).then(set)
    }
}
