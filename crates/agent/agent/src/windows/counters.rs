//! What windows did, in numbers.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// The windows of one agent since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowStatus {
    /// Whether they lie on persistent memory: what was acknowledged survives a crash of the machine without a sync.
    pub durable: bool,
    /// Windows that there are now.
    pub windows: u64,
    /// Windows that there were, those included.
    pub attached: u64,
    /// Windows that ended although their program did not ask for it: somebody else came to the file, or they could not be
    /// drained.
    pub revoked: u64,
    /// Open files for which one was asked for in vain, because all together had the memory that they may have.
    pub without_memory: u64,
    /// Times that one was asked for in vain, because its ring could not be made: once for an open file.
    pub without_place: u64,
    /// Why, the last time: an `errno`; 0 if it never happened.
    pub without_place_errno: i32,
    /// Programs whose preload library was of another version, and which went without. Of agents of one process one counts each.
    pub without_library: u64,
    /// Files whose windows cannot be brought to the burst buffer now.
    pub failing: u64,
    /// Writes that were acknowledged by a window.
    pub acknowledged_writes: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
    /// Bytes of those that are not in the burst buffer yet.
    pub waiting_bytes: u64,
    /// Bytes brought to the burst buffer.
    pub drained_bytes: u64,
    /// Bytes that needed not be brought there, because newer ones had come or their file had been cut or removed.
    pub superseded_bytes: u64,
    /// Bytes that were acknowledged and are lost: their file was removed elsewhere while the server, or the agent before this
    /// one, was away, or others have written there while that was.
    pub lost_bytes: u64,
    /// Times that something acknowledged was found damaged, which is lost.
    pub damaged: u64,
    /// Time that programs waited for room in full windows, summed over their threads, us. Waits too short to sleep do not count.
    pub waited_us: u64,
}

impl WindowStatus {
    /// With what windows of earlier agents held of files that are gone.
    pub(super) fn and_lost(self, bytes: u64) -> WindowStatus {
        WindowStatus { lost_bytes: self.lost_bytes + bytes, ..self }
    }
}

/// The counters behind it.
#[derive(Debug, Default)]
pub(super) struct WindowCounters {
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
    /// Adds to one of them.
    pub fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Relaxed);
    }

    /// A ring could not be made.
    pub fn without_place(&self, error: io::Error) -> io::Error {
        WindowCounters::add(&self.without_place, 1);
        self.without_place_errno.store(error.raw_os_error().unwrap_or(libc::EIO), Relaxed);
        error
    }

    /// All of them; what there is now is for the caller to add.
    pub fn status(&self) -> WindowStatus {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        // In this order: nothing seems to be drained before it was acknowledged.
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
