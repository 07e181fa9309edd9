//! Write-back of a large file's applied bytes to the burst buffer's medium while its program goes on.
//!
//! The kernel by itself begins after half a minute, or when dirty pages fill a tenth of the memory. Until then the
//! medium is idle, and a sync of the file must wait for everything. Write-back promises nothing. Only the end of the
//! file's windows waits for it, for the piece under way and for a bounded time; the rest is left to the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use data_store::StartWriteBack;
use types::ByteRange;

use crate::limits::{
    WINDOW_BEHIND, WINDOW_BEHIND_BYTES, WINDOW_BEHIND_END_WAIT, WINDOW_BEHIND_NICE, WINDOW_BEHIND_PIECE,
    WINDOW_BEHIND_QUEUE_MAX, WINDOW_RUN_GAP, WINDOW_RUNS_MAX,
};

/// A region in which a file grows, or is rewritten, in sequence.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: u64,
    /// Offset before which write-back was started.
    front: u64,
    end: u64,
    bytes: u64,
}

impl Run {
    fn at(start: u64) -> Run {
        Run { start, front: start, end: start, bytes: 0 }
    }

    fn takes(&self, range: ByteRange) -> bool {
        self.front <= range.start && range.start <= self.end.saturating_add(WINDOW_RUN_GAP)
    }

    /// Notes that `range` was written. Returns the range to be written back now.
    fn take(&mut self, range: ByteRange) -> Option<ByteRange> {
        self.end = self.end.max(range.end);
        self.bytes += range.len();
        // The kernel gathers scattered writes better, because it waits longer.
        let is_dense = self.bytes >= (self.end - self.start) / 2;
        let upto = piece_of(self.end.saturating_sub(WINDOW_BEHIND));
        if !is_dense || upto <= self.front {
            return None;
        }
        Some(ByteRange::new(std::mem::replace(&mut self.front, upto), upto))
    }
}

fn piece_of(at: u64) -> u64 {
    at / WINDOW_BEHIND_BYTES * WINDOW_BEHIND_BYTES
}

/// The regions of one file; the one written last is at the end.
#[derive(Debug, Default)]
struct Runs(Vec<Run>);

impl Runs {
    fn take(&mut self, range: ByteRange) -> Option<ByteRange> {
        let known = self.0.iter().position(|run| run.takes(range));
        let mut run = known.map_or_else(|| Run::at(range.start), |at| self.0.remove(at));
        let due = run.take(range);
        if self.0.len() == WINDOW_RUNS_MAX {
            self.0.remove(0);
        }
        self.0.push(run);
        due
    }
}

pub(super) struct KernelWriteBack {
    runs: Runs,
    /// Write-back handle; `None` if the data is not in a replica here, or no thread could be started.
    way: Option<Arc<StartWriteBack>>,
    /// Whether the windows are ending: the rest is left to the kernel.
    ending: bool,
    /// Thread, started when write-back is first due. Most files need none.
    thread: Option<Thread>,
}

impl KernelWriteBack {
    pub fn new(way: Option<StartWriteBack>) -> KernelWriteBack {
        KernelWriteBack { runs: Runs::default(), way: way.map(Arc::new), ending: false, thread: None }
    }

    /// Notes that `range` was written to the replica. Does not block.
    pub fn wrote(&mut self, range: ByteRange) {
        let Some(way) = self.way.as_ref().filter(|_| !self.ending) else { return };
        let Some(due) = self.runs.take(range) else { return };
        if self.thread.is_none() {
            match Thread::start(Arc::clone(way)) {
                Ok(thread) => self.thread = Some(thread),
                Err(_) => self.way = None,
            }
        }
        if let Some(thread) = &self.thread {
            thread.send(due);
        }
    }

    pub fn goes_on(&mut self) {
        if std::mem::take(&mut self.ending) {
            self.thread = None;
        }
    }

    /// Notes that the windows end. Does not block.
    pub fn ends(&mut self) {
        self.ending = true;
        if let Some(thread) = &mut self.thread {
            thread.ends();
        }
    }

    /// Ends the write-back. Waits for at most [`WINDOW_BEHIND_END_WAIT`].
    pub fn end(&mut self) {
        self.ends();
        self.thread = None;
    }
}

/// Thread that starts write-back of the ranges sent to it, and may block on the medium.
struct Thread {
    /// Queue of ranges; `None` once the thread is to end.
    ranges: Option<SyncSender<ByteRange>>,
    ends: Arc<AtomicBool>,
    /// Disconnected when the thread has released the replica.
    over: Receiver<()>,
}

