//! The bytes of a ring: the only file that knows them.
//!
//! ```text
//! page 0      identification (line 0) . head (line 2) . what the reader says: tail, taken, flags, epoch, released
//!             (line 4) . bells (line 6); a line is 64 bytes, pairs of them keep writers and reader out of each other's way
//! page 1...   `capacity` bytes of records; the record at position p lies at byte p mod capacity, a payload may wrap
//! ```
//!
//! A *position* counts the bytes ever reserved; it never goes back. A record is 64 bytes of header at a multiple of 64,
//! then the payload, filled up to a multiple of 64.
//!
//! Everything here is hostile input to the reader: the program that writes the ring can write any byte of it. So
//! nothing read is used before these hold, and each number names what was checked:
//!
//! 1. the identification equals the reader's own record of the ring: id and capacity never come from the ring;
//! 2. a record's commit word is bound to the ring's id and to its position, so that bytes of a former lap, of another ring
//!    or of a payload do not pass for a record;
//! 3. the header's checksum, bound to ring id and position, holds for header and payload checksum together;
//! 4. the payload ends inside the ring's free lap, and the file range inside what the reader granted;
//! 5. the payload's checksum holds when the record is taken. Who changes it after that changes what he wrote himself.

use twox_hash::XxHash3_64;
use types::{ByteRange, Epoch};

use crate::limits::{CAPACITY_MAX, CAPACITY_MIN, PAYLOAD_MAX, PAYLOAD_SHARE};
use crate::memory::Memory;
use crate::sync::Ordering::{Acquire, Relaxed};

/// Bytes before the first record.
#[cfg(not(loom))]
pub const HEADER_BYTES: usize = 4096;
/// Bytes before the first record: each word costs the model checker.
#[cfg(loom)]
pub const HEADER_BYTES: usize = 512;
/// Bytes of a record's header, and the grain of positions.
pub const RECORD_BYTES: u64 = 64;
/// First word of a ring file.
const MAGIC: u64 = u64::from_le_bytes(*b"forebayW");
/// Raised with every change of this file, and of what the mark of the drained says ([`crate::drained`]); another one is refused.
const VERSION: u64 = 5;

/// Offsets in the header page.
pub(crate) mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const ID_LOW: usize = 16;
    pub const ID_HIGH: usize = 24;
    pub const CAPACITY: usize = 32;
    /// Next position to be reserved; added to by writers.
    pub const HEAD: usize = 128;
    /// Everything below is drained and may be overwritten.
    pub const TAIL: usize = 256;
    /// Everything below was taken while the ring was live.
    pub const TAKEN: usize = 264;
    pub const FLAGS: usize = 272;
    /// Epoch of new records.
    pub const EPOCH: usize = 280;
    /// The tail that is to come, on the medium before anybody may overwrite what is below it.
    pub const RELEASED: usize = 288;
    /// Writers asleep for want of room.
    pub const WRITERS_WAITING: usize = 384;
    /// Rung when there is room.
    pub const ROOM_BELL: usize = 392;
    /// Microseconds that writers slept for want of room, as they say: a number for people, of which nothing depends.
    pub const WAITED_US: usize = 400;
    /// Not 0 while the reader sleeps.
    pub const READER_SLEEPING: usize = 448;
    /// Rung when there is a record.
    pub const RECORD_BELL: usize = 456;

    /// Words of a record's header.
    pub const SEQUENCE: usize = 8;
    pub const RECORD_EPOCH: usize = 16;
    pub const OFFSET: usize = 24;
    pub const SHAPE: usize = 32;
    pub const SUMS: usize = 40;
    pub const POSITION: usize = 48;
    pub const WRITTEN: usize = 56;
}

/// Bits of the flags word.
pub mod flag {
    /// Set by the reader before it scans for the last time: what is not taken is not acknowledged.
    pub const REVOKED: u64 = 1;
    /// Set by either side: no new record begins, those begun may end. The reader is asked to revoke the ring.
    pub const DRAINING: u64 = 2;
}

/// Names one ring for ever: 16 random bytes, chosen by the agent when it makes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RingId(pub u128);

