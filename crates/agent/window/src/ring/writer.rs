//! Program's side of the ring. Its hot path allocates nothing and makes no system call.

use std::io::IoSlice;

use types::Epoch;

use super::Ring;
use crate::clock::now_ns;
use crate::layout::{NotThisRing, RECORD_BYTES, RecordHeader, RecordKind, RecordState, RingId};
use crate::layout::{at, flag, footprint, payload_max, shape};
use crate::limits::{PLACED_FIRST_MAX, ROOM_SPINS, SLEEP_MAX};
use crate::memory::Memory;
use crate::sequence::Sequence;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use crate::sync::fence;

/// Condition for which a writer waits when the ring has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backpressure {
    /// Waits until the writer's own bytes fit, in the order of reservations.
    #[default]
    OwnBytes,
    /// Waits until all earlier records have been applied. This is the rule of the paper that the design began with, for
    /// comparison.
    WholeQueue,
}

/// Reason why a write is not in the ring. No part of it will ever be applied; the write must go to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendRefused {
    /// The write is longer than a record may be, or ends past the largest file offset.
    Size,
    /// The ring has ended or is ending.
    Revoked,
    /// The caller did not want to wait longer. The ring is ending now, because the hole that this write leaves would
    /// stop it.
    Impatient,
    /// The caller had no offset for the write. The ring may be ending now.
    Nowhere,
}

/// Appender of records. All threads of a program share one. Must not be used in a forked child.
#[derive(Debug)]
pub struct Writer<M, S> {
    ring: Ring<M>,
    sequence: Sequence<S>,
    backpressure: Backpressure,
    payload_max: u64,
}

impl<M: Memory, S: Memory> Writer<M, S> {
    /// Makes a writer of the ring in `memory`, with the id and capacity in bytes that the agent gave. `sequence` is the
    /// counter of the written file. Errors: [`NotThisRing`].
    pub fn new(memory: M, id: RingId, capacity: u64, sequence: Sequence<S>) -> Result<Writer<M, S>, NotThisRing> {
        let ring = Ring::identified(memory, id, capacity)?;
        Ok(Writer { ring, sequence, backpressure: Backpressure::default(), payload_max: payload_max(capacity) })
    }

    /// Returns the writer with another rule for a full ring.
    pub fn with_backpressure(self, backpressure: Backpressure) -> Writer<M, S> {
        Writer { backpressure, ..self }
    }

    /// Returns the longest write that the ring takes, bytes.
    pub fn payload_max(&self) -> u64 {
        self.payload_max
    }

    /// Returns whether no further write will be taken.
    pub fn is_ending(&self) -> bool {
        self.ring.ending()
    }

    /// Makes the agent end the ring soon, because a write in it is left unfinished or may be finished twice, by a
    /// thread and its forked child.
    #[cold]
    pub fn retire(&self) {
        self.ring.word(at::FLAGS).fetch_or(flag::DRAINING, AcqRel);
        // Pairs with the fence in `Reader::lie_down`: either the reader sees the flag, or we see it sleeping.
        fence(SeqCst);
        self.ring_the_bell();
    }

    /// Returns whether the agent has ended the ring. A record published from now on is not acknowledged.
    pub fn is_over(&self) -> bool {
        self.ring.word(at::FLAGS).load(Acquire) & flag::REVOKED != 0
    }

    /// Reports that a thread slept for `us` microseconds without room.
    pub fn note_wait(&self, us: u64) {
        self.ring.word(at::WAITED_US).fetch_add(us, Relaxed);
    }

    /// Writes `bytes` at `offset` of the file. `Ok` is the acknowledgement: the bytes will reach the burst buffer even
    /// if this program and the agent die. Waits while the ring is full, as long as `patience` returns true; it is asked
    /// at least about every [`SLEEP_MAX`].
    ///
    /// Bytes that cannot be read raise SIGSEGV, where the kernel would return `EFAULT`.
    pub fn append(&self, offset: u64, bytes: &[u8], patience: &mut dyn FnMut() -> bool) -> Result<(), AppendRefused> {
        self.append_parts(offset, &[IoSlice::new(bytes)], patience)
    }

