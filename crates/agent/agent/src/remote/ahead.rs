//! Reading ahead of the programs of this node: what a file's readers are expected to want is fetched from the server into memory of
//! the node before they ask, for each request costs a round trip.
//!
//! 1. what is kept is of one version of a file, which its readers have open; an open drops what was fetched before it;
//! 2. what this node changes is gone from here before the change is answered, also what is on its way;
//! 3. nothing is given out that was asked for longer ago than the policy `revalidate` says: what other nodes write is seen then
//!    at the latest;
//! 4. that a file ends is never said from here: a read that finds no byte asks the server.
//!
//! Locks, in the order in which they are taken: the versions or the fetches ([`super::fetches`]); what is kept of one version.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};
use file_cache::{Fared, Foresee};
use types::{ByteRange, Identity, RangeSet};
use window::limits::BLOCK;
use window::read_queue::{FetchTicket, Part, Purge, ReadQueue, SharedBytes};

use super::buffers::{Buffer, Buffers};
use super::earned::Earned;
use super::is_interrupted;
use super::kept::RetainedReads;
use crate::limits::SERVER_AHEAD_READ_BYTES;

/// How often a reader that waits for what is on its way looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// All of a file.
pub(super) const ALL: ByteRange = ByteRange { start: 0, end: u64::MAX };

/// What is kept of one version of a file.
pub(super) struct Ahead {
    state: Mutex<State>,
    /// A fetch has ended.
    ended: Condvar,
    /// How long what was asked for is good.
    fresh: Duration,
    kept: Arc<RetainedReads>,
    buffers: Arc<Buffers>,
    /// Open files that read it.
    readers: AtomicUsize,
}

/// An open file that reads what is kept of its version.
pub(super) struct Reading(Arc<Ahead>);

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
    /// What is on its way.
    fetches: BTreeMap<FetchTicket, AheadFetch>,
    /// What has come, and when it was asked for, the longest ago first.
    asked: VecDeque<(Instant, ByteRange)>,
    /// Changes of this node.
    changes: u64,
    /// What was given out since it came.
    read: RangeSet,
    /// Where a fetch found the end of the file.
    end: Option<u64>,
    /// Bytes of the queue that are counted in [`RetainedReads`].
    counted: u64,
    earned: Earned,
}

/// When a fetch was asked for, how many changes there had been, and its bytes.
struct AheadFetch {
    at: Instant,
    changes: u64,
    bytes: u64,
}

impl State {
    fn ask(&mut self, ticket: FetchTicket, bytes: u64) {
        self.fetches.insert(ticket, AheadFetch { at: Instant::now(), changes: self.changes, bytes });
    }

    /// A read has found all of `range`.
    fn give_out(&mut self, range: ByteRange) {
        let fresh = self.read.missing(range).iter().map(ByteRange::len).sum();
        self.earned.uses(fresh);
        self.read.insert(range);
    }

