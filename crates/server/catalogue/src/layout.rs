//! Byte layout of records. All integers are little endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | layout version, 2 |
//! | 1 | bits 0..3 state, 3 was clean, 4 pinned, 5 orphaned, 6 removing, 7 synced |
//! | 8, 8 | version of the replica, epoch |
//! | 8, 8 + 4, 8 + 4 | base: size, mtime, ctime (seconds and nanoseconds) |
//! | 4 | base: hash of attributes (not in layout 1) |
//! | 8 | last use in seconds |
//! | 1 | bits 0 racy, 1 checksum, 2 shown, 3 synced length, 4 damaged (not in layout 1) |
//! | 8 | checksum, if there is one |
//! | 8 + 4 | shown, if there is one |
//! | 8 | synced length, if there is one |
//! | 2 + n | hint |
//! | 2 + n | reason, UTF-8 |
//! | 4 | CRC-32C of the identity and of all bytes before |
//!
//! Layout 1 is read and never written.
//!
//! The identity is part of the checksum, so that a record is never taken for another file's.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use types::{Epoch, Fingerprint, Identity, Timestamp, Version};

use crate::limits::{HINT_BYTES_MAX, REASON_BYTES_MAX};
use crate::{Record, State};

const LAYOUT: u8 = 2;
/// Former layout, still read.
const LAYOUT_1: u8 = 1;
const STATE_MASK: u8 = 0b0000_0111;
const WAS_CLEAN: u8 = 0b0000_1000;
const PINNED: u8 = 0b0001_0000;
const ORPHANED: u8 = 0b0010_0000;
const REMOVING: u8 = 0b0100_0000;
const SYNCED: u8 = 0b1000_0000;
const RACY: u8 = 0b0000_0001;
const SUM: u8 = 0b0000_0010;
const SHOWN: u8 = 0b0000_0100;
const SYNCED_LEN: u8 = 0b0000_1000;
const DAMAGED: u8 = 0b0001_0000;
const CHECKSUM_BYTES: usize = 4;