impl RingId {
    /// What commit words are mixed with: 58 random bits.
    fn key(self) -> u64 {
        (self.0 as u64 ^ (self.0 >> 64) as u64) & !STATE_MASK
    }
}

const STATE_MASK: u64 = RECORD_BYTES - 1;

/// What a record's commit word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// A length is there, the payload is not.
    Reserved = 0x11,
    /// Complete.
    Published = 0x21,
    /// Complete, and the reader of a revoked ring decided that it counts.
    Taken = 0x31,
    /// Its writer found the ring revoked and went to the kernel instead.
    Retracted = 0x09,
}

/// The commit word of `state` at `position`.
pub(crate) fn commit_word(id: RingId, position: u64, state: RecordState) -> u64 {
    (position ^ id.key()) & !STATE_MASK | state as u64
}

/// The state that `word` gives the record at `position`; `None` when it is no commit word of that position.
pub(crate) fn state_of(id: RingId, position: u64, word: u64) -> Option<RecordState> {
    if (word ^ id.key() ^ position) & !STATE_MASK != 0 {
        return None;
    }
    [RecordState::Reserved, RecordState::Published, RecordState::Taken, RecordState::Retracted]
        .into_iter()
        .find(|state| *state as u64 == word & STATE_MASK)
}

/// The position whose commit word is `word`, whatever its state: with it a ring without a tail is still readable.
pub(crate) fn position_of(id: RingId, word: u64) -> u64 {
    (word ^ id.key()) & !STATE_MASK
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum RecordKind {
    /// Bytes written at an offset.
    Write = 1,
}

/// The header of one record without its commit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Place in the file's order of writes.
    pub sequence: u64,
    /// The file's epoch when it was written.
    pub epoch: Epoch,
    /// First byte in the file.
    pub offset: u64,
    /// Payload bytes.
    pub length: u32,
    /// What it is.
    pub kind: RecordKind,
    /// Checksum of the payload.
    pub payload_sum: u32,
    /// When it was written, as the program's node knows the time: ns since 1970.
    pub written_ns: u64,
}

impl RecordHeader {
    /// Bytes that the record occupies in the ring.
    pub fn footprint(&self) -> u64 {
        footprint(u64::from(self.length))
    }

    /// The bytes of the file.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, u64::from(self.length))
    }

    fn shape(&self) -> u64 {
        shape(self.length, self.kind)
    }

    /// Checksum of the header, bound to ring and position (3).
    fn sum(&self, id: RingId, position: u64) -> u32 {
        let mut bytes = [0u8; 72];
        let words = [
            id.0 as u64,
            (id.0 >> 64) as u64,
            position,
            self.sequence,
            self.epoch.0,
            self.offset,
            self.shape(),
            u64::from(self.payload_sum),
            self.written_ns,
        ];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        XxHash3_64::oneshot(&bytes) as u32
    }

    /// Stores the header at `record`, the byte of its commit word, which is not touched.
    pub(crate) fn store<M: Memory>(&self, memory: &M, record: usize, id: RingId, position: u64) {
        let sums = u64::from(self.payload_sum) | u64::from(self.sum(id, position)) << 32;
        for (at, word) in [
            (at::SEQUENCE, self.sequence),
            (at::RECORD_EPOCH, self.epoch.0),
            (at::OFFSET, self.offset),
            (at::SHAPE, self.shape()),
            (at::SUMS, sums),
            (at::POSITION, position),
            (at::WRITTEN, self.written_ns),
        ] {
            memory.word(record + at).store(word, Relaxed);
        }
    }

    /// Loads what stands at `record`, each word once; `None` unless its position, kind and checksum hold (3).
    pub(crate) fn load<M: Memory>(memory: &M, record: usize, id: RingId, position: u64) -> Option<RecordHeader> {
        let word = |at: usize| memory.word(record + at).load(Relaxed);
        let (shape, sums) = (word(at::SHAPE), word(at::SUMS));
        let header = RecordHeader {
            sequence: word(at::SEQUENCE),
            epoch: Epoch(word(at::RECORD_EPOCH)),
            offset: word(at::OFFSET),
            length: shape as u32,
            kind: RecordKind::Write,
            payload_sum: sums as u32,
            written_ns: word(at::WRITTEN),
        };
        let whole = word(at::POSITION) == position && header.shape() == shape;
        (whole && header.sum(id, position) == (sums >> 32) as u32).then_some(header)
    }
}

