//! The ring: a write queue that is its own journal.
//!
//! Writers (threads of one program) append records; the reader (the agent) takes them in order and, when their bytes
//! are in the burst buffer, gives the room back. The life of one record:
//!
//! 1. *reserve*: `head` grows by the record's footprint; whoever reserved first has room first;
//! 2. when its header line is free, its length and `Reserved` are stored there;
//! 3. when all its room is free, the payload is copied and summed, and flushed if the medium is persistent;
//! 4. the file's next sequence number is taken, the header stored, flushed and fenced;
//! 5. *publish*: `Published` is stored (release), flushed and fenced;
//! 6. after a sequentially consistent fence the `REVOKED` flag is read: clear means acknowledged.
//!
//! The reader of a live ring takes what is published and stops at the first record that is not. To end a ring it sets
//! `REVOKED`, fences, and scans a last time: each published record is taken by a compare-and-swap to `Taken`. A writer
//! that finds `REVOKED` in step 6 is acknowledged if its record lies below `taken` (it was taken before the
//! flag), and otherwise tries to swap `Published` to `Retracted`: of the two swaps one wins, so each write is either
//! in the journal and acknowledged, or in neither and goes to the kernel.
//!
//! A *hole*, a reservation that was never published, stops a live ring. It is skipped only after `REVOKED`: from then on
//! nothing behind it can be acknowledged unless the scan takes it. The scan needs no length of the hole: it tries each
//! multiple of 64, and a commit word names ring and position (layout, 2), so that neither payload nor former laps answer.
//!
//! Order of the file: a number below the file's counter belongs to a writer that had passed step 2 and had all its room
//! before the counter was read. [`RingReader::known_below`] rests on this.

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

/// The memory of one ring with the two numbers that place its records.
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

    /// The byte in memory of `position`.
    fn place(&self, position: u64) -> usize {
        HEADER_BYTES + (position & (self.capacity - 1)) as usize
    }

    /// Where `len` bytes from `position` begin, and how many of them lie before the ring's end; the rest is at its start.
    fn parts(&self, position: u64, len: usize) -> (usize, usize) {
        let place = self.place(position);
        (place, len.min(HEADER_BYTES + self.capacity as usize - place))
    }

    /// Whether no new record may begin.
    fn ending(&self) -> bool {
        self.word(at::FLAGS).load(Acquire) != 0
    }

    /// The pieces over which the checksum of `len` payload bytes from `position` goes, place and bytes of each: at most
    /// [`COPY_CHUNK`], and in one piece in memory.
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

    /// Moves the record from one state to another unless somebody was faster; whether it did.
    fn swap_state(&self, position: u64, from: RecordState, to: RecordState) -> bool {
        let (from, to) = (commit_word(self.id, position, from), commit_word(self.id, position, to));
        self.commit(position).compare_exchange(from, to, crate::sync::Ordering::AcqRel, Acquire).is_ok()
    }

    /// The first byte of the payload of the record at `position`.
    fn payload(position: u64) -> u64 {
        position + RECORD_BYTES
    }
}
