//! Detector that the window uses.
//!
//! A request either continues a *stream* or is an *orphan*. Streams are found among orphans. Two orphans that touch
//! begin a sequential stream, three at equal distances a stride. Three runs of equal length at equal distances begin a
//! stride of runs. So noise between the requests of a stream changes nothing, and interleaved streams do not disturb
//! each other. Until the first stream is found, orphans are answered as by [`super::Reference`].
//!
//! A stream's window begins small and doubles only when its reader had to wait. Its limit is the budget divided by the
//! number of live streams. Ranges that are present or being fetched are not requested again.

use std::collections::VecDeque;

use types::ByteRange;

use super::reference::{Reference, distance};
use crate::limits::{
    AHEAD_MAX, BACK_WINDOW, BLOCK, LOOSE, ORPHANS_MAX, RANDOM_CREDIT, RANDOM_PROBE, STREAMS_MAX, STRIDES_AHEAD_MAX,
};

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// All bytes were present.
    Hit,
    /// Some bytes were being fetched: the reader waited.
    Late,
    /// Some bytes had to be fetched.
    Miss,
}

/// Advice of the program by `posix_fadvise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Advice {
    /// No advice.
    #[default]
    Normal,
    /// Sequential reads: the window begins larger.
    Sequential,
    /// Random reads: nothing is fetched ahead.
    Random,
}

/// Requests at regular offsets.
#[derive(Debug, Clone)]
struct Stream {
    /// Run that is being read, so far.
    run: ByteRange,
    /// Length of a whole run in bytes, and the distance to the next one's start; `None` for a sequential stream.
    stride: Option<(u64, i64)>,
    /// Bytes to keep ahead of the reader.
    ahead: u64,
    /// End of the requested bytes, for a sequential stream.
    asked: u64,
    used: u64,
}

impl Stream {
    /// Returns whether `request` continues the stream; if so, the stream's run becomes the one that contains it.
    fn follow(&mut self, request: ByteRange) -> bool {
        if let Some((len, stride)) = self.stride {
            for step in [0, 1, 2, 3, 4, -1, -2] {
                let Some(start) = self.run.start.checked_add_signed(stride.saturating_mul(step)) else { continue };
                let run = ByteRange::at(start, len);
                if request.start >= run.start && request.end <= run.end {
                    // A step back means that readers overtook each other: the front stays.
                    if step >= 0 {
                        self.run = run;
                    }
                    return true;
                }
            }
            let whole = ByteRange::at(self.run.start, len);
            if request.start == whole.end {
                self.stride = None; // the runs have become one
                self.run = ByteRange::new(whole.start, request.end);
                self.asked = request.end;
                return true;
            }
            return false;
        }
        let near = request.start <= self.run.end + LOOSE && request.end + LOOSE >= self.run.end;
        if near && request.end >= self.run.start {
            self.run.end = self.run.end.max(request.end);
        }
        near
    }

    /// Returns the ranges to have ready for requests of this many bytes, nearest first.
    fn want(&mut self, room: u64, request: u64) -> Vec<ByteRange> {
        let ahead = self.ahead.min(room);
        let Some((len, stride)) = self.stride else {
            if ahead < request {
                return Vec::new(); // part of a request saves nothing: the rest needs another request
            }
            let from = self.asked.max(self.run.end);
            if from - self.run.end > ahead / 2 {
                return Vec::new(); // the marker, half of the window, is not reached
            }
            // Up to the end of a block, one more if needed: pieces would need as many requests and as much memory.
            let end = self.run.end + if ahead >= BLOCK { ahead } else { ahead / request.max(1) * request };
            let whole = end / BLOCK * BLOCK;
            self.asked = match ahead >= BLOCK {
                true if whole > from => whole,
                true => whole + BLOCK,
                false => end,
            };
            return vec![ByteRange::new(from, self.asked)];
        };
        let steps = (ahead / len.max(1)).clamp(1, STRIDES_AHEAD_MAX) as i64;
        (1..=steps)
            .filter_map(|step| self.run.start.checked_add_signed(stride.checked_mul(step)?))
            .map(|start| ByteRange::at(start, len))
            .collect()
    }