    /// Of what is expected to be read after `read`, the nearest first, that which the reads of the file have earned; nothing that is less
    /// than such a request, for the rest of it would be a request again.
    fn afford(&self, mut following: Vec<ByteRange>, read: ByteRange) -> Vec<ByteRange> {
        if following.is_empty() {
            return following;
        }
        // What the read will find of what was fetched ahead is used.
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

    /// (3)
    fn expire(&mut self, fresh: Duration) {
        while let Some((asked, range)) = self.asked.front()
            && asked.elapsed() >= fresh
        {
            self.queue.consume(*range);
            self.end = None;
            self.asked.pop_front();
        }
    }

    /// Drops what was read: others need its room more than a reader who may come back.
    fn forget_read(&mut self) {
        for range in std::mem::take(&mut self.read).iter() {
            self.queue.consume(range);
        }
    }

    fn within(&self, range: ByteRange) -> ByteRange {
        self.end.map_or(range, |end| range.intersection(&ByteRange::new(0, end)))
    }

    /// Whether something of `range` is still to come.
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

/// What a read found.
enum Found {
    /// So many bytes, all that are asked for or up to where the file ended lately.
    All(usize),
    /// These parts have to be asked for; the rest is filled in.
    Lacks(Vec<ByteRange>),
    /// Some of it is on its way.
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

    /// Memory for a fetch.
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

    /// Before a read of `range`: what is to be fetched, by what `foresee` says.
    pub fn meet(&self, range: ByteRange, foresee: Foresee<'_>) -> Vec<ByteRange> {
        self.change(|state| {
            state.expire(self.fresh);
            let within = state.within(range);
            let fared = state.fares(within);
            if !within.is_empty() {
                self.kept.count(fared);
            }
            // As far as anybody knows: what lies behind the end comes back empty.
            let size = state.end.unwrap_or(i64::MAX as u64);
            let following = foresee(size, fared, &mut |range| state.queue.absent(range));
            if range.is_empty() {
                // What a program says that it will need it has asked for.
                state.earned.needs(following.iter().map(ByteRange::len).sum());
                return following;
            }
            state.earned.reads(range);
            state.afford(following, range)
        })
    }

    /// Bytes that may lie ahead of a read of so many.
    pub fn earned(&self, bytes: u64) -> u64 {
        self.state.lock().earned.window(bytes)
    }

    /// All of `range` where it lies, if it is here.
    pub fn parts(&self, range: ByteRange) -> Option<Vec<Part>> {
        self.change(|state| {
            state.expire(self.fresh);
            let parts = state.queue.parts(state.within(range)).filter(|parts| !parts.is_empty())?;
            state.give_out(state.within(range));
            Some(parts)
        })
    }

    /// A reader in sequence is done with `range`: what he read last goes, where much is kept and nobody else reads the file.
    pub fn spent(&self, range: ByteRange) {
        if self.kept.bytes() < SERVER_AHEAD_READ_BYTES || self.readers.load(Ordering::Acquire) > 1 {
            return;
        }
        // Not all that he ever read: another stream of the same open file may be there by now.
        let last = ByteRange::new(range.start.max(range.end.saturating_sub(2 * BLOCK)), range.end);
        self.change(|state| state.queue.consume(last));
    }

    /// Reads what is here, waits for what is on its way, for at most `patience`, and asks for the rest by `ask`, which reads fewer
    /// bytes only at the end of the file. `sooner` is told that somebody waits for a range, and once more when he has waited long: it may
    /// fetch, or end the fetch of, what nobody has begun.
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
            // Where it ended lately it may go on by now.
            lacking.extend((within.end < range.end).then(|| ByteRange::new(within.end, range.end)));
            Found::Lacks(lacking)
        })
    }

    /// A fetch of what of `range` is neither here nor on its way begins; one for each part, of at most `most` bytes.
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

    /// A fetch is sent only now: what comes is of this moment, or later.
    pub fn send(&self, ticket: FetchTicket) {
        let mut state = self.state.lock();
        let bytes = state.fetches.get(&ticket).map_or(0, |asked| asked.bytes);
        state.ask(ticket, bytes);
    }

    /// What was fetched has come; fewer bytes than asked for: the file ends there, unless it was changed meanwhile.
    pub fn arrive(&self, ticket: FetchTicket, range: ByteRange, data: SharedBytes) {
        let len = (*data).as_ref().len() as u64;
        self.change(|state| {
            let Some(asked) = state.fetches.remove(&ticket) else { return };
            if len < range.len() && asked.changes == state.changes {
                state.end = Some(range.start + len);
            }
            state.earned.gives_back(range.len() - len);
            // What is too old already goes with the next look.
            let after = state.asked.partition_point(|(at, _)| *at <= asked.at);
            state.asked.insert(after, (asked.at, range));
            state.read.remove(range);
            state.queue.arrive(ticket, range.start, data);
        });
        self.ended.notify_all();
    }

    /// A fetch has failed, or is not made.
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

/// What is kept of one file, by the server's numbers of its versions.
type OfFile = Vec<(u64, Weak<Ahead>)>;

/// What is kept of every file that is read ahead.
#[derive(Default)]
pub(super) struct ReadAheadVersions {
    files: Mutex<HashMap<Identity, OfFile>>,
    /// Files, so that writers of others look at one word.
    known: AtomicUsize,
    kept: Arc<RetainedReads>,
}

impl ReadAheadVersions {
    pub fn kept(&self) -> &Arc<RetainedReads> {
        &self.kept
    }

    /// What is kept of a version, which its handles share.
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

    /// Bytes of a file have changed, or may have (1, 2).
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

    /// Drops what is too old to be given out, and everywhere what was read.
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