impl Thread {
    fn start(way: Arc<StartWriteBack>) -> std::io::Result<Thread> {
        let (ranges, received) = mpsc::sync_channel(WINDOW_BEHIND_QUEUE_MAX);
        let (alive, over) = mpsc::sync_channel(0);
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let run = move || {
            write_back(&|range| way(range), &received, &told);
            drop(alive);
        };
        concurrency::spawn("behind", run)?;
        Ok(Thread { ranges: Some(ranges), ends, over })
    }

    fn send(&self, range: ByteRange) {
        if let Some(ranges) = &self.ranges {
            // Ranges that find no room are left to the kernel.
            let _ = ranges.try_send(range);
        }
    }

    fn ends(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.ranges = None;
    }
}

/// Abandons a thread that is stuck at its medium, because a program that opens the file may be waiting here.
impl Drop for Thread {
    fn drop(&mut self) {
        self.ends();
        let _ = self.over.recv_timeout(WINDOW_BEHIND_END_WAIT);
    }
}

fn write_back(begin: &dyn Fn(ByteRange) -> std::io::Result<()>, ranges: &Receiver<ByteRange>, ends: &AtomicBool) {
    // Programs, and the threads that apply their records, go first.
    let _ = rustix::process::nice(WINDOW_BEHIND_NICE);
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min((start / WINDOW_BEHIND_PIECE + 1) * WINDOW_BEHIND_PIECE);
            // Write errors are recorded by the kernel and reported to the next sync.
            if ends.load(Ordering::Relaxed) || begin(ByteRange::new(start, end)).is_err() {
                return;
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn written(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
        let mut runs = Runs::default();
        let due = ranges.filter_map(|(start, len)| runs.take(ByteRange::at(start, len)));
        due.map(|range| (range.start / MIB, range.end / MIB)).collect()
    }

    #[test]
    fn a_sequence_is_written_back_once_behind_its_end() {
        let pieces = |upto: u64| (0..upto).map(|number| (number * MIB, MIB));
        assert_eq!(written(pieces(39)), []);
        assert_eq!(written(pieces(60)), [(0, 8), (8, 16), (16, 24)]);
        // A long write at once, and a rewrite.
        assert_eq!(written(pieces(40).chain([(40 * MIB, 60 * MIB)])), [(0, 8), (8, 64)]);
        assert_eq!(written(pieces(40).chain(pieces(40))), [(0, 8), (0, 8)]);
    }

    #[test]
    fn several_in_one_file_are_told_apart_and_neighbours_that_come_late_belong_to_it() {
        let apart =
            (0..48).flat_map(|number| (0..WINDOW_RUNS_MAX as u64).map(move |run| ((run << 30) + number * MIB, MIB)));
        let mut due = written(apart);
        due.sort_unstable();
        let each = (0..WINDOW_RUNS_MAX as u64)
            .flat_map(|run| [(0, 8), (8, 16)].map(|(a, b)| (run * 1024 + a, run * 1024 + b)));
        assert_eq!(due, each.collect::<Vec<_>>());
        // Every other piece first, then those between.
        let late =
            (0..24).flat_map(|number| [(2 * number + 1, MIB), (2 * number, MIB)]).map(|(at, len)| (at * MIB, len));
        assert_eq!(written(late).last(), Some(&(8, 16)));
    }

    #[test]
    fn who_ends_waits_for_a_piece_and_not_for_a_medium_that_stands_still() {
        let (pieces, ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ranges, received) = mpsc::sync_channel(WINDOW_BEHIND_QUEUE_MAX);
        (0..8).for_each(|number| ranges.send(ByteRange::at(number * 8 * MIB, 8 * MIB)).unwrap());
        drop(ranges);
        let begin = |range: ByteRange| {
            assert!(
                range.len() == WINDOW_BEHIND_PIECE && !pieces.swap(true, Ordering::Relaxed),
                "another after its end"
            );
            ends.store(true, Ordering::Relaxed);
            Ok(())
        };
        let (begin, ends) = (&begin, &ends);
        // A thread of its own, because the call changes the thread's priority.
        std::thread::scope(|scope| scope.spawn(move || write_back(begin, &received, ends)).join().unwrap());
        let (ranges, (_still, over)) = (None, mpsc::sync_channel(0));
        let began = std::time::Instant::now();
        drop(Thread { ranges, ends: Arc::default(), over });
        assert!(began.elapsed() >= WINDOW_BEHIND_END_WAIT && began.elapsed() < testkit::PATIENCE);
    }

    #[test]
    fn what_is_scattered_is_left_to_the_kernel() {
        let scattered = (0..8).flat_map(|_| (0..2048).map(|number| (number * MIB / 2, 8 << 10)));
        assert_eq!(written(scattered), []);
    }
}
