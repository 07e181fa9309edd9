//! Records as bytes. All integers are little endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | layout version: 1, or 2 with the lines marked so |
//! | 1 | bits 0..3 state, 3 was clean, 4 pinned, 5 orphaned, 6 removing, 7 synced |
//! | 8, 8 | version of the replica, epoch |
//! | 8, 8 + 4, 8 + 4 | base: size, mtime, ctime (seconds and nanoseconds) |
//! | 8 | last use in seconds |
//! | 2 + n | hint |
//! | 2 + n | reason, UTF-8 |
//! | 1 + n | 2: identity of the successor, empty if it has none yet |
//! | 8, 8 + 4, 8 + 4 | 2: the successor's size, mtime, ctime |
//! | 4 | CRC-32C of the identity and of all bytes before |
//!
//! The identity is part of the checksum, so that a record never passes for another file's.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use types::{Epoch, Fingerprint, Identity, Timestamp, Version};

use crate::limits::{HINT_BYTES_MAX, REASON_BYTES_MAX};
use crate::{Record, State, Successor};

const LAYOUT: u8 = 1;
/// With a successor.
const LAYOUT_SUCCESSOR: u8 = 2;
const STATE_MASK: u8 = 0b0000_0111;
const WAS_CLEAN: u8 = 0b0000_1000;
const PINNED: u8 = 0b0001_0000;
const ORPHANED: u8 = 0b0010_0000;
const REMOVING: u8 = 0b0100_0000;
const SYNCED: u8 = 0b1000_0000;
const CHECKSUM_BYTES: usize = 4;

