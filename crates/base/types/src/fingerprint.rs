//! Fingerprints: recognising that a file's content changed, without reading the content.

use std::time::Duration;

/// A moment as file systems store it: seconds since 1970-01-01 UTC (negative before) and 0..1e9 nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded down.
    pub seconds: i64,
    /// Nanoseconds past `seconds`, below 1e9.
    pub nanos: u32,
}

impl Timestamp {
    /// Returns the moment `ns` nanoseconds after 1970-01-01 UTC.
    pub const fn from_nanos(ns: u64) -> Timestamp {
        Timestamp { seconds: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as u32 }
    }

    /// Returns the time from this moment until `now`; 0 if this moment is still to come.
    pub fn age(self, now: Timestamp) -> Duration {
        let seconds = now.seconds.saturating_sub(self.seconds).saturating_mul(1_000_000_000);
        let nanos = seconds.saturating_add(i64::from(now.nanos) - i64::from(self.nanos));
        Duration::from_nanos(nanos.max(0).unsigned_abs())
    }

    /// Returns the next representable moment: one nanosecond later.
    #[must_use]
    pub fn next(self) -> Timestamp {
        if self.nanos < 999_999_999 {
            Timestamp { nanos: self.nanos + 1, ..self }
        } else {
            Timestamp { seconds: self.seconds.saturating_add(1), nanos: 0 }
        }
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The time given.
    At(Timestamp),
    /// The time at which the call is executed.
    Now,
}

/// Difference between two fingerprints of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// No difference.
    Nothing,
    /// Only ctime differs. Either attributes or names were changed, or content was changed and then size and mtime were
    /// set back. Only a comparison of the bytes can tell.
    ChangeTime,
    /// Size or mtime differs.
    Content,
}

/// Everything that `stat` says about one content of a file in the global store.
///
/// Taken after our own last change to the file; a later difference means that somebody else changed the file. The birth
/// time is not included: a file with another birth time has another [`Identity`](crate::Identity). Kernel change
/// counters are not included, because kernels do not show them to programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    /// Size of the file in bytes.
    pub size: u64,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change of content or attributes.
    pub ctime: Timestamp,
    /// Hash of mode, owner, group and link count ([`Fingerprint::attributes_of`]); 0: unknown.
    pub attributes: u32,
}

impl Fingerprint {
    /// Returns the hash of these attributes, never 0. The hash function must not change: hashes are stored in records.
    pub fn attributes_of(mode: u32, uid: u32, gid: u32, links: u64) -> u32 {
        let fields = [mode, uid, gid, links as u32];
        // FNV-1a.
        let hash = fields.iter().flat_map(|field| field.to_le_bytes());
        hash.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)).max(1)
    }

    /// Returns whether size and mtime agree. Contents may still differ: see [`Fingerprint::moved`].
    pub fn same_content(&self, other: &Fingerprint) -> bool {
        self.size == other.size && self.mtime == other.mtime
    }

    /// Compares with `found`, a later fingerprint of this file, and returns the kind of difference.
    pub fn moved(&self, found: &Fingerprint) -> Moved {
        match self.same_content(found) {
            false => Moved::Content,
            true if self.ctime == found.ctime => Moved::Nothing,
            true => Moved::ChangeTime,
        }
    }

    /// Returns the fingerprint to store after `found` was seen.
    ///
    /// That is `found`, but with ctime and attributes of this fingerprint if only those differ. The next comparison
    /// then finds the difference again: nobody has shown yet that the content is unchanged.
    #[must_use]
    pub fn doubting(&self, found: Fingerprint) -> Fingerprint {
        match self.moved(&found) {
            Moved::ChangeTime => *self,
            _ => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_keeps_size_and_mtime_is_a_doubt_and_stays_one() {
        let time = |seconds| Timestamp { seconds, nanos: 0 };
        let was = Fingerprint { size: 3, mtime: time(1), ctime: time(2), attributes: 9 };
        let touched = Fingerprint { ctime: time(3), ..was };
        let written = Fingerprint { mtime: time(3), ..touched };
        assert_eq!(
            [was, touched, written].map(|found| was.moved(&found)),
            [Moved::Nothing, Moved::ChangeTime, Moved::Content]
        );
        assert_eq!(was.doubting(touched).moved(&touched), Moved::ChangeTime);
        assert_eq!(was.doubting(written), written);
    }

    /// Records store the hash, so its function must not change.
    #[test]
    fn the_hash_of_attributes_stays_what_it_is_and_tells_each_of_them() {
        let hash = Fingerprint::attributes_of(0o100_644, 1, 2, 1);
        assert_eq!(hash, 0x9919_dba4);
        let others = [(0o100_600, 1, 2, 1), (0o100_644, 2, 2, 1), (0o100_644, 1, 1, 1), (0o100_644, 1, 2, 2)];
        assert!(
            others.iter().all(|&(mode, uid, gid, links)| Fingerprint::attributes_of(mode, uid, gid, links) != hash)
        );
    }
}
