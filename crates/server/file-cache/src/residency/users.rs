//! The open descriptions of a file.

use super::Live;

#[derive(Default)]
pub(crate) struct Users {
    handles: u32,
    writers: u32,
    /// Number of handles whose I/O bypasses the agent.
    passthrough: u32,
}

impl Users {
    pub(crate) fn handles(&self) -> u32 {
        self.handles
    }

    pub(crate) fn open(&mut self, write: bool) -> bool {
        self.handles += 1;
        self.writers += u32::from(write);
        write && self.writers == 1
    }

    /// Notes that the I/O of one more handle bypasses the agent.
    pub(crate) fn bypass(&mut self) {
        self.passthrough += 1;
    }

    /// Counts a handle out. Returns whether it was the last one that writes.
    pub(crate) fn close(&mut self, write: bool, passthrough: bool) -> bool {
        self.handles -= 1;
        self.writers -= u32::from(write);
        self.passthrough -= u32::from(passthrough);
        write && self.writers == 0
    }

    pub(super) fn assert_invariants(&self) {
        assert!(self.writers <= self.handles, "{} of {} handles write", self.writers, self.handles);
        assert!(self.passthrough <= self.handles, "{} of {} handles bypass", self.passthrough, self.handles);
    }
}

impl Live {
    pub(crate) fn is_open(&self) -> bool {
        self.users.handles > 0
    }

    pub(crate) fn is_written(&self) -> bool {
        self.users.writers > 0
    }

    /// Returns whether the I/O of a handle bypasses the agent.
    pub(crate) fn is_bypassed(&self) -> bool {
        self.users.passthrough > 0
    }
}
