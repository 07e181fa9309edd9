//! The half of the ring that the agent holds. Everything it reads is hostile input (layout, 1 to 5).

mod left;
mod sleep;

use std::ops::RangeInclusive;

use types::{ByteRange, Epoch};

pub use sleep::sleep_on;

use super::Ring;
use crate::layout::{self, NotThisRing, RECORD_BYTES, RecordHeader, RecordState, RingId};
use crate::layout::{at, flag, footprint, payload_max};
use crate::limits::TAKE_BYTES_MAX;
use crate::memory::Memory;
use crate::sequence::Sequence;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::fence;

/// What the agent's own durable record says of a ring, and what its writer may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingGrant {
    /// Its name.
    pub ring: RingId,
    /// Bytes for records.
    pub capacity: u64,
    /// Epochs that its records may bear.
    pub epochs: RangeInclusive<Epoch>,
    /// Bytes of the file that its descriptor may write: empty for one that is open for reading only.
    pub writable: ByteRange,
}

/// A whole record, its payload still in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Position of its header.
    pub position: u64,
    /// Position behind it.
    pub end: u64,
    /// Place in the file's order.
    pub sequence: u64,
    /// The file's epoch when it was written.
    pub epoch: Epoch,
    /// The bytes of the file; never empty, and within the grant.
    pub range: ByteRange,
    /// When it was written, as its program says: ns since 1970.
    pub written_ns: u64,
}

/// Why a published record is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its header is not what was written.
    Header,
    /// Its payload is not what was written.
    Payload,
    /// It is for bytes or an epoch that were not granted.
    Forbidden,
}

/// A published record that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Position of its header.
    pub position: u64,
    /// The bytes of the file, where the header still tells.
    pub range: Option<ByteRange>,
    /// What is wrong.
    pub reason: Reason,
}

/// One thing found in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingItem {
    /// A record.
    Record(Taken),
    /// A loss.
    Damage(Damage),
}

/// Why [`RingReader::take`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The next record is not published, or there is none.
    Unpublished,
    /// Enough for one call; there may be more.
    Enough,
    /// The ring must be revoked and scanned: a writer asked for it, or the next header is damaged.
    Revoke,
}

enum Slot {
    Record(RecordHeader),
    Skip(Damage, RecordHeader),
    Broken,
}

/// Takes records of one ring and gives their room back. There is one reader at a time: the agent that holds the
/// directory's lock.
#[derive(Debug)]
pub struct RingReader<M> {
    ring: Ring<M>,
    grant: RingGrant,
    /// Next position to look at.
    cursor: u64,
    /// Room below is given back. Our own copy: the word in the ring may say anything.
    tail: u64,
    /// Counter and head as they were at one moment, until the cursor has settled all of that head.
    mark: Option<(u64, u64)>,
    known_below: u64,
    revoked: bool,
    /// An earlier agent's ring: neither tail nor cursor mean anything.
    left: bool,
}

impl<M: Memory> RingReader<M> {
    /// Makes an empty ring of `memory`, whose bytes are zero, and its reader.
    pub fn create(memory: M, grant: RingGrant) -> Result<RingReader<M>, NotThisRing> {
        if !layout::capacity_is_sound(grant.capacity)
            || memory.len() as u64 != layout::HEADER_BYTES as u64 + grant.capacity
        {
            return Err(NotThisRing::Size);
        }
        layout::format(&memory, grant.ring, grant.capacity, *grant.epochs.start());
        let ring = Ring { memory, id: grant.ring, capacity: grant.capacity };
        Ok(RingReader { ring, grant, cursor: 0, tail: 0, mark: None, known_below: 0, revoked: false, left: false })
    }

    /// What the ring is.
    pub fn grant(&self) -> &RingGrant {
        &self.grant
    }

    /// Where writers will reserve next, as far as there is room. Everything acknowledged before this call lies below.
    pub fn head(&self) -> u64 {
        fence(SeqCst);
        self.ring.word(at::HEAD).load(Acquire).min(self.tail.saturating_add(self.ring.capacity))
    }

    /// Everything below was looked at.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The memory of the ring.
    pub fn memory(&self) -> &M {
        &self.ring.memory
    }

    /// Microseconds that writers slept for want of room, as they say.
    pub fn waited_us(&self) -> u64 {
        self.ring.word(at::WAITED_US).load(Relaxed)
    }

    /// Bytes of the ring that are taken and not yet given back.
    pub fn held(&self) -> u64 {
        self.cursor - self.tail
    }

    /// Bytes of the ring that writers have reserved and that are not given back, at most the capacity.
    pub fn used(&self) -> u64 {
        self.ring.word(at::HEAD).load(Acquire).saturating_sub(self.tail).min(self.ring.capacity)
    }

