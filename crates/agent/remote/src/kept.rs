//! Read-ahead data of all files of an agent: its size, the number of readers, and how their reads fared.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use concurrency::{Instant, Mutex};
use data_store::Fared;

use crate::buffers::Buffers;
use crate::limits::{SERVER_AHEAD_SHARE_FOR, SERVER_AHEAD_SHARE_MIN, SERVER_AHEAD_SHARED_BYTES};

/// Counters of reads of files that are read ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Reads of which all bytes were in the node's memory.
    pub hits: u64,
    /// Reads of which some bytes were under way.
    pub late: u64,
    /// Reads of which some bytes had to be requested.
    pub misses: u64,
}

/// Count of the open files that are read, taken anew each turn.
#[derive(Debug)]
struct Turn {
    /// Number of this turn; the first is 1.
    number: u64,
    began: Instant,
    readers: u64,
    /// Readers in the turn before.
    before: u64,
}

/// Read-ahead data of all files of an agent.
#[derive(Debug)]
pub(crate) struct RetainedReads {
    /// Bytes kept.
    bytes: AtomicU64,
    hits: AtomicU64,
    late: AtomicU64,
    misses: AtomicU64,
    turn: Mutex<Turn>,
    buffers: Mutex<Weak<Buffers>>,
}

impl Default for RetainedReads {
    fn default() -> RetainedReads {
        let turn = Turn { number: 1, began: Instant::now(), readers: 0, before: 0 };
        RetainedReads {
            bytes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            late: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            turn: Mutex::new(turn),
            buffers: Mutex::default(),
        }
    }
}

impl RetainedReads {
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Replaces `before` by `now` in the number of bytes kept.
    pub fn change(&self, before: u64, now: u64) {
        // The difference wraps around if `now` is less.
        self.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    pub fn count(&self, fared: Fared) {
        let counter = match fared {
            Fared::Hit => &self.hits,
            Fared::Late => &self.late,
            Fared::Miss => &self.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reads(&self) -> Reads {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Reads { hits: read(&self.hits), late: read(&self.late), misses: read(&self.misses) }
    }

    /// Returns how many bytes may be kept ahead of an open file that is read now. `turn` records the turn of the file's
    /// last read.
    pub fn share(&self, turn: &AtomicU64) -> u64 {
        let mut this = self.turn.lock();
        let lasts = this.began.elapsed();
        if lasts >= SERVER_AHEAD_SHARE_FOR {
            this.before = if lasts >= 2 * SERVER_AHEAD_SHARE_FOR { 0 } else { this.readers };
            (this.number, this.readers, this.began) = (this.number + 1, 0, Instant::now());
        }
        this.readers += u64::from(turn.swap(this.number, Ordering::Relaxed) != this.number);
        (SERVER_AHEAD_SHARED_BYTES / this.readers.max(this.before).max(1)).max(SERVER_AHEAD_SHARE_MIN)
    }

    /// Returns the pool of fetch buffers, shared by all files that are read ahead at a time.
    pub fn buffers(&self) -> Arc<Buffers> {
        let mut known = self.buffers.lock();
        known.upgrade().unwrap_or_else(|| {
            let buffers = Arc::new(Buffers::default());
            *known = Arc::downgrade(&buffers);
            buffers
        })
    }

    /// Releases the free buffers. Call this when nothing was read ahead for a while.
    pub fn rest(&self) {
        if let Some(buffers) = self.buffers.lock().upgrade() {
            buffers.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::{PATIENCE, wait_until};

    use super::*;

    #[test] // S47
    fn memory_is_shared_out_among_those_who_read_now() {
        let kept = RetainedReads::default();
        let turns: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(kept.share(&turns[0]), SERVER_AHEAD_SHARED_BYTES, "the first has all");
        turns.iter().for_each(|turn| _ = kept.share(turn));
        wait_until("a turn with all of them has ended", PATIENCE, || {
            turns.iter().for_each(|turn| _ = kept.share(turn));
            kept.turn.lock().before == 16
        });
        assert_eq!(kept.share(&turns[3]), SERVER_AHEAD_SHARED_BYTES / 16);
        wait_until("those who read no more are not counted", PATIENCE, || {
            kept.share(&turns[3]) == SERVER_AHEAD_SHARED_BYTES
        });
        let many: Vec<AtomicU64> = (0..1000).map(|_| AtomicU64::new(0)).collect();
        let least = many.iter().map(|turn| kept.share(turn)).min();
        assert_eq!(least, Some(SERVER_AHEAD_SHARE_MIN));
    }

    #[test]
    fn buffers_go_with_the_last_who_reads_ahead_and_when_nobody_does_for_a_while() {
        let kept = RetainedReads::default();
        kept.rest();
        let (one, two) = (kept.buffers(), kept.buffers());
        assert!(Arc::ptr_eq(&one, &two));
        drop(one.take(1 << 20));
        assert_eq!(two.free(), 1);
        kept.rest();
        assert_eq!(two.free(), 0);
        let gone = Arc::downgrade(&one);
        drop((one, two));
        assert!(gone.upgrade().is_none());
    }
}
