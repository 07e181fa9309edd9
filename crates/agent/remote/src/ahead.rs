//! Read-ahead for the programs of this node. The data that a file's readers are expected to need is fetched from the
//! server into the node's memory before they ask, because each request costs a round trip.
//!
//! 1. Data is kept for one version of a file, the one that its readers have open. An open drops data fetched before it.
//! 2. Bytes changed by this node are dropped before the change is answered, also bytes of fetches under way.
//! 3. Data requested longer ago than the policy `revalidate` allows is not returned. So writes of other nodes are seen
//!    at the latest then.
//! 4. The end of a file is never reported from here: a read that finds no byte asks the server.
//!
//! Lock order: the versions or the fetches ([`crate::fetches`]), then the state of one version.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};
use data_store::{Fared, FindMissing};
use types::{ByteRange, Identity, RangeSet};
use window::limits::BLOCK;
use window::read_queue::{FetchTicket, Part, Purge, ReadQueue, SharedBytes};

use crate::buffers::{Buffer, Buffers};
use crate::earned::Earned;
use crate::kept::RetainedReads;
use crate::limits::SERVER_AHEAD_READ_BYTES;
use data_store::is_interrupted;

/// Interval at which a reader that waits for a fetch checks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// Range of a whole file.
pub(crate) const ALL: ByteRange = ByteRange { start: 0, end: u64::MAX };

/// Data kept of one version of a file.
pub(crate) struct Ahead {
    state: Mutex<State>,
    /// Signalled when a fetch has ended.
    ended: Condvar,
    /// How long fetched data may be used after its request.
    fresh: Duration,
    kept: Arc<RetainedReads>,
    buffers: Arc<Buffers>,
    /// Number of open files that read this version.
    readers: AtomicUsize,
}

/// An open file's use of the data kept of its version.
pub(crate) struct Reading(Arc<Ahead>);

impl Reading {
    pub fn of(ahead: Arc<Ahead>) -> Reading {
        ahead.readers.fetch_add(1, Ordering::AcqRel);
        Reading(ahead)
    }

