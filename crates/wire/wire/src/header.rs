//! Header of a frame.
//!
//! | byte | field |
//! | --- | --- |
//! | 0..4 | magic `FBWR` |
//! | 4..6 | version of the protocol |
//! | 6..8 | kind of the message |
//! | 8..16 | request: chosen by the client, rising; an answer carries that of its question |
//! | 16..24 | oldest: the lowest request that the client has not finished with; 0 in answers |
//! | 24..28 | bytes of the body |
//! | 28..32 | bytes of data after it |
//! | 32..36 | zero |
//! | 36..40 | CRC-32/ISCSI of bytes 0..36 |

use crc_fast::{CrcAlgorithm, checksum};

use crate::codec::DecodeError;
use crate::limits::{BODY_BYTES_MAX, DATA_BYTES_MAX};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 40;

const MAGIC: [u8; 4] = *b"FBWR";
const CRC_AT: usize = 36;

/// Header of a frame: version, kind, request number and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Version of the protocol.
    pub version: u16,
    /// Number of the message in the body.
    pub kind: u16,
    /// Number of the request; an answer carries that of its question.
    pub request: u64,
    /// The lowest request that the client still waits for; 0 in answers.
    pub oldest: u64,
    /// Bytes of the body, at most [`BODY_BYTES_MAX`].
    pub body_bytes: u32,
    /// Bytes of data after the body, at most [`DATA_BYTES_MAX`].
    pub data_bytes: u32,
}

impl Header {
    /// Encodes the header, including its checksum.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.data_bytes.to_le_bytes());
        let crc = crc(&bytes);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header and checks its checksum and that both lengths are within their bounds. Version and kind may be
    /// unknown.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, DecodeError> {
        if bytes[..4] != MAGIC {
            return Err(DecodeError::Magic);
        }
        if u32_at(bytes, CRC_AT) != crc(bytes) {
            return Err(DecodeError::Checksum);
        }
        let header = Header {
            version: u16_at(bytes, 4),
            kind: u16_at(bytes, 6),
            request: u64_at(bytes, 8),
            oldest: u64_at(bytes, 16),
            body_bytes: u32_at(bytes, 24),
            data_bytes: u32_at(bytes, 28),
        };
        if header.body_bytes > BODY_BYTES_MAX || header.data_bytes > DATA_BYTES_MAX {
            return Err(DecodeError::Length);
        }
        if u32_at(bytes, 32) != 0 {
            return Err(DecodeError::Value);
        }
        Ok(header)
    }
}

fn crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    // The algorithm has 32 bits; the library returns them in 64.
    checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..CRC_AT]) as u32
}

fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

fn u16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}
