//! Byte layout of a segment file. All integers are little endian, and nothing here trusts a byte before its checksum.
//!
//! | at | what |
//! | --- | --- |
//! | 0, and again at 2048 | header of the segment: magic 8, format 4, zero 4, id 8, first sequence 8, CRC 8 |
//! | 4096, then at multiples of 8 | objects: header of 48 bytes, then the bytes |
//! | behind the last object of a sealed segment | one entry of 40 bytes for each object |
//! | the last 48 bytes of a sealed segment | trailer of the footer: magic 8, format 4, entries 4, id 8, end of objects 8, first sequence 8, CRC 8 |
//!
//! | bytes of an object's header | what |
//! | --- | --- |
//! | 4 | magic |
//! | 4 | length of the object |
//! | 8 | sequence number |
//! | 16 | key |
//! | 8 | CRC of the segment's id and of the fields before |
//! | 8 | CRC of the segment's id, of the fields before and of the object's bytes |
//!
//! | bytes of a footer's entry | what |
//! | --- | --- |
//! | 16, 8 | key, sequence number |
//! | 4, 4 | offset of the object's header divided by 8, length of the object |
//! | 8 | second CRC of the object's header |
//!
//! Each CRC is CRC-64/NVME. The id is random. So bytes of a former life of the file never pass as objects, and nobody who
//! writes objects can write bytes that do. The CRC of a footer covers its entries and its trailer.

use crc_fast::{CrcAlgorithm, Digest};

use crate::key::ObjectKey;
use crate::limits::{OBJECT_BYTES_MAX, SEQUENCE_END};

/// Format that this program writes, and the only one that it reads.
pub(crate) const FORMAT: u32 = 1;
/// Bytes before the first object.
pub(crate) const DATA_START: u64 = 4096;
/// Bytes of an object's header.
pub(crate) const HEADER_BYTES: usize = 48;
/// Objects begin at multiples of so many bytes.
pub(crate) const ALIGNMENT: u64 = 8;
/// Bytes of a footer's entry.
pub(crate) const ENTRY_BYTES: usize = 40;
/// Bytes of a footer's trailer.
pub(crate) const TRAILER_BYTES: usize = 48;

const SEGMENT_MAGIC: &[u8; 8] = b"fbsegmnt";
const FOOTER_MAGIC: &[u8; 8] = b"fbfooter";
/// First bytes of each object's header.
pub(crate) const OBJECT_MAGIC: [u8; 4] = *b"fobj";
/// Offsets of the copies of a segment's header. They are in different sectors, so that one bad sector loses no segment.
const COPIES: [usize; 2] = [0, 2048];
const SEGMENT_HEADER_BYTES: usize = 40;

/// Why bytes are not what they should be.
pub(crate) type Defect = &'static str;

/// Knowledge of a segment before any of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Random number that is part of each checksum in the segment.
    pub(crate) id: u64,
    /// Sequence number that the next object had when the segment was created.
    pub(crate) first_sequence: u64,
}

/// Outcome of reading a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Headed {
    Header(SegmentHeader),
    /// A valid header of another format.
    OtherFormat(u32),
    Damaged,
}

impl SegmentHeader {
    /// Returns the first bytes of a segment file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; DATA_START as usize];
        let mut copy = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        copy.extend_from_slice(SEGMENT_MAGIC);
        copy.extend_from_slice(&FORMAT.to_le_bytes());
        copy.extend_from_slice(&[0; 4]);
        copy.extend_from_slice(&self.id.to_le_bytes());
        copy.extend_from_slice(&self.first_sequence.to_le_bytes());
        copy.extend_from_slice(&crc(&[&copy]).to_le_bytes());
        for at in COPIES {
            bytes[at..at + SEGMENT_HEADER_BYTES].copy_from_slice(&copy);
        }
        bytes
    }

    /// Decodes the first bytes of a file. One good copy is enough.
    pub(crate) fn decode(bytes: &[u8]) -> Headed {
        let copies = COPIES.iter().filter_map(|at| bytes.get(*at..*at + SEGMENT_HEADER_BYTES));
        copies.map(Self::decode_copy).find(|found| *found != Headed::Damaged).unwrap_or(Headed::Damaged)
    }

    fn decode_copy(copy: &[u8]) -> Headed {
        let Some((fields, sum)) = copy.split_last_chunk::<8>() else { return Headed::Damaged };
        if !fields.starts_with(SEGMENT_MAGIC) || crc(&[fields]) != u64::from_le_bytes(*sum) {
            return Headed::Damaged;
        }
        match u32_at(fields, 8) {
            FORMAT => Headed::Header(SegmentHeader { id: u64_at(fields, 16), first_sequence: u64_at(fields, 24) }),
            other => Headed::OtherFormat(other),
        }
    }
}

/// Where an object lies in its segment, as headers and footers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectEntry {
    pub(crate) key: ObjectKey,
    pub(crate) sequence: u64,
    /// Offset of the object's header in the file, in bytes.
    pub(crate) offset: u64,
    /// Length of the object in bytes, without its header.
    pub(crate) length: u32,
    /// Second CRC of the object's header.
    pub(crate) sum: u64,
}

impl ObjectEntry {
    /// Returns the offset where the next object may begin.
    pub(crate) fn end(&self) -> u64 {
        self.offset + room(u64::from(self.length))
    }

