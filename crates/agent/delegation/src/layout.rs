//! Bytes of the name log. Everything that lies on the medium is described here.
//!
//! Numbers are little-endian. A log file is a header and frames; each frame holds one transaction and begins at a multiple of
//! [`FRAME_ALIGN`]. Zeros follow the last frame. Checksums are CRC-64/NVME, and those of frames begin with the random id of their
//! file: bytes of another file, or of the space's former life, never pass.
//!
//! | frame | bytes |
//! | --- | --- |
//! | magic | 4 |
//! | length of the transaction, without padding | 4 |
//! | sequence | 8 |
//! | sequence up to which the log was durable when the frame was written | 8 |
//! | checksum of the three fields before and of the transaction | 8 |
//! | transaction, padded with zeros | |

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest, checksum};
use types::Identity;

use crate::limits;
use crate::short_name::ShortName;
use crate::state::{
    BelowCopy, BelowState, Credentials, DataPlace, LogRecord, Moment, NodeKind, NodeName, NodeNumber, NodeState,
    Transaction, Xattrs,
};

/// Bytes of a file's header.
pub const HEADER_BYTES: usize = 72;
/// Bytes of a frame before its transaction.
pub const FRAME_BYTES: usize = 32;
/// Frames begin at multiples of so many bytes.
pub const FRAME_ALIGN: usize = 8;

const HEADER_MAGIC: [u8; 8] = *b"FBnames\n";
const HEADER_VERSION: u32 = 2;
const FRAME_MAGIC: [u8; 4] = *b"FBtx";

const RECORD_STATE: u8 = 1;
const RECORD_FORGOTTEN: u8 = 2;

const DATA_NONE: u8 = 0;
const DATA_REPLICA: u8 = 1;
const DATA_PACKED: u8 = 2;
const DATA_BELOW_ONLY: u8 = 3;
const DATA_OUTSIDE: u8 = 4;

const BELOW_NEVER: u8 = 0;
const BELOW_AT: u8 = 1;
const BELOW_DOUBTFUL: u8 = 2;

/// Bytes that are not what they should be, and which part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name log has a wrong {0}")]
pub struct Malformed(pub &'static str);

/// Error for a header of another version, whose file must be left as it is.
pub const UNKNOWN_VERSION: Malformed = Malformed("version");

/// Header of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Random id of the log, in all its files.
    pub log: [u8; 16],
    /// Random id of this file.
    pub file: [u8; 16],
    /// Number of this file; the next has the next number.
    pub number: u32,
    /// Opening of the log in which the file was made.
    pub opening: u32,
    /// Sequence of its first transaction.
    pub first: u64,
}

impl FileHeader {
    /// Returns the bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(HEADER_MAGIC);
        out.extend(HEADER_VERSION.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.log);
        out.extend(self.file);
        out.extend(self.opening.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.first.to_le_bytes());
        let sum = checksum(CrcAlgorithm::Crc64Nvme, &out);
        out.extend(sum.to_le_bytes());
        out.try_into().expect("the fields have the header's length")
    }

    /// Reads a header at the beginning of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, Malformed> {
        let header = bytes.get(..HEADER_BYTES).ok_or(Malformed("header's length"))?;
        let mut reader = Bytes(header);
        if reader.array()? != HEADER_MAGIC {
            return Err(Malformed("magic"));
        }
        // The version stands before the checksum counts: another version may have another checksum.
        if reader.u32()? != HEADER_VERSION {
            return Err(UNKNOWN_VERSION);
        }
        let number = reader.u32()?;
        let (log, file, opening) = (reader.array()?, reader.array()?, reader.u32()?);
        let (_, first) = (reader.u32()?, reader.u64()?);
        if reader.u64()? != checksum(CrcAlgorithm::Crc64Nvme, &header[..HEADER_BYTES - 8]) {
            return Err(Malformed("header's checksum"));
        }
        Ok(FileHeader { log, file, number, opening, first })
    }
}

/// A frame whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub struct LogFrame<'a> {
    /// Position in the log.
    pub sequence: u64,
    /// Sequence up to which the log was durable when the frame was written.
    pub durable: u64,
    /// Bytes of the transaction.
    pub transaction: &'a [u8],
    /// Bytes from the beginning of this frame to that of the next.
    pub length: usize,
}

fn frame_checksum(file: &[u8; 16], fields: &[u8], transaction: &[u8]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(file);
    digest.update(fields);
    digest.update(transaction);
    digest.finalize()
}

/// Begins a frame in `out`: room for its head, behind which the transaction is to be encoded.
pub fn begin_frame(out: &mut Vec<u8>) {
    out.clear();
    out.resize(FRAME_BYTES, 0);
}

/// Completes a frame: fills its head in and pads it.
pub fn end_frame(out: &mut Vec<u8>, file: &[u8; 16], sequence: u64, durable: u64) {
    let length = (out.len() - FRAME_BYTES) as u32;
    let (head, transaction) = out.split_at_mut(FRAME_BYTES);
    head[..4].copy_from_slice(&FRAME_MAGIC);
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..24].copy_from_slice(&durable.to_le_bytes());
    let sum = frame_checksum(file, &head[4..24], transaction);
    head[24..].copy_from_slice(&sum.to_le_bytes());
    out.resize(out.len().next_multiple_of(FRAME_ALIGN), 0);
}