/// Length and kind in one word.
pub(crate) fn shape(length: u32, kind: RecordKind) -> u64 {
    u64::from(length) | (kind as u64) << 32
}

/// Bytes of the ring that `length` payload bytes need.
pub(crate) fn footprint(length: u64) -> u64 {
    RECORD_BYTES + length.next_multiple_of(RECORD_BYTES)
}

/// Longest payload of one record in a ring of `capacity` bytes.
pub fn payload_max(capacity: u64) -> u64 {
    (capacity / PAYLOAD_SHARE).min(PAYLOAD_MAX)
}

/// Whether a ring may have this capacity in bytes: a power of two within the limits.
pub fn capacity_is_sound(capacity: u64) -> bool {
    capacity.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity)
}

/// Continues the checksum `before` of a payload, 0 at its start, with its next piece: XXH3 of 64 bits, seeded with what came
/// before, of which the header keeps the low half. Takes less than half of the copy's time where CRC-32C takes as much as the
/// copy, for want of the widest vectors. Neither allocates nor locks: signal handlers append too.
pub(crate) fn payload_sum(before: u64, piece: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(before, piece)
}

/// Why a file is not the ring that the agent's record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotThisRing {
    /// The capacity on record is none, or the file's size does not fit it.
    Size,
    /// The first word is not ours.
    Magic,
    /// Made by another version of this code.
    Version {
        /// The version found.
        found: u64,
    },
    /// The id or capacity in the header is not the one on record.
    Foreign,
}

impl std::fmt::Display for NotThisRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotThisRing::Size => f.write_str("the file's size is not that of the ring on record"),
            NotThisRing::Magic => f.write_str("the file is no window ring"),
            NotThisRing::Version { found } => write!(f, "ring version {found}, this code knows {VERSION}"),
            NotThisRing::Foreign => f.write_str("the ring in the file is not the one on record"),
        }
    }
}

impl std::error::Error for NotThisRing {}

/// Writes the header page of an empty ring over `memory`, whose bytes are zero or those of a ring that is over.
pub(crate) fn format<M: Memory>(memory: &M, id: RingId, capacity: u64, epoch: Epoch) {
    let header = if cfg!(loom) { 0 } else { HEADER_BYTES }; // the model begins with zeroes
    for word in (0..header).step_by(8) {
        memory.word(word).store(0, Relaxed);
    }
    for (at, word) in [
        (at::VERSION, VERSION),
        (at::ID_LOW, id.0 as u64),
        (at::ID_HIGH, (id.0 >> 64) as u64),
        (at::CAPACITY, capacity),
        (at::EPOCH, epoch.0),
        (at::MAGIC, MAGIC),
    ] {
        memory.word(at).store(word, Relaxed);
    }
    memory.flush(0, HEADER_BYTES);
    memory.fence();
}

/// Checks the identification against what is on record (1).
pub(crate) fn identify<M: Memory>(memory: &M, id: RingId, capacity: u64) -> Result<(), NotThisRing> {
    if !capacity_is_sound(capacity) || memory.len() as u64 != HEADER_BYTES as u64 + capacity {
        return Err(NotThisRing::Size);
    }
    let word = |at: usize| memory.word(at).load(Acquire);
    if word(at::MAGIC) != MAGIC {
        return Err(NotThisRing::Magic);
    }
    if word(at::VERSION) != VERSION {
        return Err(NotThisRing::Version { found: word(at::VERSION) });
    }
    let found = u128::from(word(at::ID_LOW)) | u128::from(word(at::ID_HIGH)) << 64;
    if found != id.0 || word(at::CAPACITY) != capacity {
        return Err(NotThisRing::Foreign);
    }
    Ok(())
}