    /// Encodes the header of an object in the segment `id`: one pass over its `bytes`.
    pub(crate) fn header(id: u64, key: &ObjectKey, sequence: u64, bytes: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&OBJECT_MAGIC);
        header[4..8].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        header[16..32].copy_from_slice(&key.0);
        let mut digest = digest(id, &header[..32]);
        header[32..40].copy_from_slice(&digest.finalize().to_le_bytes());
        digest.update(bytes);
        header[40..].copy_from_slice(&digest.finalize().to_le_bytes());
        header
    }

    /// Decodes the header of an object in the segment `id` at `offset`. The object's bytes are not looked at.
    pub(crate) fn decode(id: u64, offset: u64, header: &[u8]) -> Result<ObjectEntry, Defect> {
        let Some(header) = header.first_chunk::<HEADER_BYTES>() else { return Err("its header is cut off") };
        if !header.starts_with(&OBJECT_MAGIC) {
            return Err("its header is not one");
        }
        if digest(id, &header[..32]).finalize() != u64_at(header, 32) {
            return Err("its header has a wrong checksum");
        }
        let entry = ObjectEntry {
            key: key_at(header, 16),
            sequence: u64_at(header, 8),
            offset,
            length: u32_at(header, 4),
            sum: u64_at(header, 40),
        };
        if entry.is_possible() { Ok(entry) } else { Err("its header has fields that make no sense") }
    }

    /// Returns whether `bytes` are those of the object.
    pub(crate) fn is_of(&self, id: u64, bytes: &[u8]) -> bool {
        bytes.len() == self.length as usize
            && ObjectEntry::header(id, &self.key, self.sequence, bytes)[40..] == self.sum.to_le_bytes()
    }

    fn is_possible(&self) -> bool {
        u64::from(self.length) <= OBJECT_BYTES_MAX
            && (1..SEQUENCE_END).contains(&self.sequence)
            && self.offset >= DATA_START
            && self.offset.is_multiple_of(ALIGNMENT)
    }
}

/// Returns the bytes that an object of `length` bytes takes in a segment, its header and the alignment included.
pub(crate) fn room(length: u64) -> u64 {
    (HEADER_BYTES as u64 + length).next_multiple_of(ALIGNMENT)
}

/// Returns the bytes of a footer with so many entries.
pub(crate) fn footer_bytes(entries: u64) -> u64 {
    entries * ENTRY_BYTES as u64 + TRAILER_BYTES as u64
}

/// Encodes the footer of a segment whose objects end at `end`.
pub(crate) fn encode_footer(segment: &SegmentHeader, end: u64, entries: &[ObjectEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(footer_bytes(entries.len() as u64) as usize);
    for entry in entries {
        bytes.extend_from_slice(&entry.key.0);
        bytes.extend_from_slice(&entry.sequence.to_le_bytes());
        bytes.extend_from_slice(&((entry.offset / ALIGNMENT) as u32).to_le_bytes());
        bytes.extend_from_slice(&entry.length.to_le_bytes());
        bytes.extend_from_slice(&entry.sum.to_le_bytes());
    }
    bytes.extend_from_slice(FOOTER_MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&segment.id.to_le_bytes());
    bytes.extend_from_slice(&end.to_le_bytes());
    bytes.extend_from_slice(&segment.first_sequence.to_le_bytes());
    bytes.extend_from_slice(&crc(&[&bytes]).to_le_bytes());
    bytes
}

/// Fields of a footer's trailer, before the checksum that covers the entries too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) segment: SegmentHeader,
    /// Offset of the first entry, in bytes.
    pub(crate) end: u64,
    pub(crate) entries: u64,
}

impl Trailer {
    /// Decodes the last bytes of a file of `file_bytes`.
    pub(crate) fn decode(trailer: &[u8; TRAILER_BYTES], file_bytes: u64) -> Result<Trailer, Defect> {
        if !trailer.starts_with(FOOTER_MAGIC) || u32_at(trailer, 8) != FORMAT {
            return Err("there is no footer");
        }
        let found = Trailer {
            segment: SegmentHeader { id: u64_at(trailer, 16), first_sequence: u64_at(trailer, 32) },
            end: u64_at(trailer, 24),
            entries: u64::from(u32_at(trailer, 12)),
        };
        let fits = found.end >= DATA_START
            && found.end.is_multiple_of(ALIGNMENT)
            && found.end.checked_add(footer_bytes(found.entries)) == Some(file_bytes);
        if fits { Ok(found) } else { Err("the footer does not fit the file") }
    }

    /// Decodes the entries of the footer from all of its bytes.
    pub(crate) fn entries(&self, footer: &[u8]) -> Result<Vec<ObjectEntry>, Defect> {
        let Some((covered, sum)) = footer.split_last_chunk::<8>() else { return Err("the footer is cut off") };
        if footer.len() as u64 != footer_bytes(self.entries) || crc(&[covered]) != u64::from_le_bytes(*sum) {
            return Err("the footer has a wrong checksum");
        }
        let mut before = DATA_START;
        let mut entries = Vec::with_capacity(self.entries as usize);
        for bytes in covered.chunks_exact(ENTRY_BYTES).take(self.entries as usize) {
            let entry = ObjectEntry {
                key: key_at(bytes, 0),
                sequence: u64_at(bytes, 16),
                offset: u64::from(u32_at(bytes, 24)) * ALIGNMENT,
                length: u32_at(bytes, 28),
                sum: u64_at(bytes, 32),
            };
            if !entry.is_possible() || entry.offset < before || entry.end() > self.end {
                return Err("the footer has entries that make no sense");
            }
            before = entry.end();
            entries.push(entry);
        }
        Ok(entries)
    }
}

fn digest(id: u64, fields: &[u8]) -> Digest {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&id.to_le_bytes());
    digest.update(fields);
    digest
}

fn crc(parts: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |found| u32::from_le_bytes(*found))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |found| u64::from_le_bytes(*found))
}

fn key_at(bytes: &[u8], at: usize) -> ObjectKey {
    ObjectKey(bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default())
}