    fn stalled(&mut self) {
        self.ahead = (self.ahead * 2).min(AHEAD_MAX);
    }
}

/// Detector of the streams of one open file.
#[derive(Debug)]
pub struct Detector {
    streams: Vec<Stream>,
    orphans: VecDeque<ByteRange>,
    cold: Reference,
    advice: Advice,
    budget: u64,
    clock: u64,
    /// Blocks around random misses that may still be fetched; earned by random hits.
    credit: u64,
    /// Random misses since the credit ran out.
    unpaid: u64,
}

impl Detector {
    /// Makes a detector that may have `budget` bytes fetched ahead of its readers.
    pub fn new(budget: u64) -> Detector {
        Detector {
            streams: Vec::new(),
            orphans: VecDeque::new(),
            cold: Reference::default(),
            advice: Advice::Normal,
            budget,
            clock: 0,
            credit: RANDOM_CREDIT,
            unpaid: 0,
        }
    }

    /// Sets the budget, after the node's memory was divided anew.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Sets the program's advice.
    pub fn advise(&mut self, advice: Advice) {
        self.advice = advice;
    }

    /// Handles a program's announcement that it will read `range`. Returns the parts to fetch now. `absent` returns
    /// which parts of a range are neither present nor being fetched ([`crate::read_queue::ReadQueue::absent`]).
    pub fn will_need(
        &self,
        range: ByteRange,
        size: u64,
        absent: &mut dyn FnMut(ByteRange) -> Vec<ByteRange>,
    ) -> Vec<ByteRange> {
        let range = ByteRange::new(range.start, range.end.min(range.start.saturating_add(self.budget)));
        limited(vec![range], size, self.budget, absent)
    }

    /// Returns the bytes that the stream of `request` no longer needs, after [`Detector::read`]. `None` for a random
    /// request, whose reader may come back.
    pub fn spent(&self, request: ByteRange) -> Option<ByteRange> {
        let stream = self.streams.iter().find(|stream| stream.used == self.clock)?;
        match stream.stride {
            Some(_) => Some(request),
            None => Some(ByteRange::new(stream.run.start, stream.run.end.saturating_sub(BACK_WINDOW))),
        }
    }

    /// Handles a read of `request` with this `outcome` in a file of `size` bytes. Returns the ranges to fetch:
    /// disjoint, nearest first, none of them present or being fetched according to `absent`.
    pub fn read(
        &mut self,
        request: ByteRange,
        outcome: RequestOutcome,
        size: u64,
        absent: &mut dyn FnMut(ByteRange) -> Vec<ByteRange>,
    ) -> Vec<ByteRange> {
        self.clock += 1;
        if request.is_empty() || request.end > i64::MAX as u64 {
            return Vec::new();
        }
        let first = self.clock == 1;
        let cold = self.cold.read(request, size);
        if self.advice == Advice::Random {
            return Vec::new();
        }
        let room = self.room();
        if let Some(stream) = self.followed(request) {
            if outcome != RequestOutcome::Hit {
                stream.stalled();
            }
            if outcome == RequestOutcome::Miss {
                stream.asked = 0; // what was asked for did not come, or is gone
            }
            let want = stream.want(room, request.len());
            return limited(want, size, room, absent);
        }
        if let Some(stream) = self.found(request) {
            let want = self.adopt(stream).want(room, request.len());
            return limited(want, size, room, absent);
        }
        self.remember(request);
        let guess = match cold {
            Some(guess) if self.streams.is_empty() && (first || self.clock <= ORPHANS_MAX as u64) => Some(guess),
            _ => self.around(request, outcome),
        };
        limited(guess.into_iter().collect(), size, room, absent)
    }

    /// Returns the share of one stream: the budget divided by the number of streams that moved lately.
    fn room(&self) -> u64 {
        let lately = self.clock.saturating_sub(8 * STREAMS_MAX as u64);
        let alive = self.streams.iter().filter(|stream| stream.used >= lately).count() as u64;
        self.budget / alive.max(1)
    }

