//! Counters of windows.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use types::HasErrno;

use serde::{Deserialize, Serialize};

/// Counters of one agent's windows since the agent started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowStatus {
    /// Whether windows lie on persistent memory: acknowledged writes survive a crash of the machine without a sync.
    pub durable: bool,
    /// Windows at present.
    pub windows: u64,
    /// Windows ever attached, present ones included.
    pub attached: u64,
    /// Windows that ended without a request of their program: the file was accessed by others, or records could not be
    /// applied.
    pub revoked: u64,
    /// Open files for which a window was refused because the memory for all windows was used up.
    pub without_memory: u64,
    /// Open files for which a window was refused because its ring could not be created.
    pub without_place: u64,
    /// Last error in creating a ring, as an `errno`; 0 if there was none.
    pub without_place_errno: i32,
    /// Programs refused because their preload library has another version. Agents of one process count each such
    /// program separately.
    pub without_library: u64,
    /// Files whose records cannot be applied at present.
    pub failing: u64,
    /// Writes acknowledged by a window.
    pub acknowledged_writes: u64,
    /// Bytes of acknowledged writes.
    pub acknowledged_bytes: u64,
    /// Acknowledged bytes not yet in the burst buffer.
    pub waiting_bytes: u64,
    /// Bytes written to the burst buffer.
    pub drained_bytes: u64,
    /// Bytes that were not written there, because newer ones had come or the file had been truncated or removed.
    pub superseded_bytes: u64,
    /// Acknowledged bytes that are lost. The file was removed elsewhere, or others have written there, while the server
    /// or the agent was away.
    pub lost_bytes: u64,
    /// Number of acknowledged writes found damaged, which are lost.
    pub damaged: u64,
    /// Time that programs waited for room in full windows, us, summed over their threads. Waits too short to sleep are
    /// not counted.
    pub waited_us: u64,
}

impl WindowStatus {
    /// Adds the bytes that windows of earlier agents held of removed files.
    pub fn and_lost(self, bytes: u64) -> WindowStatus {
        WindowStatus { lost_bytes: self.lost_bytes + bytes, ..self }
    }
}

#[derive(Debug, Default)]
pub(crate) struct WindowCounters {
    pub attached: AtomicU64,
    pub revoked: AtomicU64,
    pub without_memory: AtomicU64,
    pub without_place: AtomicU64,
    pub without_place_errno: AtomicI32,
    pub without_library: AtomicU64,
    pub writes: AtomicU64,
    pub acknowledged: AtomicU64,
    pub drained: AtomicU64,
    pub superseded: AtomicU64,
    pub lost: AtomicU64,
    pub damaged: AtomicU64,
    pub waited_us: AtomicU64,
}

impl WindowCounters {
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Relaxed);
    }

    /// Counts a ring that could not be created, and returns the error.
    pub fn without_place(&self, error: io::Error) -> io::Error {
        WindowCounters::add(&self.without_place, 1);
        self.without_place_errno.store(error.errno().unwrap_or(libc::EIO), Relaxed);
        error
    }

    /// Returns all counters. Present values, such as the number of windows, are added by the caller.
    pub fn status(&self) -> WindowStatus {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        // Reading in this order keeps the applied bytes from exceeding the acknowledged ones.
        let (drained_bytes, superseded_bytes) = (read(&self.drained), read(&self.superseded));
        let lost_bytes = read(&self.lost);
        let acknowledged_bytes = read(&self.acknowledged);
        WindowStatus {
            attached: read(&self.attached),
            revoked: read(&self.revoked),
            without_memory: read(&self.without_memory),
            without_place: read(&self.without_place),
            without_place_errno: self.without_place_errno.load(Relaxed),
            without_library: read(&self.without_library),
            acknowledged_writes: read(&self.writes),
            acknowledged_bytes,
            waiting_bytes: acknowledged_bytes.saturating_sub(drained_bytes + superseded_bytes + lost_bytes),
            drained_bytes,
            superseded_bytes,
            lost_bytes,
            damaged: read(&self.damaged),
            waited_us: read(&self.waited_us),
            ..WindowStatus::default()
        }
    }
}
