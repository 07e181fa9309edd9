//! Ring: a write queue that is its own journal.
//!
//! Writers (threads of one program) append records. The reader (the agent) takes the records in order. When their bytes
//! are in the burst buffer, the reader gives the room back. Steps of one record:
//!
//! 1. *reserve*: `head` grows by the record's footprint; the first to reserve has room first;
//! 2. when its header line is free, length and `Reserved` are stored there;
//! 3. when all its room is free, the payload is copied and summed, and flushed if the medium is persistent;
//! 4. the file's next sequence number is taken, the header stored, flushed and fenced;
//! 5. *publish*: `Published` is stored (release), flushed and fenced;
//! 6. after a sequentially consistent fence the `REVOKED` flag is read; if clear, the write is acknowledged.
//!
//! The reader of a live ring takes published records and stops at the first one that is not published. To end a ring,
//! the reader sets `REVOKED`, fences, and scans a last time. It takes each published record by a compare-and-swap to
//! `Taken`.
//!
//! A writer that finds `REVOKED` in step 6 is acknowledged if its record lies below `taken`, because the record was
//! taken before the flag. Otherwise the writer tries to swap `Published` to `Retracted`. One of the two swaps wins. So
//! each write is either in the journal and acknowledged, or in neither and goes to the kernel.
//!
//! A *hole* is a reservation that was never published. It stops a live ring, and is skipped only after `REVOKED`: from
//! then on no record behind it is acknowledged unless the scan takes it. The scan does not need the hole's length. It
//! tries each multiple of 64; a commit word names ring and position (layout, 2), so neither payload nor former laps
//! match.
//!
//! Order of the file: a writer with a number below the file's counter had passed step 2 and had all its room before the
//! counter was read. [`RingReader::known_below`] relies on this.

#[cfg(all(test, not(loom)))]
mod golden;
#[cfg(all(test, not(loom)))]
mod hostile;
#[cfg(all(loom, test))]
mod interleavings;
mod reader;
mod writer;

pub use reader::{Damage, Reason, RingGrant, RingItem, RingReader, Stop, Taken, revoke, sleep_on};
pub use writer::{AppendRefused, Backpressure, Writer};

use crate::layout::{
    HEADER_BYTES, NotThisRing, RECORD_BYTES, RecordState, RingId, at, commit_word, identify, state_of,
};
use crate::limits::COPY_CHUNK;
use crate::memory::Memory;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};

/// Memory of one ring with its id and capacity, by which records are found.
#[derive(Debug)]
struct Ring<M> {
    memory: M,
    id: RingId,
    capacity: u64,
}

impl<M: Memory> Ring<M> {
    fn identified(memory: M, id: RingId, capacity: u64) -> Result<Ring<M>, NotThisRing> {
        identify(&memory, id, capacity)?;
        Ok(Ring { memory, id, capacity })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.memory.word(at)
    }

    /// Returns the offset in memory of `position`.
    fn place(&self, position: u64) -> usize {
        HEADER_BYTES + (position & (self.capacity - 1)) as usize
    }

    /// Returns the offset in memory of `len` bytes from `position`, and how many of them lie before the ring's end. The
    /// others are at its start.
    fn parts(&self, position: u64, len: usize) -> (usize, usize) {
        let place = self.place(position);
        (place, len.min(HEADER_BYTES + self.capacity as usize - place))
    }

    /// Returns whether no new record may begin.
    fn ending(&self) -> bool {
        self.word(at::FLAGS).load(Acquire) != 0
    }

    /// Returns the pieces by which the checksum of `len` payload bytes from `position` is computed, as offset and
    /// length. A piece has at most [`COPY_CHUNK`] bytes and is contiguous in memory.
    fn pieces(&self, position: u64, len: u64) -> impl Iterator<Item = (usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let wanted = (len - done).min(COPY_CHUNK as u64) as usize;
            let (place, bytes) = self.parts(position + done, wanted);
            done += bytes as u64;
            (bytes > 0).then_some((place, bytes))
        })
    }

    fn commit(&self, position: u64) -> &AtomicU64 {
        self.word(self.place(position))
    }

    fn state(&self, position: u64) -> Option<RecordState> {
        state_of(self.id, position, self.commit(position).load(Acquire))
    }

    fn set_state(&self, position: u64, state: RecordState) {
        self.commit(position).store(commit_word(self.id, position, state), Release);
    }

    /// Moves the record from one state to another, unless another thread was faster. Returns whether it did.
    fn swap_state(&self, position: u64, from: RecordState, to: RecordState) -> bool {
        let (from, to) = (commit_word(self.id, position, from), commit_word(self.id, position, to));
        self.commit(position).compare_exchange(from, to, crate::sync::Ordering::AcqRel, Acquire).is_ok()
    }

    /// Returns the position of the payload of the record at `position`.
    fn payload(position: u64) -> u64 {
        position + RECORD_BYTES
    }
}