    fn followed(&mut self, request: ByteRange) -> Option<&mut Stream> {
        let clock = self.clock;
        let stream = self.streams.iter_mut().find_map(|stream| stream.follow(request).then_some(stream))?;
        stream.used = clock;
        Some(stream)
    }

    /// Returns a stream that `request` forms with orphans, or with streams that were only runs.
    fn found(&mut self, request: ByteRange) -> Option<Stream> {
        let ahead = match self.advice {
            Advice::Sequential => 4 * BLOCK,
            _ => BLOCK.max(2 * request.len()),
        };
        let stream = |run: ByteRange, stride| Stream { run, stride, ahead, asked: request.end, used: 0 };
        let runs: Vec<ByteRange> = self.streams.iter().filter(|s| s.stride.is_none()).map(|s| s.run).collect();
        let of_runs = progression(&runs, request).filter(|(run, jump)| jump.unsigned_abs() > run.len());
        if let Some((run, jump)) = of_runs {
            self.streams.retain(|old| old.stride.is_some() || old.run.len() != run.len());
            return Some(stream(ByteRange::at(request.start, run.len()), Some((run.len(), jump))));
        }
        // A gap no longer than the request: fetching it costs less than as many small requests.
        let near = |old: &ByteRange| request.start >= old.end && request.start - old.end <= request.len().min(LOOSE);
        if let Some(place) = self.orphans.iter().rposition(near) {
            let before = self.orphans.remove(place)?;
            return Some(stream(ByteRange::new(before.start, request.end), None));
        }
        let orphans: Vec<ByteRange> = self.orphans.iter().copied().collect();
        let (_, jump) = progression(&orphans, request)?;
        // Three at equal distances may be an accident, for instance of streams equally far apart. So the requests stay
        // orphans, and a stream that no request continues is the first to be forgotten.
        self.remember(request);
        Some(stream(request, Some((request.len(), jump))))
    }

    fn remember(&mut self, orphan: ByteRange) {
        self.orphans.push_back(orphan);
        if self.orphans.len() > ORPHANS_MAX {
            self.orphans.pop_front();
        }
    }

    fn adopt(&mut self, stream: Stream) -> &mut Stream {
        if self.streams.len() == STREAMS_MAX {
            let oldest = (0..STREAMS_MAX).min_by_key(|place| self.streams[*place].used).unwrap_or(0);
            self.streams.remove(oldest);
        }
        self.streams.push(Stream { used: self.clock, ..stream });
        let newest = self.streams.len() - 1;
        &mut self.streams[newest]
    }

    /// Returns the aligned block around a random miss, while such blocks earn their cost.
    fn around(&mut self, request: ByteRange, outcome: RequestOutcome) -> Option<ByteRange> {
        if outcome == RequestOutcome::Hit {
            self.credit = (self.credit + 2).min(2 * RANDOM_CREDIT);
            return None;
        }
        if self.credit == 0 {
            self.unpaid += 1;
            if !self.unpaid.is_multiple_of(RANDOM_PROBE) {
                return None;
            }
        }
        self.credit = self.credit.saturating_sub(1);
        let start = request.start / BLOCK * BLOCK;
        Some(ByteRange::new(start, request.end.next_multiple_of(BLOCK)))
    }
}

/// Finds, among `runs` in the order they were read, two of equal length that `request` continues at an equal distance.
/// Chooses the smallest distance. Returns the newer run and the distance.
fn progression(runs: &[ByteRange], request: ByteRange) -> Option<(ByteRange, i64)> {
    let mut best: Option<(ByteRange, i64)> = None;
    for (place, newer) in runs.iter().enumerate() {
        let jump = distance(*newer, request);
        let smaller = best.is_none_or(|(_, other)| jump.unsigned_abs() < other.unsigned_abs());
        let older = |older: &ByteRange| distance(*older, *newer) == jump && older.len() == newer.len();
        if jump != 0 && smaller && request.len() <= newer.len() && runs[..place].iter().any(older) {
            best = Some((*newer, jump));
        }
    }
    best
}