/// A record's bytes. A hint that is too long is dropped, a reason cut.
pub(crate) fn encode(identity: &Identity, record: &Record) -> Vec<u8> {
    let hint = record.hint.as_os_str().as_bytes();
    let hint = if hint.len() > HINT_BYTES_MAX { &[] } else { hint };
    let reason = &record.reason.as_bytes()[..record.reason.floor_char_boundary(REASON_BYTES_MAX)];
    let mut bytes = Vec::with_capacity(70 + hint.len() + reason.len());
    bytes.push(if record.successor.is_some() { LAYOUT_SUCCESSOR } else { LAYOUT });
    bytes.push(flags(record));
    bytes.extend_from_slice(&record.version.0.to_le_bytes());
    bytes.extend_from_slice(&record.epoch.0.to_le_bytes());
    put_fingerprint(&mut bytes, &record.base);
    bytes.extend_from_slice(&record.used_s.to_le_bytes());
    for text in [hint, reason] {
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text);
    }
    if let Some(successor) = &record.successor {
        let identity = successor.identity.as_ref().map_or(&[][..], Identity::as_bytes);
        bytes.push(identity.len() as u8);
        bytes.extend_from_slice(identity);
        put_fingerprint(&mut bytes, &successor.left);
    }
    let checksum = checksum(identity, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn put_fingerprint(bytes: &mut Vec<u8>, fingerprint: &Fingerprint) {
    bytes.extend_from_slice(&fingerprint.size.to_le_bytes());
    for time in [fingerprint.mtime, fingerprint.ctime] {
        bytes.extend_from_slice(&time.seconds.to_le_bytes());
        bytes.extend_from_slice(&time.nanos.to_le_bytes());
    }
}

fn flags(record: &Record) -> u8 {
    let state = match record.state {
        State::Clean => 0,
        State::Dirty => 1,
        State::Draining => 2,
        State::Conflict => 3,
        State::Failed => 4,
    };
    let bit = |set, bit| if set { bit } else { 0 };
    state
        | bit(record.was_clean, WAS_CLEAN)
        | bit(record.pinned, PINNED)
        | bit(record.orphaned, ORPHANED)
        | bit(record.removing, REMOVING)
        | bit(record.synced, SYNCED)
}

fn checksum(identity: &Identity, bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(identity.as_bytes());
    digest.update(bytes);
    digest.finalize() as u32
}

/// The record in `bytes`, or what is wrong with them.
pub(crate) fn decode(identity: &Identity, bytes: &[u8]) -> Result<Record, &'static str> {
    let Some((body, sum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else { return Err("too short") };
    let succeeded = match body.first() {
        Some(&LAYOUT) => false,
        Some(&LAYOUT_SUCCESSOR) => true,
        _ => return Err("unknown layout version"),
    };
    if checksum(identity, body) != u32::from_le_bytes(*sum) {
        return Err("wrong checksum");
    }
    parse(&body[1..], succeeded).ok_or("fields that make no sense")
}

/// The fields behind the layout version.
fn parse(rest: &[u8], succeeded: bool) -> Option<Record> {
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
    let base = rest.fingerprint()?;
    let used_s = rest.u64()?;
    let hint = PathBuf::from(std::ffi::OsString::from_vec(rest.text()?.to_vec()));
    let reason = std::str::from_utf8(rest.text()?).ok()?.to_owned();
    let successor = if succeeded { Some(rest.successor()?) } else { None };
    rest.0.is_empty().then_some(Record {
        state,
        version,
        epoch,
        base,
        was_clean: flags & WAS_CLEAN != 0,
        pinned: flags & PINNED != 0,
        orphaned: flags & ORPHANED != 0,
        removing: flags & REMOVING != 0,
        synced: flags & SYNCED != 0,
        hint,
        used_s,
        reason,
        successor,
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

    fn fingerprint(&mut self) -> Option<Fingerprint> {
        Some(Fingerprint { size: self.u64()?, mtime: self.timestamp()?, ctime: self.timestamp()? })
    }

    fn successor(&mut self) -> Option<Successor> {
        let [len] = self.take()?;
        let (identity, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        let identity = if identity.is_empty() { None } else { Some(Identity::new(identity).ok()?) };
        Some(Successor { identity, left: self.fingerprint()? })
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
            },
            was_clean: true,
            pinned: false,
            orphaned: true,
            removing: false,
            synced: false,
            hint: PathBuf::from(std::ffi::OsString::from_vec(b"run/\xff\xfe name".to_vec())),
            used_s: 12,
            reason: "no space: 27 Б".into(),
            successor: None,
        }
    }

    fn succeeded() -> Record {
        let left = Fingerprint { size: 3, ..record().base };
        Record { successor: Some(Successor { identity: Some(identity(9)), left }), ..record() }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for state in [State::Clean, State::Dirty, State::Draining, State::Conflict, State::Failed] {
            let (pinned, removing, synced) = (state == State::Clean, state == State::Dirty, state == State::Failed);
            let record = Record { state, pinned, removing, synced, ..record() };
            assert_eq!(decode(&identity(4), &encode(&identity(4), &record)), Ok(record));
        }
        for record in [succeeded(), Record { successor: Some(Successor::default()), ..record() }] {
            assert_eq!(decode(&identity(4), &encode(&identity(4), &record)), Ok(record));
        }
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

    /// Bytes with a right checksum that nobody wrote: every value of every byte.
    #[test]
    fn hostile_fields_with_a_good_checksum_never_panic() {
        let (plain, succeeded) = (encode(&identity(4), &record()), encode(&identity(4), &succeeded()));
        let bodies = [&plain, &succeeded].map(|good| &good[..good.len() - CHECKSUM_BYTES]);
        for (body, at) in bodies.into_iter().flat_map(|body| (0..body.len()).map(move |at| (body, at))) {
            for value in 0..=255 {
                for end in [body.len(), at + 1] {
                    let mut bad = body[..end].to_vec();
                    bad[at] = value;
                    let sum = checksum(&identity(4), &bad);
                    bad.extend_from_slice(&sum.to_le_bytes());
                    if let Ok(back) = decode(&identity(4), &bad) {
                        assert_eq!(encode(&identity(4), &back), bad);
                    }
                }
            }
        }
    }
}
