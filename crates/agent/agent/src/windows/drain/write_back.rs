//! What was drained of a large file is written back to the burst buffer's medium while its program goes on.
//!
//! By itself the kernel begins after half a minute, or when a tenth of the memory waits for it: until then the medium rests, and
//! whoever syncs the file waits for all of it. Nothing is promised by this, and nothing waits for it but the end of the file's windows, for
//! the piece under way and no longer than a bound; what is left then is the kernel's again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use file_cache::WriteBehind;
use types::ByteRange;

use crate::limits::{
    WINDOW_BEHIND, WINDOW_BEHIND_BYTES, WINDOW_BEHIND_END_WAIT, WINDOW_BEHIND_NICE, WINDOW_BEHIND_PIECE,
    WINDOW_BEHIND_QUEUE_MAX, WINDOW_RUN_GAP, WINDOW_RUNS_MAX,
};

/// A place at which a file grows, or is written anew, in sequence.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: u64,
    /// What lies before is being written back.
    front: u64,
    end: u64,
    /// Bytes that were written of it.
    bytes: u64,
}

impl Run {
    fn at(start: u64) -> Run {
        Run { start, front: start, end: start, bytes: 0 }
    }

    fn takes(&self, range: ByteRange) -> bool {
        self.front <= range.start && range.start <= self.end.saturating_add(WINDOW_RUN_GAP)
    }

    /// What is to be written back now that this was written.
    fn take(&mut self, range: ByteRange) -> Option<ByteRange> {
        self.end = self.end.max(range.end);
        self.bytes += range.len();
        // What is scattered the kernel gathers better, for it waits longer.
        let is_dense = self.bytes >= (self.end - self.start) / 2;
        let upto = piece_of(self.end.saturating_sub(WINDOW_BEHIND));
        if !is_dense || upto <= self.front {
            return None;
        }
        Some(ByteRange::new(std::mem::replace(&mut self.front, upto), upto))
    }
}

/// Where the piece begins that a byte is in.
fn piece_of(at: u64) -> u64 {
    at / WINDOW_BEHIND_BYTES * WINDOW_BEHIND_BYTES
}

/// The runs of one file; the one that was written last stands last.
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

/// Sees to one file.
pub(super) struct KernelWriteBack {
    runs: Runs,
    /// `None`: it is not for us, or no thread can be had.
    way: Option<Arc<WriteBehind>>,
    /// The windows end: what comes still is left to the kernel.
    ending: bool,
    /// There is none where nothing was due so far, as of most files.
    thread: Option<Thread>,
}

impl KernelWriteBack {
    pub fn new(way: Option<WriteBehind>) -> KernelWriteBack {
        KernelWriteBack { runs: Runs::default(), way: way.map(Arc::new), ending: false, thread: None }
    }

    /// This was written to the replica. Waits for nothing.
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

    /// There are windows again, or still.
    pub fn goes_on(&mut self) {
        if std::mem::take(&mut self.ending) {
            self.thread = None;
        }
    }

    /// The windows end. Waits for nothing.
    pub fn ends(&mut self) {
        self.ending = true;
        if let Some(thread) = &mut self.thread {
            thread.ends();
        }
    }

    /// It is over, or as good as that.
    pub fn end(&mut self) {
        self.ends();
        self.thread = None;
    }
}

/// Begins to write back what it is sent, which may wait for the medium.
struct Thread {
    /// `None` once it is to end.
    ranges: Option<SyncSender<ByteRange>>,
    ends: Arc<AtomicBool>,
    /// Says by its own end that the thread has none of the replica any more.
    over: Receiver<()>,
}

impl Thread {
    fn start(way: Arc<WriteBehind>) -> std::io::Result<Thread> {
        let (ranges, received) = mpsc::sync_channel(WINDOW_BEHIND_QUEUE_MAX);
        let (alive, over) = mpsc::sync_channel(0);
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let run = move || {
            write_back(&|range| way.begin(range), &received, &told);
            drop(alive);
        };
        concurrency::spawn("behind", run)?;
        Ok(Thread { ranges: Some(ranges), ends, over })
    }

    fn send(&self, range: ByteRange) {
        if let Some(ranges) = &self.ranges {
            // What there is no room for the kernel writes back by itself.
            let _ = ranges.try_send(range);
        }
    }

    fn ends(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.ranges = None;
    }
}

/// Where it stands still with its medium it is left alone: whoever waits for this may be a program that opens the file.
impl Drop for Thread {
    fn drop(&mut self) {
        self.ends();
        let _ = self.over.recv_timeout(WINDOW_BEHIND_END_WAIT);
    }
}

fn write_back(begin: &dyn Fn(ByteRange) -> std::io::Result<()>, ranges: &Receiver<ByteRange>, ends: &AtomicBool) {
    // It gives way to programs, and to what drains their windows.
    let _ = rustix::process::nice(WINDOW_BEHIND_NICE);
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min((start / WINDOW_BEHIND_PIECE + 1) * WINDOW_BEHIND_PIECE);
            // What the medium does not take is noted, and told to whoever syncs.
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
        // What is long at once, and what is written anew.
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
        // It changes how its thread gives way.
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
