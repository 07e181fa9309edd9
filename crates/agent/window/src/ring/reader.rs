//! Agent's side of the ring. All that it reads is hostile input (layout, 1 to 5).

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

/// Agent's own durable record of a ring, with the rights of its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingGrant {
    /// Id of the ring.
    pub ring: RingId,
    /// Capacity for records, bytes.
    pub capacity: u64,
    /// Epochs that the records may have.
    pub epochs: RangeInclusive<Epoch>,
    /// Bytes of the file that the descriptor may write; empty if it is open for reading only.
    pub writable: ByteRange,
}

/// Complete record, whose payload is still in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Position of the header.
    pub position: u64,
    /// Position after the record.
    pub end: u64,
    /// Sequence number in the file's order of writes.
    pub sequence: u64,
    /// Epoch of the file at the write.
    pub epoch: Epoch,
    /// Written bytes of the file; never empty, and within the grant.
    pub range: ByteRange,
    /// Time of the write according to its program, ns since 1970.
    pub written_ns: u64,
}

/// Reason why a published record is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The header is not what was written.
    Header,
    /// The payload is not what was written.
    Payload,
    /// The bytes or the epoch were not granted.
    Forbidden,
}

/// Published record that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Position of the header.
    pub position: u64,
    /// Written bytes of the file, if the header is readable.
    pub range: Option<ByteRange>,
    /// Defect of the record.
    pub reason: Reason,
}

/// Item found in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingItem {
    /// Record that was taken.
    Record(Taken),
    /// Record that was lost.
    Damage(Damage),
}

/// Reason why [`RingReader::take`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The next record is not published, or there is none.
    Unpublished,
    /// Enough was taken for one call; there may be more.
    Enough,
    /// The ring must be revoked and scanned, because a writer asked for it or the next header is damaged.
    Revoke,
}

enum Slot {
    Record(RecordHeader),
    Skip(Damage, RecordHeader),
    Broken,
}

/// Reader of one ring: takes records and gives their room back. Only the holder of the directory's lock may have one.
#[derive(Debug)]
pub struct RingReader<M> {
    ring: Ring<M>,
    grant: RingGrant,
    /// Next position to examine.
    cursor: u64,
    /// Position below which the room is given back. Our own copy, because the word in the ring may say anything.
    tail: u64,
    /// Counter and head as read at one moment. Kept until each record below is taken or known to have no room.
    mark: Option<(u64, u64)>,
    known_below: u64,
    revoked: bool,
    /// Whether an earlier agent made the ring. Neither tail nor cursor has a meaning then.
    left: bool,
}

impl<M: Memory> RingReader<M> {
    /// Makes an empty ring in `memory`, whose bytes are zero, and its reader.
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

    /// Returns the grant of the ring.
    pub fn grant(&self) -> &RingGrant {
        &self.grant
    }

    /// Returns where writers will reserve next, as far as there is room. All records acknowledged before lie below.
    pub fn head(&self) -> u64 {
        fence(SeqCst);
        self.ring.word(at::HEAD).load(Acquire).min(self.tail.saturating_add(self.ring.capacity))
    }

    /// Returns the position below which all was examined.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the memory of the ring.
    pub fn memory(&self) -> &M {
        &self.ring.memory
    }

    /// Returns the microseconds that writers slept without room, as reported by them.
    pub fn waited_us(&self) -> u64 {
        self.ring.word(at::WAITED_US).load(Relaxed)
    }

    /// Returns the bytes of the ring that are taken and not yet given back.
    pub fn held(&self) -> u64 {
        self.cursor - self.tail
    }

    /// Returns the bytes of the ring that writers have reserved and that are not given back, at most the capacity.
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

    /// Takes published records as [`RingReader::take`] does, without checking for requests of the writers.
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

    /// Ends the ring: from now on only records taken by [`RingReader::take_rest`] are acknowledged. Wakes waiting writers.
    pub fn revoke(&mut self) {
        self.revoked = true;
        revoke(&self.ring.memory);
    }

    /// Revokes the ring if necessary, and takes all remaining published records, skipping holes.
    pub fn take_rest(&mut self, found: &mut dyn FnMut(RingItem)) {
        if !self.revoked {
            self.revoke();
        }
        let end = self.tail + self.ring.capacity;
        // Every acknowledged record was reserved. A writer whose reservation is not visible here sees that the ring is
        // revoked. The memory behind `head` is untouched.
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

    /// Returns a sequence number below which every record of this ring has been taken. To be called after
    /// [`RingReader::take`].
    ///
    /// Counter and head are read in this order. A writer with a smaller number had stored `Reserved` and had all its
    /// room before (ring, order of the file), so its reservation is below that head. All records below that head are
    /// accounted for when the cursor has passed it. The same holds when the first unpublished record has no room yet,
    /// because then no later one has room either.
    pub fn known_below<S: Memory>(&mut self, sequence: &Sequence<S>) -> u64 {
        if self.known_below == u64::MAX {
            return u64::MAX;
        }
        let (number, head) = match self.mark {
            Some(mark) => mark,
            None => {
                let number = sequence.next();
                // If the cursor has passed this head already, the number is valid at once.
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

    /// Returns whether a record that was reserved below `head` may be published and is not taken. A record that has no
    /// room yet is not published, and none behind it is.
    pub fn is_behind(&self, head: u64) -> bool {
        self.cursor < head && self.next_has_room()
    }

    /// Returns whether the record at the cursor, published or not, may have all its room.
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

    /// Returns where in memory `len` payload bytes of a taken record lie, from `skip` on. The record must not be
    /// released yet. The result is offset and length of two parts; the second is empty unless the bytes wrap. `None` if
    /// the bytes are not in the record.
    pub fn places(&self, record: &Taken, skip: u64, len: usize) -> Option<[(usize, usize); 2]> {
        let inside = record.position >= self.tail && record.end <= self.cursor;
        if !inside || skip.saturating_add(len as u64) > record.range.len() {
            return None;
        }
        let (place, first) = self.ring.parts(Ring::<M>::payload(record.position) + skip, len);
        Some([(place, first), (layout::HEADER_BYTES, len - first)])
    }

    /// Copies payload bytes of a taken record, from `skip` on, to `out`. The record must not be released yet. Returns
    /// false and leaves the rest of `out` unchanged if the bytes are not in the record.
    pub fn copy(&self, record: &Taken, skip: u64, out: &mut [u8]) -> bool {
        let Some([(place, first), (start, _)]) = self.places(record, skip, out.len()) else { return false };
        let (before, after) = out.split_at_mut(first);
        self.ring.memory.read(place, before);
        self.ring.memory.read(start, after);
        true
    }

    /// Gives back the room below `position`. Its records must be in the burst buffer and, on a persistent medium,
    /// durable there. Never gives back more than was taken, and never moves backwards.
    pub fn release(&mut self, position: u64) {
        let position = position.min(self.cursor);
        if position <= self.tail {
            return;
        }
        self.tail = position;
        self.ring.word(at::RELEASED).store(position, Relaxed);
        self.ring.memory.flush(at::RELEASED, 8);
        self.ring.memory.fence();
        self.ring.word(at::TAIL).store(position, Release); // not flushed: recovery does not read it
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

/// Ends any ring in `memory`; nothing else about it need be known or valid. A record that nobody has taken is not
/// acknowledged from now on. Wakes waiting writers. Does nothing if the memory is smaller than a ring's header.
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
