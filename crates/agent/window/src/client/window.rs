//! Ring of one open file.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use rustix::thread::{Timespec, nanosleep};

use super::fork_guard::ForkGuard;
use super::registration::AgentLink;
use crate::mapping::Mapping;
use crate::ring::{AppendRefused, Writer};

/// Window: appending to it is writing the file. All threads may share one. Dropping a window unmaps it; the agent still
/// applies all appended records.
#[derive(Debug)]
pub struct Window {
    writer: Writer<Mapping, Mapping>,
    link: Arc<AgentLink>,
}

impl Window {
    pub(super) fn new(writer: Writer<Mapping, Mapping>, link: Arc<AgentLink>) -> Window {
        Window { writer, link }
    }

    /// Writes `bytes` at `offset` of the file. `Ok` is the acknowledgement: the bytes are in the journal, and every
    /// later read, `stat` or write of any process comes after them. Waits while the ring is full, as long as the agent
    /// lives. Errors: nothing was written, and the caller must make the call to the kernel instead. In a forked child
    /// the error is [`AppendRefused::Revoked`].
    ///
    /// Allocates nothing. Makes a system call only to wait or to wake the agent.
    pub fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), AppendRefused> {
        self.append_parts(offset, &[IoSlice::new(bytes)])
    }

    /// Writes the buffers of a `pwritev` as one record, as [`Window::append`] does.
    pub fn append_parts(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), AppendRefused> {
        self.with_patience(|patience| self.writer.append_parts(offset, parts, patience))
    }

    /// Writes the buffers at an offset that `place` returns. `place` is called before anything is reserved, or when the
    /// bytes are in the ring: see [`Writer::append_where`].
    pub fn append_where(
        &self,
        parts: &[IoSlice<'_>],
        place: impl FnOnce() -> Option<u64>,
    ) -> Result<(), AppendRefused> {
        self.with_patience(|patience| self.writer.append_where(parts, place, patience))
    }

    fn with_patience(
        &self,
        append: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), AppendRefused>,
    ) -> Result<(), AppendRefused> {
        if !self.fork_guard().is_here() {
            return Err(AppendRefused::Revoked);
        }
        let mut waiting_since = None;
        let appended = append(&mut || {
            waiting_since.get_or_insert_with(Instant::now);
            self.fork_guard().is_here() && self.link.is_alive()
        });
        if let Some(since) = waiting_since {
            self.writer.note_wait(since.elapsed().as_micros() as u64);
        }
        // A child forked meanwhile by a signal handler may have published the same record as its parent.
        if self.fork_guard().is_here() { appended } else { Err(AppendRefused::Revoked) }
    }

    /// Asks the agent to end the window. To be called before a signal handler forks that has interrupted
    /// [`Window::append_where`]. The child continues with the same record, and must not write into space that by then
    /// belongs to another record.
    #[cold]
    pub fn end_before_fork(&self) {
        self.writer.retire();
    }

    /// Waits until the agent has ended the window, as long as the agent lives and at most until `end`. Returns whether
    /// the window has ended.
    #[cold]
    pub fn has_ended(&self, end: Instant) -> bool {
        while !self.writer.is_over() {
            if Instant::now() >= end || !self.link.is_alive() {
                return false;
            }
            let nap = Timespec { tv_sec: 0, tv_nsec: 100_000 };
            // Interrupted or not, the loop checks again.
            let _ = nanosleep(&nap);
        }
        true
    }

    /// Returns whether every further write will be refused: the agent ended the window, or this is a forked child.
    pub fn is_revoked(&self) -> bool {
        !self.fork_guard().is_here() || self.writer.is_ending()
    }

    /// Returns the longest write that fits, in bytes. A longer one must go to the kernel.
    pub fn payload_max(&self) -> u64 {
        self.writer.payload_max()
    }

    fn fork_guard(&self) -> &ForkGuard {
        &self.link.fork_guard
    }
}
