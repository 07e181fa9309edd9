//! Byte layout of a ring. Only this file knows it.
//!
//! ```text
//! page 0      identification (line 0) . head (line 2) . words of the reader: tail, taken, flags, epoch, released
//!             (line 4) . bells (line 6); a line is 64 bytes, and pairs of lines keep writers and reader apart
//! page 1...   `capacity` bytes of records; the record at position p lies at byte p mod capacity, a payload may wrap
//! ```
//!
//! A *position* counts the bytes ever reserved and never goes back. A record is a header of 64 bytes at a multiple of
//! 64 and the payload, padded to a multiple of 64.
//!
//! All bytes of a ring are hostile input to the reader, because the program that writes the ring can write any of them.
//! So nothing that was read is used before these checks hold; other comments cite them by number:
//!
//! 1. the identification equals the reader's own record of the ring: id and capacity never come from the ring;
//! 2. a record's commit word is bound to the ring's id and to its position. Bytes of a former lap, of another ring or
//!    of a payload are therefore not taken for a record;
//! 3. the header's checksum, bound to ring id and position, is correct for header and payload checksum together;
//! 4. the payload ends inside the ring's free lap, and the file range is inside the reader's grant;
//! 5. the payload's checksum is correct when the record is taken. A program that changes the payload afterwards changes
//!    only its own data.

use twox_hash::XxHash3_64;
use types::{ByteRange, Epoch};

use crate::limits::{CAPACITY_MAX, CAPACITY_MIN, PAYLOAD_MAX, PAYLOAD_SHARE};
use crate::memory::Memory;
use crate::sync::Ordering::{Acquire, Relaxed};

/// Bytes before the first record.
#[cfg(not(loom))]
pub const HEADER_BYTES: usize = 4096;
/// Bytes before the first record in the model, where each word costs the model checker.
#[cfg(loom)]
pub const HEADER_BYTES: usize = 512;
/// Bytes of a record's header; positions are multiples of this.
pub const RECORD_BYTES: u64 = 64;
/// First word of a ring file.
const MAGIC: u64 = u64::from_le_bytes(*b"forebayW");
/// Version of this layout and of the mark of applied records ([`crate::drained`]). Raised with every change; another
/// version is refused.
const VERSION: u64 = 5;

/// Offsets in the header page, bytes.
pub(crate) mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const ID_LOW: usize = 16;
    pub const ID_HIGH: usize = 24;
    pub const CAPACITY: usize = 32;
    /// Next position to be reserved; writers add to it.
    pub const HEAD: usize = 128;
    /// Position below which all is applied and may be overwritten.
    pub const TAIL: usize = 256;
    /// Position below which all was taken while the ring was live.
    pub const TAKEN: usize = 264;
    pub const FLAGS: usize = 272;
    /// Epoch of new records.
    pub const EPOCH: usize = 280;
    /// Next value of the tail. On the medium before anything below it may be overwritten.
    pub const RELEASED: usize = 288;
    /// Number of writers that sleep without room.
    pub const WRITERS_WAITING: usize = 384;
    /// Bell that the reader rings when there is room.
    pub const ROOM_BELL: usize = 392;
    /// Microseconds that writers slept without room, as reported by them. Only informative; nothing depends on it.
    pub const WAITED_US: usize = 400;
    /// Not 0 while the reader sleeps.
    pub const READER_SLEEPING: usize = 448;
    /// Bell that writers ring when there is a record.
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
    /// Set by the reader before its last scan: a record that is not taken is not acknowledged.
    pub const REVOKED: u64 = 1;
    /// Set by either side. No new record begins; those begun may end. Asks the reader to revoke the ring.
    pub const DRAINING: u64 = 2;
}

/// Unique id of one ring: 16 random bytes, chosen by the agent when it makes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RingId(pub u128);

impl RingId {
    /// Returns the key that is mixed into commit words: 58 random bits.
    fn key(self) -> u64 {
        (self.0 as u64 ^ (self.0 >> 64) as u64) & !STATE_MASK
    }
}

