//! The ring of one open file.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use rustix::thread::{Timespec, nanosleep};

use super::home::ForkGuard;
use super::registration::AgentLink;
use crate::mapping::Mapping;
use crate::ring::{AppendRefused, Writer};

/// A window: appending to it is writing the file. All threads may share it; dropping it unmaps it, and what was
/// appended is drained by the agent whatever happens.
#[derive(Debug)]
pub struct Window {
    writer: Writer<Mapping, Mapping>,
    link: Arc<AgentLink>,
}

impl Window {
    pub(super) fn new(writer: Writer<Mapping, Mapping>, link: Arc<AgentLink>) -> Window {
        Window { writer, link }
    }

    /// Writes `bytes` at `offset` of the file. `Ok`: acknowledged, the bytes are in the journal, and every later read,
    /// `stat` or write of whatever process comes after them. `Err`: nothing was written, the caller makes the call to
    /// the kernel instead. Waits while the ring is full, as long as the agent lives.
    ///
    /// In a forked child it answers [`AppendRefused::Revoked`]. No allocation; a system call only to wait or to wake the agent.
    pub fn append(&self, offset: u64, bytes: &[u8]) -> Result<(), AppendRefused> {
        self.append_parts(offset, &[IoSlice::new(bytes)])
    }

    /// [`Window::append`] for the buffers of a `pwritev`, as one record.
    pub fn append_parts(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), AppendRefused> {
        self.with_patience(|patience| self.writer.append_parts(offset, parts, patience))
    }

    /// The same at an offset that `place` says, before anything is reserved or when the bytes are there: see [`Writer::append_where`].
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
        if !self.home().is_here() {
            return Err(AppendRefused::Revoked);
        }
        let mut waiting_since = None;
        let appended = append(&mut || {
            waiting_since.get_or_insert_with(Instant::now);
            self.home().is_here() && self.link.is_alive()
        });
        if let Some(since) = waiting_since {
            self.writer.note_wait(since.elapsed().as_micros() as u64);
        }
        // A child that was forked meanwhile, by a handler of signals, may have published the same record as its parent.
        if self.home().is_here() { appended } else { Err(AppendRefused::Revoked) }
    }

    /// Before a handler of signals forks that interrupted [`Window::append_where`]: the agent is to end the window, so that the child, which
    /// goes on with the same record, finds no room of others where that lay.
    #[cold]
    pub fn end_before_fork(&self) {
        self.writer.retire();
    }

    /// Waits until the agent has ended the window, as long as it lives, and not after `end`; whether it has.
    #[cold]
    pub fn has_ended(&self, end: Instant) -> bool {
        while !self.writer.is_over() {
            if Instant::now() >= end || !self.link.is_alive() {
                return false;
            }
            let nap = Timespec { tv_sec: 0, tv_nsec: 100_000 };
            // Interrupted or not, it is looked again.
            let _ = nanosleep(&nap);
        }
        true
    }

    /// Whether every further write will be refused: the agent ended the window, or this is a forked child.
    pub fn is_revoked(&self) -> bool {
        !self.home().is_here() || self.writer.is_ending()
    }

    /// Bytes of the longest write that fits; a longer one goes to the kernel.
    pub fn payload_max(&self) -> u64 {
        self.writer.payload_max()
    }

    fn home(&self) -> &ForkGuard {
        &self.link.home
    }
}