/// Reads the frame at the beginning of `bytes`. `None` if there is none whose checksum is right.
pub fn decode_frame<'a>(bytes: &'a [u8], file: &[u8; 16]) -> Option<LogFrame<'a>> {
    let mut head = Bytes(bytes.get(..FRAME_BYTES)?);
    if head.array().ok()? != FRAME_MAGIC {
        return None;
    }
    let length = head.u32().ok()? as usize;
    let (sequence, durable, sum) = (head.u64().ok()?, head.u64().ok()?, head.u64().ok()?);
    if length > limits::TRANSACTION_BYTES_MAX {
        return None;
    }
    let transaction = bytes.get(FRAME_BYTES..FRAME_BYTES + length)?;
    if frame_checksum(file, &bytes[4..24], transaction) != sum {
        return None;
    }
    Some(LogFrame { sequence, durable, transaction, length: (FRAME_BYTES + length).next_multiple_of(FRAME_ALIGN) })
}

/// Appends the bytes of a transaction to `out`.
pub fn encode_transaction(out: &mut Vec<u8>, transaction: &Transaction) {
    out.extend(transaction.time.0.to_le_bytes());
    out.push(transaction.touched.len() as u8);
    transaction.touched.iter().for_each(|directory| out.extend(directory.0.to_le_bytes()));
    out.extend((transaction.records.len() as u16).to_le_bytes());
    for record in &transaction.records {
        match record {
            LogRecord::State(state) => {
                out.push(RECORD_STATE);
                encode_state(out, state);
            }
            LogRecord::Forgotten(number) => {
                out.push(RECORD_FORGOTTEN);
                out.extend(number.0.to_le_bytes());
            }
        }
    }
}

/// Reads a transaction that fills `bytes`.
pub fn decode_transaction(sequence: u64, bytes: &[u8]) -> Result<Transaction, Malformed> {
    let mut reader = Bytes(bytes);
    let time = Moment(reader.i64()?);
    let touched = usize::from(reader.u8()?);
    let touched = (0..touched).map(|_| Ok(NodeNumber(reader.u64()?))).collect::<Result<_, Malformed>>()?;
    let count = usize::from(reader.u16()?);
    if count > limits::TRANSACTION_RECORDS_MAX {
        return Err(Malformed("number of records"));
    }
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        records.push(match reader.u8()? {
            RECORD_STATE => LogRecord::State(Box::new(decode_state(&mut reader)?)),
            RECORD_FORGOTTEN => LogRecord::Forgotten(NodeNumber(reader.u64()?)),
            _ => return Err(Malformed("kind of a record")),
        });
    }
    if !reader.0.is_empty() {
        return Err(Malformed("length of a transaction"));
    }
    Ok(Transaction { sequence, time, touched, records })
}

fn encode_state(out: &mut Vec<u8>, state: &NodeState) {
    out.extend(state.number.0.to_le_bytes());
    out.push(state.kind as u8);
    out.extend(state.mode.to_le_bytes());
    out.extend(state.uid.to_le_bytes());
    out.extend(state.gid.to_le_bytes());
    [state.atime, state.mtime, state.ctime].iter().for_each(|time| out.extend(time.0.to_le_bytes()));
    [state.size, state.ino, state.stamp].iter().for_each(|number| out.extend(number.to_le_bytes()));
    let (tag, value) = match state.data {
        DataPlace::None => (DATA_NONE, None),
        DataPlace::Replica(version) => (DATA_REPLICA, Some(version)),
        DataPlace::Packed(place) => (DATA_PACKED, Some(place)),
        DataPlace::BelowOnly => (DATA_BELOW_ONLY, None),
        DataPlace::Outside => (DATA_OUTSIDE, None),
    };
    out.push(tag);
    value.iter().for_each(|value| out.extend(value.to_le_bytes()));
    let Credentials { uid, gid, groups } = &*state.creator;
    out.extend(uid.to_le_bytes());
    out.extend(gid.to_le_bytes());
    out.extend((groups.len() as u32).to_le_bytes());
    groups.iter().for_each(|group| out.extend(group.to_le_bytes()));
    encode_names(out, &state.names);
    out.extend((state.xattrs.len() as u16).to_le_bytes());
    for (name, value) in &state.xattrs {
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        out.extend((value.len() as u32).to_le_bytes());
        out.extend_from_slice(value);
    }
    match state.kind {
        NodeKind::Symlink => {
            out.extend((state.target.len() as u16).to_le_bytes());
            out.extend_from_slice(&state.target);
        }
        kind if kind.is_device() => out.extend(state.device.to_le_bytes()),
        _ => {}
    }
    match &state.below {
        BelowState::Never => out.push(BELOW_NEVER),
        BelowState::At(copy) => {
            out.push(if copy.doubtful { BELOW_DOUBTFUL } else { BELOW_AT });
            let identity = copy.identity.as_ref().map_or(&[][..], Identity::as_bytes);
            out.push(identity.len() as u8);
            out.extend_from_slice(identity);
            encode_names(out, &copy.names);
        }
    }
}