    /// Writes the buffers of a `pwritev` as one record, as [`Writer::append`] does.
    pub fn append_parts(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
        patience: &mut dyn FnMut() -> bool,
    ) -> Result<(), AppendRefused> {
        let length = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        if offset > (i64::MAX as u64).saturating_sub(length) {
            return Err(AppendRefused::Size);
        }
        self.append_where(parts, || Some(offset), patience)
    }

    /// Writes the buffers at an offset that `place` returns; `None` refuses the write. For a long write, or one without
    /// room yet, `place` is called when the bytes are in the ring and the record is about to be published. A signal
    /// handler that leaves the call earlier by a jump has then taken no offset. For other writes `place` is called
    /// before anything is reserved. It may have to wait for a thread that itself waits for reserved room.
    pub fn append_where(
        &self,
        parts: &[IoSlice<'_>],
        place: impl FnOnce() -> Option<u64>,
        patience: &mut dyn FnMut() -> bool,
    ) -> Result<(), AppendRefused> {
        let length = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        if length == 0 {
            return Ok(()); // changes nothing, not even the size
        }
        if length > self.payload_max {
            return Err(AppendRefused::Size);
        }
        if self.ring.ending() {
            return Err(AppendRefused::Revoked);
        }
        let need = footprint(length);
        let (mut place, mut offset) = (Some(place), None);
        let mut ask = || place.take().and_then(|place| place()).filter(|offset| *offset <= i64::MAX as u64 - length);
        if length <= PLACED_FIRST_MAX && self.has_room(self.ring.word(at::HEAD).load(Relaxed), need) {
            offset = Some(ask().ok_or(AppendRefused::Nowhere)?);
        }
        // Relaxed: a reader of `head` has synchronised with the sequence counter, which is taken later (`known_below`).
        let position = self.ring.word(at::HEAD).fetch_add(need, Relaxed);
        self.wait_for_room(position, RECORD_BYTES, patience)?;
        let record = self.ring.place(position);
        self.ring.word(record + at::SHAPE).store(shape(length as u32, RecordKind::Write), Relaxed);
        self.ring.set_state(position, RecordState::Reserved);
        self.wait_for_room(position, need, patience)?;
        let payload_sum = self.copy(position, length, parts);
        let offset = match offset {
            Some(offset) => offset,
            // A thread and its forked child must not both publish one record, at two offsets.
            None if self.ring.ending() => return Err(AppendRefused::Revoked),
            None => ask().ok_or(AppendRefused::Nowhere).inspect_err(|_| self.retire())?,
        };
        let header = RecordHeader {
            sequence: self.sequence.take(),
            epoch: Epoch(self.ring.word(at::EPOCH).load(Relaxed)),
            offset,
            length: length as u32,
            kind: RecordKind::Write,
            payload_sum,
            written_ns: now_ns(),
        };
        self.publish(position, record, &header)
    }

    /// Copies the payload into the ring and flushes it. Returns the checksum of the bytes that arrived.
    fn copy(&self, position: u64, length: u64, parts: &[IoSlice<'_>]) -> u32 {
        let (mut parts, mut left) = (parts.iter(), &[][..]);
        let mut sum = 0;
        for (place, bytes) in self.ring.pieces(Ring::<M>::payload(position), length) {
            let (mut done, mut summed) = (0, false);
            while done < bytes {
                if left.is_empty() {
                    // The parts together are as long as the pieces, unless the program changes them now.
                    let Some(part) = parts.next() else { break };
                    left = part;
                }
                let (now, rest) = left.split_at(left.len().min(bytes - done));
                summed = now.len() == bytes;
                match summed {
                    true => sum = self.ring.memory.write_summed(place, now, sum),
                    false => self.ring.memory.write(place + done, now),
                }
                (done, left) = (done + now.len(), rest);
            }
            if !summed {
                sum = self.ring.memory.sum(place, bytes, sum);
            }
            self.ring.memory.flush(place, bytes);
        }
        sum as u32
    }

    fn publish(&self, position: u64, record: usize, header: &RecordHeader) -> Result<(), AppendRefused> {
        header.store(&self.ring.memory, record, self.ring.id, position);
        self.ring.memory.flush(record, RECORD_BYTES as usize);
        self.ring.memory.fence();
        self.ring.set_state(position, RecordState::Published);
        self.ring.memory.flush(record, 8);
        self.ring.memory.fence();
        // Pairs with this fence in `Reader::revoke` and `Reader::sleep`: either we see the flag, or they see the
        // record.
        fence(SeqCst);
        if self.ring.word(at::FLAGS).load(Acquire) & flag::REVOKED != 0 {
            return self.fate(position, header.footprint());
        }
        self.ring_the_bell();
        Ok(())
    }

    fn ring_the_bell(&self) {
        if self.ring.word(at::READER_SLEEPING).load(Relaxed) != 0 {
            self.ring.word(at::RECORD_BELL).fetch_add(1, AcqRel);
            self.ring.memory.wake(at::RECORD_BELL);
        }
    }

    /// Decides about a record that was published at about the time of the revocation.
    #[cold]
    fn fate(&self, position: u64, need: u64) -> Result<(), AppendRefused> {
        let taken_while_live = self.ring.word(at::TAKEN).load(Acquire) >= position + need;
        if taken_while_live {
            return Ok(());
        }
        if !self.ring.swap_state(position, RecordState::Published, RecordState::Retracted) {
            // Otherwise a forked child, which continues with the same record, has retracted it.
            let taken = self.ring.state(position) == Some(RecordState::Taken);
            return if taken { Ok(()) } else { Err(AppendRefused::Revoked) };
        }
        // Without this, a crash of the machine might bring the record back, over data written elsewhere since.
        self.ring.memory.flush(self.ring.place(position), 8);
        self.ring.memory.fence();
        Err(AppendRefused::Revoked)
    }

    fn has_room(&self, position: u64, need: u64) -> bool {
        position + need <= self.ring.word(at::TAIL).load(Acquire) + self.ring.capacity
    }

    fn wait_for_room(&self, position: u64, need: u64, patience: &mut dyn FnMut() -> bool) -> Result<(), AppendRefused> {
        if self.has_room(position, need) {
            return Ok(());
        }
        self.wait_long(position, need, patience)
    }

    #[cold]
    fn wait_long(&self, position: u64, need: u64, patience: &mut dyn FnMut() -> bool) -> Result<(), AppendRefused> {
        let enough = || match self.backpressure {
            Backpressure::OwnBytes => self.has_room(position, need),
            Backpressure::WholeQueue => self.ring.word(at::TAIL).load(Acquire) >= position,
        };
        let waiting = self.ring.word(at::WRITERS_WAITING);
        for turn in 0u32.. {
            if enough() {
                return Ok(());
            }
            if self.ring.ending() {
                return Err(AppendRefused::Revoked);
            }
            if turn < ROOM_SPINS {
                pause();
                continue;
            }
            if !patience() {
                self.retire();
                return Err(AppendRefused::Impatient);
            }
            waiting.fetch_add(1, AcqRel);
            // Pairs with the fence in `Reader::release`: either the reader sees us waiting, or we see its tail.
            fence(SeqCst);
            let bell = self.ring.word(at::ROOM_BELL).load(Acquire);
            if !enough() && !self.ring.ending() {
                self.ring.memory.sleep(at::ROOM_BELL, bell as u32, SLEEP_MAX);
            }
            waiting.fetch_sub(1, AcqRel);
        }
        Err(AppendRefused::Impatient) // 2^32 sleeps
    }
}

#[cfg(not(loom))]
fn pause() {
    std::hint::spin_loop();
}

#[cfg(loom)]
fn pause() {
    loom::thread::yield_now();
}