    /// Takes published records from where the last call stopped, at most about [`TAKE_BYTES_MAX`].
    pub fn take(&mut self, found: &mut dyn FnMut(RingItem)) -> Stop {
        match self.take_published(found) {
            Stop::Unpublished if self.ring.ending() => Stop::Revoke,
            stop => stop,
        }
    }

    /// The same without a look at what the writers ask for.
    pub(super) fn take_published(&mut self, found: &mut dyn FnMut(RingItem)) -> Stop {
        let begin = self.cursor;
        if self.revoked || self.left {
            return Stop::Revoke;
        }
        loop {
            if self.cursor - begin >= TAKE_BYTES_MAX {
                return Stop::Enough;
            }
            let position = self.cursor;
            if !self.fits(position, RECORD_BYTES) || self.ring.state(position) != Some(RecordState::Published) {
                return Stop::Unpublished;
            }
            match self.slot(position) {
                Slot::Record(header) => {
                    self.cursor += header.footprint();
                    found(self.sum(position, &header));
                }
                Slot::Skip(damage, header) => {
                    self.cursor += header.footprint();
                    found(RingItem::Damage(damage));
                }
                Slot::Broken => return Stop::Revoke,
            }
            self.ring.word(at::TAKEN).store(self.cursor, Release);
        }
    }

    /// Ends the ring: from now on only what [`RingReader::take_rest`] takes is acknowledged. Wakes writers that wait for room.
    pub fn revoke(&mut self) {
        self.revoked = true;
        revoke(&self.ring.memory);
    }

    /// Revokes the ring if that is not done, and takes every published record that is left, over holes.
    pub fn take_rest(&mut self, found: &mut dyn FnMut(RingItem)) {
        if !self.revoked {
            self.revoke();
        }
        let end = self.tail + self.ring.capacity;
        // What is acknowledged was reserved, and a writer that we do not see reserve sees that the ring is revoked. Behind that lies
        // memory that nobody has touched.
        let reserved = self.head();
        while self.cursor < reserved {
            let position = self.cursor;
            self.cursor += RECORD_BYTES;
            let state = self.ring.state(position);
            if !matches!(state, Some(RecordState::Published | RecordState::Taken | RecordState::Retracted)) {
                continue;
            }
            let slot = self.slot(position);
            let lost_to_writer = state == Some(RecordState::Published)
                && !self.ring.swap_state(position, RecordState::Published, RecordState::Taken);
            let retracted = state == Some(RecordState::Retracted) || lost_to_writer;
            match slot {
                Slot::Record(header) => {
                    self.cursor = position + header.footprint();
                    if !retracted {
                        found(self.sum(position, &header));
                    }
                }
                Slot::Skip(damage, header) => {
                    self.cursor = position + header.footprint();
                    if !retracted {
                        found(RingItem::Damage(damage));
                    }
                }
                Slot::Broken if !retracted => {
                    found(RingItem::Damage(Damage { position, range: None, reason: Reason::Header }));
                }
                Slot::Broken => {}
            }
        }
        self.cursor = end;
        self.known_below = u64::MAX;
    }

    /// A sequence number below which every record of this ring has been taken. Called after [`RingReader::take`].
    ///
    /// Counter and head are read in this order. A writer with a smaller number had stored `Reserved` and had all its
    /// room before (ring, order of the file), so its reservation is below that head. All below is settled when the
    /// cursor has passed it, or when the first that is not published has no room yet: then no later one has either.
    pub fn known_below<S: Memory>(&mut self, sequence: &Sequence<S>) -> u64 {
        if self.known_below == u64::MAX {
            return u64::MAX;
        }
        let (number, head) = match self.mark {
            Some(mark) => mark,
            None => {
                let number = sequence.next();
                // A head that the cursor has passed already settles at once.
                (number, self.ring.word(at::HEAD).load(Acquire))
            }
        };
        if self.cursor >= head || !self.next_has_room() {
            self.mark = None;
            self.known_below = self.known_below.max(number);
        } else {
            self.mark = Some((number, head));
        }
        self.known_below
    }

    /// Whether a record that was reserved below `head` may be published and is not taken: one that has no room yet is not, nor is any
    /// behind it.
    pub fn is_behind(&self, head: u64) -> bool {
        self.cursor < head && self.next_has_room()
    }

    /// Whether the record at the cursor, published or not, may have all its room.
    fn next_has_room(&self) -> bool {
        if !self.fits(self.cursor, RECORD_BYTES) {
            return false;
        }
        if self.ring.state(self.cursor) != Some(RecordState::Reserved) {
            return true;
        }
        let shape = self.ring.word(self.ring.place(self.cursor) + at::SHAPE).load(Relaxed);
        self.fits(self.cursor, footprint(shape & u64::from(u32::MAX)))
    }