    pub fn ahead(&self) -> &Arc<Ahead> {
        &self.0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

struct State {
    queue: ReadQueue,
    /// Fetches under way.
    fetches: BTreeMap<FetchTicket, AheadFetch>,
    /// Ranges that have arrived and the times of their requests, the oldest first.
    asked: VecDeque<(Instant, ByteRange)>,
    /// Number of changes by this node.
    changes: u64,
    /// Bytes that were returned to readers since they arrived.
    read: RangeSet,
    /// End of the file, if a fetch found it.
    end: Option<u64>,
    /// Bytes of the queue that are counted in [`RetainedReads`].
    counted: u64,
    earned: Earned,
}

/// Time of a fetch's request, number of changes before it, and its bytes.
struct AheadFetch {
    at: Instant,
    changes: u64,
    bytes: u64,
}

impl State {
    fn ask(&mut self, ticket: FetchTicket, bytes: u64) {
        self.fetches.insert(ticket, AheadFetch { at: Instant::now(), changes: self.changes, bytes });
    }

    /// Notes that a read has found all of `range`.
    fn give_out(&mut self, range: ByteRange) {
        let fresh = self.read.missing(range).iter().map(ByteRange::len).sum();
        self.earned.uses(fresh);
        self.read.insert(range);
    }

    /// Limits the predicted ranges, the nearest first, to what reads of the file have earned. A range is cut only if at
    /// least one more such request fits; for the rest of a smaller one, a request would be needed again.
    fn afford(&self, mut following: Vec<ByteRange>, read: ByteRange) -> Vec<ByteRange> {
        if following.is_empty() {
            return following;
        }
        // Fetched bytes that this read will find count as used.
        let fetched =
            |part: &ByteRange| part.len().saturating_sub(self.queue.absent(*part).iter().map(ByteRange::len).sum());
        let found: u64 = self.read.missing(self.within(read)).iter().map(fetched).sum();
        let (mut room, request) = (self.earned.room().saturating_add(found), read.len());
        for range in &mut following {
            let bytes = if range.len() <= room || room >= request { range.len().min(room) } else { 0 };
            *range = ByteRange::at(range.start, bytes);
            room -= bytes;
        }
        following.retain(|range| !range.is_empty());
        following
    }

    /// Drops data that is too old (3).
    fn expire(&mut self, fresh: Duration) {
        while let Some((asked, range)) = self.asked.front()
            && asked.elapsed() >= fresh
        {
            self.queue.consume(*range);
            self.end = None;
            self.asked.pop_front();
        }
    }

    /// Drops data that was returned already: others need the memory more than a reader who may come back.
    fn forget_read(&mut self) {
        for range in std::mem::take(&mut self.read).iter() {
            self.queue.consume(range);
        }
    }

    fn within(&self, range: ByteRange) -> ByteRange {
        self.end.map_or(range, |end| range.intersection(&ByteRange::new(0, end)))
    }

    /// Whether a fetch of some of `range` is under way.
    fn awaits(&self, range: ByteRange) -> bool {
        self.queue.lacking(range).iter().any(|part| self.queue.absent(*part) != [*part])
    }

    fn fares(&self, range: ByteRange) -> Fared {
        match self.queue.lacking(range).is_empty() {
            true => Fared::Hit,
            false if self.queue.absent(range).is_empty() => Fared::Late,
            false => Fared::Miss,
        }
    }
}

/// Result of a lookup for a read.
enum Found {
    /// Number of bytes found: all that were requested, or all up to the last known end of the file.
    All(usize),
    /// Parts that must be requested; the rest is copied.
    Lacks(Vec<ByteRange>),
    /// Some bytes are under way.
    Waits,
}

impl Ahead {
    fn new(bytes_max: u64, fresh: Duration, kept: &Arc<RetainedReads>) -> Ahead {
        let (queue, asked, read) = (ReadQueue::new(bytes_max), VecDeque::new(), RangeSet::new());
        let state = Mutex::new(State {
            queue,
            fetches: BTreeMap::new(),
            asked,
            changes: 0,
            read,
            end: None,
            counted: 0,
            earned: Earned::default(),
        });
        let (buffers, kept) = (kept.buffers(), Arc::clone(kept));
        Ahead { state, ended: Condvar::new(), fresh, kept, buffers, readers: AtomicUsize::new(0) }
    }

    /// Returns memory for a fetch.
    pub fn buffer(&self, len: usize) -> Buffer {
        self.buffers.take(len)
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = act(&mut state);
        let now = state.queue.bytes();
        let before = std::mem::replace(&mut state.counted, now);
        self.kept.change(before, now);
        done
    }

    /// Handles the announcement of a read of `range`. Returns the ranges to fetch, as predicted by `foresee`.
    pub fn meet(
        &self,
        range: ByteRange,
        foresee: &mut dyn FnMut(u64, Fared, FindMissing<'_>) -> Vec<ByteRange>,
    ) -> Vec<ByteRange> {
        self.change(|state| {
            state.expire(self.fresh);
            let within = state.within(range);
            let fared = state.fares(within);
            if !within.is_empty() {
                self.kept.count(fared);
            }
            // The size is a guess: fetches beyond the end return nothing.
            let size = state.end.unwrap_or(i64::MAX as u64);
            let following = foresee(size, fared, &mut |range| state.queue.absent(range));
            if range.is_empty() {
                // Bytes that a program has announced count as requested.
                state.earned.needs(following.iter().map(ByteRange::len).sum());
                return following;
            }
            state.earned.reads(range);
            state.afford(following, range)
        })
    }

    /// Returns how many bytes may lie ahead of a read of `bytes` bytes.
    pub fn earned(&self, bytes: u64) -> u64 {
        self.state.lock().earned.window(bytes)
    }

    /// Returns all of `range` as parts of memory, if it is here.
    pub fn parts(&self, range: ByteRange) -> Option<Vec<Part>> {
        self.change(|state| {
            state.expire(self.fresh);
            let parts = state.queue.parts(state.within(range)).filter(|parts| !parts.is_empty())?;
            state.give_out(state.within(range));
            Some(parts)
        })
    }

    /// Notes that a sequential reader is done with `range`. Drops the last part of it, if much is kept and there is no
    /// other reader.
    pub fn spent(&self, range: ByteRange) {
        if self.kept.bytes() < SERVER_AHEAD_READ_BYTES || self.readers.load(Ordering::Acquire) > 1 {
            return;
        }
        // Only the last part: by now another stream of this open file may read the rest.
        let last = ByteRange::new(range.start.max(range.end.saturating_sub(2 * BLOCK)), range.end);
        self.change(|state| state.queue.consume(last));
    }

    /// Reads data that is here, and waits for fetches under way for at most `patience`. Requests the rest by `ask`,
    /// which reads fewer bytes only at the end of the file. `sooner` is called when the wait for a range begins, and
    /// again after [`LOOK`]. It may run or cancel fetches that are still queued. Errors: `EINTR`, `ETIMEDOUT`, those of
    /// `ask`.
    pub fn read(
        &self,
        buffer: &mut [u8],
        offset: u64,
        patience: Duration,
        sooner: &dyn Fn(ByteRange, bool),
        ask: &dyn Fn(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let range = ByteRange::at(offset, buffer.len() as u64);
        let until = Instant::now() + patience;
        let (mut told, mut long) = (false, Some(Instant::now() + LOOK));
        let lacking = loop {
            match self.find(buffer, range) {
                Found::All(bytes) => return Ok(bytes),
                Found::Lacks(lacking) => break lacking,
                Found::Waits => {
                    if !std::mem::replace(&mut told, true) {
                        sooner(range, false);
                    } else if long.take_if(|long| Instant::now() >= *long).is_some() {
                        sooner(range, true);
                    } else {
                        let mut state = self.state.lock();
                        if state.awaits(state.within(range)) {
                            self.ended.wait_for(&mut state, LOOK);
                        }
                    }
                    if is_interrupted() {
                        return Err(io::Error::from_raw_os_error(libc::EINTR));
                    }
                    if Instant::now() >= until {
                        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
                    }
                }
            }
        };
        for part in &lacking {
            let place = (part.start - offset) as usize;
            let got = ask(&mut buffer[place..place + part.len() as usize], part.start)?;
            if (got as u64) < part.len() {
                return Ok(place + got);
            }
        }
        Ok(buffer.len())
    }

    fn find(&self, buffer: &mut [u8], range: ByteRange) -> Found {
        self.change(|state| {
            state.expire(self.fresh);
            let within = state.within(range);
            if within.is_empty() {
                return Found::Lacks(vec![range]); // (4)
            }
            let len = within.len() as usize;
            let mut lacking = state.queue.read(within.start, &mut buffer[..len], Purge::Retain);
            if lacking.is_empty() {
                state.give_out(within);
                return Found::All(len);
            }
            if state.awaits(within) {
                return Found::Waits;
            }
            let found = within.len() - lacking.iter().map(ByteRange::len).sum::<u64>();
            state.earned.uses(found);
            // The file may have grown since the end was seen.
            lacking.extend((within.end < range.end).then(|| ByteRange::new(within.end, range.end)));
            Found::Lacks(lacking)
        })
    }

    /// Begins fetches of the parts of `range` that are neither here nor under way. Each fetch has at most `most` bytes.
    pub fn begin(&self, range: ByteRange, most: u64) -> Vec<(FetchTicket, ByteRange)> {
        let mut state = self.state.lock();
        let parts = state.queue.absent(state.within(range));
        let pieces = parts.into_iter().flat_map(|part| {
            let starts = (part.start..part.end).step_by(most as usize);
            starts.map(move |start| ByteRange::new(start, part.end.min(start + most)))
        });
        pieces
            .map(|piece| {
                let ticket = state.queue.begin(piece);
                state.ask(ticket, piece.len());
                state.earned.fetches(piece.len());
                (ticket, piece)
            })
            .collect()
    }

    /// Notes that a queued fetch is sent now. Its data counts as of this moment.
    pub fn send(&self, ticket: FetchTicket) {
        let mut state = self.state.lock();
        let bytes = state.fetches.get(&ticket).map_or(0, |asked| asked.bytes);
        state.ask(ticket, bytes);
    }

    /// Stores the data of a fetch. Fewer bytes than requested mean the end of the file, unless it was changed
    /// meanwhile.
    pub fn arrive(&self, ticket: FetchTicket, range: ByteRange, data: SharedBytes) {
        let len = (*data).as_ref().len() as u64;
        self.change(|state| {
            let Some(asked) = state.fetches.remove(&ticket) else { return };
            if len < range.len() && asked.changes == state.changes {
                state.end = Some(range.start + len);
            }
            state.earned.gives_back(range.len() - len);
            // Data that is too old already is dropped at the next lookup.
            let after = state.asked.partition_point(|(at, _)| *at <= asked.at);
            state.asked.insert(after, (asked.at, range));
            state.read.remove(range);
            state.queue.arrive(ticket, range.start, data);
        });
        self.ended.notify_all();
    }

    /// Ends a fetch that has failed or was not sent.
    pub fn cancel(&self, ticket: FetchTicket) {
        self.change(|state| {
            let bytes = state.fetches.remove(&ticket).map_or(0, |asked| asked.bytes);
            state.earned.gives_back(bytes);
            state.queue.cancel(ticket);
        });
        self.ended.notify_all();
    }

    fn invalidate(&self, range: ByteRange) {
        self.change(|state| {
            state.queue.invalidate(range);
            state.changes += 1;
            state.end = None;
        });
        self.ended.notify_all();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.kept.change(self.state.get_mut().counted, 0);
    }
}

/// Data kept of one file, by the server's version numbers.
type OfFile = Vec<(u64, Weak<Ahead>)>;

/// Data kept of all files that are read ahead.
#[derive(Default)]
pub(crate) struct ReadAheadVersions {
    files: Mutex<HashMap<Identity, OfFile>>,
    /// Number of files, so that writers of other files need to check one word only.
    known: AtomicUsize,
    kept: Arc<RetainedReads>,
}

impl ReadAheadVersions {
    pub fn kept(&self) -> &Arc<RetainedReads> {
        &self.kept
    }

    /// Returns the data kept of a version, which is shared by its handles.
    pub fn of(&self, identity: &Identity, version: u64, bytes_max: u64, fresh: Duration) -> Arc<Ahead> {
        let mut files = self.files.lock();
        files.retain(|_, versions| {
            versions.retain(|(_, ahead)| ahead.strong_count() > 0);
            !versions.is_empty()
        });
        let versions = files.entry(identity.clone()).or_default();
        let known = versions.iter().find(|(number, _)| *number == version).and_then(|(_, ahead)| ahead.upgrade());
        let ahead = known.unwrap_or_else(|| {
            let ahead = Arc::new(Ahead::new(bytes_max, fresh, &self.kept));
            versions.push((version, Arc::downgrade(&ahead)));
            ahead
        });
        self.known.store(files.len(), Ordering::Release);
        ahead
    }

    /// Drops data after bytes of a file have changed, or may have (1, 2).
    pub fn changed(&self, identity: &Identity, range: ByteRange) {
        if self.known.load(Ordering::Acquire) == 0 {
            return;
        }
        let versions: Vec<Arc<Ahead>> = match self.files.lock().get(identity) {
            Some(versions) => versions.iter().filter_map(|(_, ahead)| ahead.upgrade()).collect(),
            None => return,
        };
        versions.iter().for_each(|ahead| ahead.invalidate(range));
    }

    /// Drops all data that is too old, and all that was returned already.
    pub fn make_room(&self) {
        let all: Vec<Arc<Ahead>> =
            self.files.lock().values().flatten().filter_map(|(_, ahead)| ahead.upgrade()).collect();
        for ahead in all {
            ahead.change(|state| {
                state.expire(ahead.fresh);
                state.forget_read();
            });
        }
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
