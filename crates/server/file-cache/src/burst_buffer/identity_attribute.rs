//! The identity attribute of a dirty replica: whose data it holds.
//!
//! Format 3: the number of the format; the identity's length (one byte) and its bytes; epoch, size, the seconds of
//! mtime, its nanoseconds, how many seconds ctime is later, its nanoseconds; the rest is the hint. Numbers are unsigned
//! in groups of seven bits, the lowest first, each but the last with the eighth bit set; seconds have their sign in bit
//! 0. Formats 1 and 2 had all numbers in full, and the first no epoch.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use types::{Epoch, Fingerprint, Identity, Timestamp};

use crate::limits::HINT_BYTES;

const FORMAT: u8 = 3;
/// Format with all numbers in full.
const FORMAT_2: u8 = 2;
/// Format without the epoch.
const FORMAT_1: u8 = 1;

/// Stands for the beginning of a path that was cut.
const CUT: &[u8] = "\u{2026}".as_bytes();

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentityAttribute {
    pub(crate) identity: Identity,
    /// Epoch of the intent. A clean record of this replica with the same or a later epoch says that it is out of date.
    pub(crate) epoch: Epoch,
    pub(crate) base: Fingerprint,
    pub(crate) hint: PathBuf,
}

impl IdentityAttribute {
    /// Encodes the attribute, in at most `most` bytes if cutting the hint to its end can achieve that.
    pub(crate) fn encode(&self, most: usize) -> Vec<u8> {
        let identity = self.identity.as_bytes();
        let mut bytes = vec![FORMAT, identity.len() as u8];
        bytes.extend_from_slice(identity);
        let (mtime, ctime) = (self.base.mtime, self.base.ctime);
        put(&mut bytes, self.epoch.0);
        put(&mut bytes, self.base.size);
        put(&mut bytes, signed(mtime.seconds));
        put(&mut bytes, mtime.nanos.into());
        put(&mut bytes, signed(ctime.seconds.wrapping_sub(mtime.seconds)));
        put(&mut bytes, ctime.nanos.into());
        // A cut path finds nothing, but helps a person.
        let hint = self.hint.as_os_str().as_bytes();
        let room = most.saturating_sub(bytes.len()).min(HINT_BYTES);
        if hint.len() <= room {
            bytes.extend_from_slice(hint);
        } else if room > CUT.len() {
            bytes.extend_from_slice(CUT);
            bytes.extend_from_slice(&hint[hint.len() - (room - CUT.len())..]);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<IdentityAttribute> {
        let (head, rest) = bytes.split_at_checked(2)?;
        let (identity, rest) = rest.split_at_checked(head[1] as usize)?;
        let mut rest = rest;
        let (epoch, base) = match head[0] {
            FORMAT => (take(&mut rest)?, compact_base(&mut rest)?),
            FORMAT_2 => (u64::from_le_bytes(take_full(&mut rest)?), full_base(&mut rest)?),
            FORMAT_1 => (0, full_base(&mut rest)?),
            _ => return None,
        };
        let identity = Identity::new(identity).ok()?;
        Some(IdentityAttribute { identity, epoch: Epoch(epoch), base, hint: OsStr::from_bytes(rest).into() })
    }

    /// Returns whether the hint is only the end of a path, or empty.
    pub(crate) fn is_cut(&self) -> bool {
        let hint = self.hint.as_os_str().as_bytes();
        hint.is_empty() || hint.starts_with(CUT)
    }
}

fn compact_base(rest: &mut &[u8]) -> Option<Fingerprint> {
    let size = take(rest)?;
    let mtime = Timestamp { seconds: unsigned(take(rest)?), nanos: take(rest)?.try_into().ok()? };
    let seconds = mtime.seconds.wrapping_add(unsigned(take(rest)?));
    Some(Fingerprint { size, mtime, ctime: Timestamp { seconds, nanos: take(rest)?.try_into().ok()? }, attributes: 0 })
}

fn full_base(rest: &mut &[u8]) -> Option<Fingerprint> {
    let size = u64::from_le_bytes(take_full(rest)?);
    let mut time = || {
        let seconds = i64::from_le_bytes(take_full(rest)?);
        Some(Timestamp { seconds, nanos: u32::from_le_bytes(take_full(rest)?) })
    };
    Some(Fingerprint { size, mtime: time()?, ctime: time()?, attributes: 0 })
}

fn take_full<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (number, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*number)
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn signed(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unsigned(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{IDENTITY_ATTRIBUTE_BYTES, IDENTITY_ATTRIBUTE_BYTES_MAX};

    fn identity_attribute(identity: &[u8], hint: &str) -> IdentityAttribute {
        let mtime = Timestamp { seconds: 1_795_000_000, nanos: 999_999_999 };
        let ctime = Timestamp { seconds: mtime.seconds + 1, nanos: 987_654_321 };
        let base = Fingerprint { size: 0, mtime, ctime, attributes: 0 };
        IdentityAttribute { identity: Identity::new(identity).unwrap(), epoch: Epoch(1), base, hint: hint.into() }
    }

    #[test]
    fn a_brand_reads_back() {
        let times = [(-5, 7), (0, 0), (i64::MAX, 999_999_999), (i64::MIN, 1)];
        let times = times.map(|(seconds, nanos)| Timestamp { seconds, nanos });
        for (mtime, ctime) in times.iter().flat_map(|mtime| times.iter().map(move |ctime| (*mtime, *ctime))) {
            for number in [0, 1, 127, 128, 1 << 40, u64::MAX] {
                let base = Fingerprint { size: number, mtime, ctime, attributes: 0 };
                let identity_attribute =
                    IdentityAttribute { epoch: Epoch(number), base, ..identity_attribute(&[1, 2, 3], "a/b") };
                assert_eq!(
                    IdentityAttribute::decode(&identity_attribute.encode(IDENTITY_ATTRIBUTE_BYTES_MAX)),
                    Some(identity_attribute)
                );
            }
        }
    }

    /// The test uses a handle as ext4 makes it.
    #[test]
    fn a_new_files_brand_with_a_short_path_fits_beside_the_inode_and_a_longer_path_is_cut() {
        let fits = identity_attribute(&[7; 12], "run-17/output.h5");
        assert!(fits.encode(IDENTITY_ATTRIBUTE_BYTES_MAX).len() <= IDENTITY_ATTRIBUTE_BYTES);
        assert_eq!(IdentityAttribute::decode(&fits.encode(IDENTITY_ATTRIBUTE_BYTES)), Some(fits.clone()));
        assert!(!fits.is_cut());
        let long = identity_attribute(&[7; 12], "a/path/of/many/parts/run-17/output.h5");
        assert_eq!(IdentityAttribute::decode(&long.encode(IDENTITY_ATTRIBUTE_BYTES_MAX)), Some(long.clone()));
        let cut = long.encode(IDENTITY_ATTRIBUTE_BYTES);
        assert_eq!(cut.len(), IDENTITY_ATTRIBUTE_BYTES);
        let cut = IdentityAttribute::decode(&cut).unwrap();
        assert!(cut.is_cut() && cut.hint.to_str().unwrap().ends_with("7/output.h5"), "{cut:?}");
        assert_eq!(IdentityAttribute { hint: long.hint.clone(), ..cut }, long);
    }

    #[test]
    fn a_brand_of_a_former_format_is_read_and_an_unknown_or_short_one_is_not() {
        let identity_attribute = IdentityAttribute { epoch: Epoch(4), ..identity_attribute(&[7], "a") };
        let mut bytes = vec![FORMAT_2, 1, 7];
        bytes.extend_from_slice(&identity_attribute.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&identity_attribute.base.size.to_le_bytes());
        for time in [identity_attribute.base.mtime, identity_attribute.base.ctime] {
            bytes.extend_from_slice(&time.seconds.to_le_bytes());
            bytes.extend_from_slice(&time.nanos.to_le_bytes());
        }
        bytes.extend_from_slice(b"a");
        assert_eq!(IdentityAttribute::decode(&bytes), Some(identity_attribute.clone()));
        bytes.drain(3..11);
        bytes[0] = FORMAT_1;
        assert_eq!(
            IdentityAttribute::decode(&bytes),
            Some(IdentityAttribute { epoch: Epoch(0), ..identity_attribute.clone() })
        );
        bytes[0] = FORMAT + 1;
        assert_eq!(IdentityAttribute::decode(&bytes), None);
        let whole =
            IdentityAttribute { hint: PathBuf::new(), ..identity_attribute }.encode(IDENTITY_ATTRIBUTE_BYTES_MAX);
        for len in 0..whole.len() {
            assert_eq!(IdentityAttribute::decode(&whole[..len]), None, "{len}");
        }
    }
}