    /// Where in memory `len` payload bytes of a taken record that is not yet released lie, from `skip` on: place and bytes of two
    /// parts, the second of none unless they wrap. `None` when those bytes are not in the record.
    pub fn places(&self, record: &Taken, skip: u64, len: usize) -> Option<[(usize, usize); 2]> {
        let inside = record.position >= self.tail && record.end <= self.cursor;
        if !inside || skip.saturating_add(len as u64) > record.range.len() {
            return None;
        }
        let (place, first) = self.ring.parts(Ring::<M>::payload(record.position) + skip, len);
        Some([(place, first), (layout::HEADER_BYTES, len - first)])
    }

    /// Copies payload bytes of a taken record, from `skip` on, that is not yet released. False, and the rest of `out`
    /// untouched, when those bytes are not in the record.
    pub fn copy(&self, record: &Taken, skip: u64, out: &mut [u8]) -> bool {
        let Some([(place, first), (start, _)]) = self.places(record, skip, out.len()) else { return false };
        let (before, after) = out.split_at_mut(first);
        self.ring.memory.read(place, before);
        self.ring.memory.read(start, after);
        true
    }

    /// Gives back the room below `position`, whose records are in the burst buffer (and, on a persistent medium, durable
    /// there). Never more than was taken, never backwards.
    pub fn release(&mut self, position: u64) {
        let position = position.min(self.cursor);
        if position <= self.tail {
            return;
        }
        self.tail = position;
        self.ring.word(at::RELEASED).store(position, Relaxed);
        self.ring.memory.flush(at::RELEASED, 8);
        self.ring.memory.fence();
        self.ring.word(at::TAIL).store(position, Release); // not flushed: recovery does not ask it
        fence(SeqCst);
        if self.ring.word(at::WRITERS_WAITING).load(Relaxed) != 0 {
            self.wake_writers();
        }
    }

    fn fits(&self, position: u64, need: u64) -> bool {
        need <= self.ring.capacity && (self.left || position + need <= self.tail + self.ring.capacity)
    }

    /// Reads and checks the header at `position` (layout, 3 and 4).
    fn slot(&self, position: u64) -> Slot {
        let record = self.ring.place(position);
        let Some(header) = RecordHeader::load(&self.ring.memory, record, self.ring.id, position) else {
            return Slot::Broken;
        };
        let sized = header.length > 0 && u64::from(header.length) <= payload_max(self.ring.capacity);
        if !sized || !self.fits(position, header.footprint()) {
            return Slot::Broken;
        }
        let (range, writable) = (header.range(), self.grant.writable);
        let within = range.start >= writable.start && range.end <= writable.end;
        if header.offset.checked_add(u64::from(header.length)).is_none()
            || !within
            || !self.grant.epochs.contains(&header.epoch)
        {
            let damage = Damage { position, range: Some(range), reason: Reason::Forbidden };
            return Slot::Skip(damage, header);
        }
        Slot::Record(header)
    }

    /// Checks the payload (layout, 5).
    fn sum(&self, position: u64, header: &RecordHeader) -> RingItem {
        let pieces = self.ring.pieces(Ring::<M>::payload(position), u64::from(header.length));
        let sum = pieces.fold(0, |sum, (place, bytes)| self.ring.memory.sum(place, bytes, sum));
        if sum as u32 != header.payload_sum {
            return RingItem::Damage(Damage { position, range: Some(header.range()), reason: Reason::Payload });
        }
        RingItem::Record(Taken {
            position,
            end: position + header.footprint(),
            sequence: header.sequence,
            epoch: header.epoch,
            range: header.range(),
            written_ns: header.written_ns,
        })
    }

    fn wake_writers(&self) {
        wake_writers(&self.ring.memory);
    }
}

/// Ends whatever ring lies in `memory`, of which nothing else need be known, or sound: what nobody has taken is not acknowledged
/// from now on. Wakes writers that wait for room. Does nothing where there is no room for a ring's header.
pub fn revoke<M: Memory>(memory: &M) {
    if memory.len() >= layout::HEADER_BYTES {
        memory.word(at::FLAGS).fetch_or(flag::REVOKED | flag::DRAINING, AcqRel);
        fence(SeqCst);
        wake_writers(memory);
    }
}

fn wake_writers<M: Memory>(memory: &M) {
    memory.word(at::ROOM_BELL).fetch_add(1, AcqRel);
    memory.wake(at::ROOM_BELL);
}