/// Returns the parts of `want` that lie in the file and are absent, at most `room` bytes.
fn limited(
    want: Vec<ByteRange>,
    size: u64,
    room: u64,
    absent: &mut dyn FnMut(ByteRange) -> Vec<ByteRange>,
) -> Vec<ByteRange> {
    let mut left = room;
    let mut fetch = Vec::new();
    for range in want {
        let range = range.intersection(&ByteRange::new(0, size));
        if range.is_empty() {
            continue;
        }
        for part in absent(range) {
            let part = ByteRange::at(part.start, part.len().min(left));
            if !part.is_empty() {
                left -= part.len();
                fetch.push(part);
            }
        }
    }
    fetch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fetches may fail, be given up, or find no memory.
    #[test] // S47
    fn what_did_not_come_is_asked_for_again_when_its_reader_misses_it() {
        let mut detector = Detector::new(8 << 20);
        let mut read = |number: u64, outcome, absent: &mut dyn FnMut(ByteRange) -> Vec<ByteRange>| {
            detector.read(ByteRange::at(number << 17, 1 << 17), outcome, 1 << 40, absent)
        };
        let nothing_is_here = &mut |range| vec![range];
        for number in 0..4 {
            read(number, RequestOutcome::Miss, nothing_is_here);
        }
        let next = ByteRange::at(5 << 17, 1 << 17);
        let again = read(4, RequestOutcome::Miss, nothing_is_here);
        assert!(again.iter().any(|range| range.intersection(&next) == next), "{again:?}");
        // Bytes that are being fetched are not requested twice, however long the reader waits.
        assert_eq!(read(5, RequestOutcome::Late, &mut |_| Vec::new()), []);
    }

    #[test] // S47
    fn a_stream_is_asked_for_in_whole_blocks_and_without_holes() {
        for (len, budget) in [(1_u64 << 17, 8_u64 << 20), (1 << 17, BLOCK), (100_000, 13_421_772), (BLOCK, 5 << 20)] {
            let (mut detector, mut asked) = (Detector::new(budget), Vec::<ByteRange>::new());
            for number in 0..200 {
                let request = ByteRange::at(number * len, len);
                let outcome = if number % 8 == 0 { RequestOutcome::Late } else { RequestOutcome::Hit };
                let end = asked.last().map_or(0, |last| last.end);
                let absent = &mut |range: ByteRange| vec![ByteRange::new(range.start.max(end), range.end.max(end))];
                for range in detector.read(request, outcome, 1 << 40, absent) {
                    assert!(end == 0 || range.start == end, "{range:?} after {asked:?}");
                    assert!(range.end - request.end <= budget + BLOCK, "{range:?} at {request:?}");
                    asked.push(range);
                }
            }
            // The first guess and the stream's beginning may have any length.
            assert!(asked[2..].iter().all(|range| (range.start % BLOCK, range.end % BLOCK) == (0, 0)), "{asked:?}");
            let asked = asked[asked.len() - 1];
            assert!(asked.end > 200 * len, "{asked:?}");
        }
    }

    #[test] // S47
    fn of_a_stream_that_may_have_less_than_a_request_nothing_is_fetched() {
        let fetched = |budget: u64| -> u64 {
            let mut detector = Detector::new(budget);
            let mut fetched = 0;
            for number in 0..100 {
                // Four streams in turn, far apart.
                let request = ByteRange::at((number % 4) * (1 << 40) + (number / 4) * (1 << 17), 1 << 17);
                let ranges = detector.read(request, RequestOutcome::Miss, 1 << 50, &mut |range| vec![range]);
                fetched += if number < 16 { 0 } else { ranges.iter().map(ByteRange::len).sum() };
            }
            fetched
        };
        assert_eq!(fetched(1 << 17), 0);
        assert!(fetched(1 << 19) >= 84 << 17);
    }
}