/// Encodes a record. A hint that is too long is dropped; a reason that is too long is cut.
pub(crate) fn encode(identity: &Identity, record: &Record) -> Vec<u8> {
    let hint = record.hint.as_os_str().as_bytes();
    let hint = if hint.len() > HINT_BYTES_MAX { &[] } else { hint };
    let reason = &record.reason.as_bytes()[..record.reason.floor_char_boundary(REASON_BYTES_MAX)];
    let mut bytes = Vec::with_capacity(83 + hint.len() + reason.len());
    bytes.push(LAYOUT);
    bytes.push(flags(record));
    bytes.extend_from_slice(&record.version.0.to_le_bytes());
    bytes.extend_from_slice(&record.epoch.0.to_le_bytes());
    bytes.extend_from_slice(&record.base.size.to_le_bytes());
    for time in [record.base.mtime, record.base.ctime] {
        put_time(&mut bytes, time);
    }
    bytes.extend_from_slice(&record.base.attributes.to_le_bytes());
    bytes.extend_from_slice(&record.used_s.to_le_bytes());
    bytes.push(more_flags(record));
    record.sum.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_le_bytes()));
    record.shown.iter().for_each(|time| put_time(&mut bytes, *time));
    if record.synced_len > 0 {
        bytes.extend_from_slice(&record.synced_len.to_le_bytes());
    }
    for text in [hint, reason] {
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text);
    }
    let checksum = checksum(identity, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn flags(record: &Record) -> u8 {
    let state = match record.state {
        State::Clean => 0,
        State::Dirty => 1,
        State::Draining => 2,
        State::Conflict => 3,
        State::Failed => 4,
    };
    state
        | bit(record.was_clean, WAS_CLEAN)
        | bit(record.pinned, PINNED)
        | bit(record.orphaned, ORPHANED)
        | bit(record.removing, REMOVING)
        | bit(record.synced, SYNCED)
}

fn more_flags(record: &Record) -> u8 {
    bit(record.racy, RACY)
        | bit(record.sum.is_some(), SUM)
        | bit(record.shown.is_some(), SHOWN)
        | bit(record.synced_len > 0, SYNCED_LEN)
        | bit(record.damaged, DAMAGED)
}

fn put_time(bytes: &mut Vec<u8>, time: Timestamp) {
    bytes.extend_from_slice(&time.seconds.to_le_bytes());
    bytes.extend_from_slice(&time.nanos.to_le_bytes());
}

fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn checksum(identity: &Identity, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(identity.as_bytes());
    digest.update(bytes);
    digest.finalize() as u32
}

/// Decodes the record in `bytes`. Errors: a description of the defect.
pub(crate) fn decode(identity: &Identity, bytes: &[u8]) -> Result<Record, &'static str> {
    let Some((body, sum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else { return Err("too short") };
    let Some((&layout @ (LAYOUT_1 | LAYOUT), rest)) = body.split_first() else { return Err("unknown layout version") };
    if checksum(identity, body) != u32::from_le_bytes(*sum) {
        return Err("wrong checksum");
    }
    parse(rest, layout).ok_or("fields that make no sense")
}

/// Parses the fields after the layout version.
fn parse(rest: &[u8], layout: u8) -> Option<Record> {
    let mut rest = Rest(rest);
    let [flags] = rest.take()?;
    let state = match flags & STATE_MASK {
        0 => State::Clean,
        1 => State::Dirty,
        2 => State::Draining,
        3 => State::Conflict,
        4 => State::Failed,
        _ => return None,
    };
    let version = Version(rest.u64()?);
    let epoch = Epoch(rest.u64()?);
    let (size, mtime, ctime) = (rest.u64()?, rest.timestamp()?, rest.timestamp()?);
    let attributes = if layout == LAYOUT_1 { 0 } else { u32::from_le_bytes(rest.take()?) };
    let base = Fingerprint { size, mtime, ctime, attributes };
    let used_s = rest.u64()?;
    let [more] = if layout == LAYOUT_1 { [0] } else { rest.take()? };
    if more & !(RACY | SUM | SHOWN | SYNCED_LEN | DAMAGED) != 0 {
        return None;
    }
    let sum = if more & SUM == 0 { None } else { Some(rest.u64()?) };
    let shown = if more & SHOWN == 0 { None } else { Some(rest.timestamp()?) };
    let synced_len = if more & SYNCED_LEN == 0 { 0 } else { rest.u64().filter(|len| *len > 0)? };
    let hint = PathBuf::from(std::ffi::OsString::from_vec(rest.text()?.to_vec()));
    let reason = std::str::from_utf8(rest.text()?).ok()?.to_owned();
    rest.0.is_empty().then_some(Record {
        state,
        version,
        epoch,
        base,
        was_clean: flags & WAS_CLEAN != 0,
        racy: more & RACY != 0,
        sum,
        shown,
        pinned: flags & PINNED != 0,
        orphaned: flags & ORPHANED != 0,
        removing: flags & REMOVING != 0,
        synced: flags & SYNCED != 0,
        synced_len,
        damaged: more & DAMAGED != 0,
        hint,
        used_s,
        reason,
    })
}

/// Bytes not yet read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        let seconds = i64::from_le_bytes(self.take()?);
        let nanos = u32::from_le_bytes(self.take()?);
        (nanos < 1_000_000_000).then_some(Timestamp { seconds, nanos })
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = u16::from_le_bytes(self.take()?);
        let (text, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity::new(vec![1, 2, 3, byte]).unwrap()
    }

    fn record() -> Record {
        Record {
            state: State::Failed,
            version: Version(7),
            epoch: Epoch(u64::MAX),
            base: Fingerprint {
                size: 1 << 40,
                mtime: Timestamp { seconds: -5, nanos: 999_999_999 },
                ctime: Timestamp { seconds: 1_700_000_000, nanos: 0 },
                attributes: 0x1234_5678,
            },
            was_clean: true,
            racy: false,
            sum: Some(u64::MAX - 1),
            shown: Some(Timestamp { seconds: 1_700_000_001, nanos: 5 }),
            pinned: false,
            orphaned: true,
            removing: false,
            synced: false,
            synced_len: 1 << 33,
            damaged: false,
            hint: PathBuf::from(std::ffi::OsString::from_vec(b"run/\xff\xfe name".to_vec())),
            used_s: 12,
            reason: "no space: 27 Б".into(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for state in [State::Clean, State::Dirty, State::Draining, State::Conflict, State::Failed] {
            let (pinned, removing, synced) = (state == State::Clean, state == State::Dirty, state == State::Failed);
            let (racy, sum, shown) = (removing, record().sum.filter(|_| pinned), record().shown.filter(|_| removing));
            let (synced_len, damaged) = (if pinned { 0 } else { record().synced_len }, state == State::Conflict);
            let record = Record { state, pinned, removing, synced, racy, sum, shown, synced_len, damaged, ..record() };
            assert_eq!(decode(&identity(4), &encode(&identity(4), &record)), Ok(record));
        }
    }

    #[test]
    fn a_record_of_the_former_layout_is_read() {
        let base = Fingerprint { attributes: 0, ..record().base };
        let record = Record { sum: None, shown: None, synced_len: 0, base, ..record() };
        let mut bytes = encode(&identity(4), &record);
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        // One byte each: layout and flags.
        let fields = 2 + 8 + 8 + 8 + 12 + 12;
        bytes.remove(fields + 4 + 8);
        bytes.drain(fields..fields + 4);
        bytes[0] = LAYOUT_1;
        let sum = checksum(&identity(4), &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        assert_eq!(decode(&identity(4), &bytes), Ok(record));
    }

    #[test]
    fn a_record_with_a_usual_path_fits_in_256_bytes_with_its_key() {
        let record = Record { hint: "projects/climate/run-0042/output/wrfout_d01_2026-01-01.nc".into(), ..record() };
        assert!(encode(&identity(4), &record).len() + 24 <= 256);
    }

    #[test]
    fn a_record_is_not_taken_for_another_files() {
        assert_eq!(decode(&identity(5), &encode(&identity(4), &record())), Err("wrong checksum"));
    }

    #[test]
    fn a_hint_too_long_is_dropped_and_a_reason_cut_at_a_character() {
        let long = Record { hint: "x".repeat(5000).into(), reason: "é".repeat(5000), ..record() };
        let back = decode(&identity(4), &encode(&identity(4), &long)).unwrap();
        assert_eq!(back.hint, PathBuf::new());
        assert!(back.reason.len() <= REASON_BYTES_MAX && long.reason.starts_with(&back.reason));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = encode(&identity(4), &record());
        for at in 0..good.len() {
            assert!(decode(&identity(4), &good[..at]).is_err());
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(decode(&identity(4), &bad).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    /// Tries every value of every byte, with a correct checksum.
    #[test]
    fn hostile_fields_with_a_good_checksum_never_panic() {
        let good = encode(&identity(4), &record());
        let body = &good[..good.len() - CHECKSUM_BYTES];
        for at in 0..body.len() {
            for value in 0..=255 {
                for end in [body.len(), at + 1] {
                    let mut bad = body[..end].to_vec();
                    bad[at] = value;
                    let sum = checksum(&identity(4), &bad);
                    bad.extend_from_slice(&sum.to_le_bytes());
                    if let Ok(back) = decode(&identity(4), &bad)
                        && bad[0] == LAYOUT
                    {
                        assert_eq!(encode(&identity(4), &back), bad);
                    }
                }
            }
        }
    }
}