fn encode_names(out: &mut Vec<u8>, names: &[NodeName]) {
    out.extend((names.len() as u16).to_le_bytes());
    for NodeName { parent, name } in names {
        out.extend(parent.0.to_le_bytes());
        out.push(name.as_bytes().len() as u8);
        out.extend_from_slice(name.as_bytes());
    }
}

fn decode_state(reader: &mut Bytes<'_>) -> Result<NodeState, Malformed> {
    let number = NodeNumber(reader.u64()?);
    let kind = decode_kind(reader.u8()?)?;
    let dress = (reader.u16()?, reader.u32()?, reader.u32()?);
    if dress.0 > 0o7777 {
        return Err(Malformed("mode"));
    }
    let mut state = NodeState::new(number, kind, dress, Moment(reader.i64()?));
    (state.mtime, state.ctime) = (Moment(reader.i64()?), Moment(reader.i64()?));
    (state.size, state.ino, state.stamp) = (reader.u64()?, reader.u64()?, reader.u64()?);
    state.data = match reader.u8()? {
        DATA_NONE => DataPlace::None,
        DATA_REPLICA => DataPlace::Replica(reader.u64()?),
        DATA_PACKED => DataPlace::Packed(reader.u64()?),
        DATA_BELOW_ONLY => DataPlace::BelowOnly,
        DATA_OUTSIDE => DataPlace::Outside,
        _ => return Err(Malformed("place of data")),
    };
    let (uid, gid, groups) = (reader.u32()?, reader.u32()?, reader.u32()? as usize);
    if groups > limits::GROUPS_MAX {
        return Err(Malformed("number of groups"));
    }
    let groups = reader.take(4 * groups)?.chunks_exact(4);
    let groups: Vec<u32> = groups.map(|group| u32::from_le_bytes(group.try_into().expect("four bytes"))).collect();
    state.creator = Arc::new(Credentials { uid, gid, groups: groups.into() });
    state.names = decode_names(reader, limits::LINKS_MAX)?;
    state.xattrs = decode_xattrs(reader)?;
    match kind {
        NodeKind::Symlink => {
            let length = usize::from(reader.u16()?);
            state.target = reader.take(length)?.into();
            if !(1..=limits::TARGET_BYTES_MAX).contains(&length) || state.target.contains(&0) {
                return Err(Malformed("target of a symbolic link"));
            }
        }
        kind if kind.is_device() => state.device = reader.u64()?,
        _ => {}
    }
    state.below = match reader.u8()? {
        BELOW_NEVER => BelowState::Never,
        tag @ (BELOW_AT | BELOW_DOUBTFUL) => {
            let length = usize::from(reader.u8()?);
            let identity = reader.take(length)?;
            let identity = (length > 0).then(|| Identity::new(identity)).transpose();
            let identity = identity.map_err(|_| Malformed("identity"))?;
            BelowState::At(Arc::new(BelowCopy {
                identity,
                names: decode_names(reader, limits::NAMES_BELOW_MAX)?,
                doubtful: tag == BELOW_DOUBTFUL,
            }))
        }
        _ => return Err(Malformed("state below")),
    };
    Ok(state)
}

fn decode_kind(kind: u8) -> Result<NodeKind, Malformed> {
    use NodeKind::*;
    let kinds = [File, Directory, Symlink, Fifo, Socket, BlockDevice, CharacterDevice];
    kinds.into_iter().find(|known| *known as u8 == kind).ok_or(Malformed("kind of a node"))
}

fn decode_names(reader: &mut Bytes<'_>, most: usize) -> Result<Vec<NodeName>, Malformed> {
    let count = usize::from(reader.u16()?);
    if count > most {
        return Err(Malformed("number of names"));
    }
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        let parent = NodeNumber(reader.u64()?);
        let length = usize::from(reader.u8()?);
        names.push(NodeName { parent, name: ShortName::new(reader.take(length)?).ok_or(Malformed("name"))? });
    }
    Ok(names)
}

fn decode_xattrs(reader: &mut Bytes<'_>) -> Result<Xattrs, Malformed> {
    let mut xattrs = Xattrs::new();
    for _ in 0..reader.u16()? {
        let length = usize::from(reader.u8()?);
        let name = reader.take(length)?;
        let length = reader.u32()? as usize;
        let value = reader.take(length)?;
        let is_known = xattrs.insert(name.into(), value.into()).is_some();
        if name.is_empty() || name.contains(&0) || value.len() > limits::XATTR_VALUE_BYTES_MAX || is_known {
            return Err(Malformed("extended attribute"));
        }
    }
    Ok(xattrs)
}

/// Bytes that are still to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("length"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("as many bytes"))
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }
}
