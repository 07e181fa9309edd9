//! The sharing of syncs: callers that come while one runs share the next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use concurrency::{Condvar, Mutex};

use crate::error::SegmentError;
use crate::segment::DirtySegments;

/// State of all callers of a sync.
pub(crate) struct SyncGroup {
    turns: Mutex<Turns>,
    /// Signals the end of a turn.
    ended: Condvar,
    /// Number of the last turn that has begun. Changed under the lock of `turns`.
    begun: AtomicU64,
    /// Segments that a turn syncs.
    pub(crate) dirty: DirtySegments,
    /// Whether names may not be on the medium.
    names: AtomicBool,
}

#[derive(Default)]
struct Turns {
    running: bool,
    /// Number of the last turn that has ended.
    ended: u64,
    /// Why that turn failed.
    failure: Option<SegmentError>,
}

impl SyncGroup {
    /// Returns the state of a store that was just opened. Nobody knows whether its names are on the medium.
    pub(crate) fn new() -> SyncGroup {
        SyncGroup {
            turns: Mutex::new(Turns::default()),
            ended: Condvar::new(),
            begun: AtomicU64::new(0),
            dirty: Mutex::new(Vec::new()),
            names: AtomicBool::new(true),
        }
    }

    /// Returns the number of the first turn that begins after this call.
    pub(crate) fn next(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + 1
    }

    /// Notes that a name was made or may not be durable.
    pub(crate) fn name_is_new(&self) {
        self.names.store(true, Ordering::SeqCst);
    }

    /// Returns whether names must be made durable, and takes that to be done.
    pub(crate) fn take_names(&self) -> bool {
        self.names.swap(false, Ordering::SeqCst)
    }

    /// Waits until a turn that began after the call has ended, and returns its outcome or that of a later one. One of the callers
    /// runs each turn by `turn`, which is given the turn's number.
    pub(crate) fn share(&self, turn: impl FnOnce(u64) -> Result<(), SegmentError>) -> Result<(), SegmentError> {
        let mut turns = self.turns.lock();
        let wanted = self.next();
        while turns.ended < wanted && turns.running {
            self.ended.wait(&mut turns);
        }
        if turns.ended >= wanted {
            return turns.failure.as_ref().map_or(Ok(()), |failure| Err(failure.again()));
        }
        turns.running = true;
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        drop(turns);
        let outcome = turn(number);
        let mut turns = self.turns.lock();
        turns.running = false;
        turns.ended = number;
        turns.failure = outcome.as_ref().err().map(SegmentError::again);
        self.ended.notify_all();
        outcome
    }
}