const STATE_MASK: u64 = RECORD_BYTES - 1;

/// State in a record's commit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// The length is there, the payload is not.
    Reserved = 0x11,
    /// The record is complete.
    Published = 0x21,
    /// The record is complete, and the reader of a revoked ring decided that it counts.
    Taken = 0x31,
    /// The writer found the ring revoked and went to the kernel instead.
    Retracted = 0x09,
}

/// Returns the commit word of `state` at `position`.
pub(crate) fn commit_word(id: RingId, position: u64, state: RecordState) -> u64 {
    (position ^ id.key()) & !STATE_MASK | state as u64
}

/// Returns the state that `word` gives the record at `position`. `None` if it is not a commit word of that position.
pub(crate) fn state_of(id: RingId, position: u64, word: u64) -> Option<RecordState> {
    if (word ^ id.key() ^ position) & !STATE_MASK != 0 {
        return None;
    }
    [RecordState::Reserved, RecordState::Published, RecordState::Taken, RecordState::Retracted]
        .into_iter()
        .find(|state| *state as u64 == word & STATE_MASK)
}

/// Returns the position whose commit word is `word`, in any state. By it a ring without a valid tail is still readable.
pub(crate) fn position_of(id: RingId, word: u64) -> u64 {
    (word ^ id.key()) & !STATE_MASK
}

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum RecordKind {
    /// Bytes written at an offset.
    Write = 1,
}

/// Header of one record without its commit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Sequence number in the file's order of writes.
    pub sequence: u64,
    /// Epoch of the file at the write.
    pub epoch: Epoch,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Length of the payload, bytes.
    pub length: u32,
    /// Kind of the record.
    pub kind: RecordKind,
    /// Checksum of the payload.
    pub payload_sum: u32,
    /// Time of the write by the clock of the program's node, ns since 1970.
    pub written_ns: u64,
}

impl RecordHeader {
    /// Returns the bytes that the record occupies in the ring.
    pub fn footprint(&self) -> u64 {
        footprint(u64::from(self.length))
    }

    /// Returns the written bytes of the file.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, u64::from(self.length))
    }

    fn shape(&self) -> u64 {
        shape(self.length, self.kind)
    }

    /// Returns the checksum of the header, bound to ring and position (3).
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

    /// Stores the header at `record`, the byte of its commit word, which is left unchanged.
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

    /// Loads the header at `record`, each word once. Returns `None` unless its position, kind and checksum are correct
    /// (3).
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

pub(crate) fn shape(length: u32, kind: RecordKind) -> u64 {
    u64::from(length) | (kind as u64) << 32
}

/// Returns the bytes of the ring that `length` payload bytes need.
pub(crate) fn footprint(length: u64) -> u64 {
    RECORD_BYTES + length.next_multiple_of(RECORD_BYTES)
}

/// Returns the longest payload of one record in a ring of `capacity` bytes.
pub fn payload_max(capacity: u64) -> u64 {
    (capacity / PAYLOAD_SHARE).min(PAYLOAD_MAX)
}

/// Returns whether a ring may have this capacity in bytes: a power of two within the limits.
pub fn capacity_is_sound(capacity: u64) -> bool {
    capacity.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity)
}

/// Continues the checksum `before` of a payload (0 at its start) with its next piece. The function is XXH3 of 64 bits,
/// seeded with the former value; the header keeps the low half. It takes less than half of the copy's time. CRC-32C
/// takes as much as the copy if the widest vectors are not available. Neither allocates nor locks, because signal
/// handlers append too.
pub(crate) fn payload_sum(before: u64, piece: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(before, piece)
}

/// Reason why a file is not the ring that the agent's record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotThisRing {
    /// The capacity on record is invalid, or does not fit the file's size.
    Size,
    /// The magic word is wrong.
    Magic,
    /// Another version of this code made the ring.
    Version {
        /// Version found.
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

/// Writes the header page of an empty ring. The bytes of `memory` must be zero or those of a finished ring.
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

/// Checks the identification against the record (1). Errors: [`NotThisRing`].
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
