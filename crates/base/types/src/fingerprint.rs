//! Telling one content of a file from another without reading it.

/// A moment as file systems store it: seconds since 1970-01-01 UTC (negative before) and 0..1e9 nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded down.
    pub seconds: i64,
    /// Nanoseconds past `seconds`, below 1e9.
    pub nanos: u32,
}

impl Timestamp {
    /// So many nanoseconds after 1970-01-01 UTC.
    pub const fn from_nanos(ns: u64) -> Timestamp {
        Timestamp { seconds: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as u32 }
    }

    /// The next moment that a file system can tell from this one.
    #[must_use]
    pub fn next(self) -> Timestamp {
        if self.nanos < 999_999_999 {
            Timestamp { nanos: self.nanos + 1, ..self }
        } else {
            Timestamp { seconds: self.seconds.saturating_add(1), nanos: 0 }
        }
    }
}

/// Difference between two fingerprints of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// None.
    Nothing,
    /// Only ctime differs: attributes or names were changed, or content was changed and its size and mtime were kept. Only the
    /// bytes tell.
    ChangeTime,
    /// Size or mtime differ.
    Content,
}

/// Everything that `stat` tells of one content of a file of the global store. Taken after our own last change to it; a later
/// difference means that somebody else changed the file. The birth time is not part of it: a file with another one has another
/// [`Identity`](crate::Identity). Kernels do not show their change counters to programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Hash of mode, owner, group and number of names ([`Fingerprint::attributes_of`]); 0: not known.
    pub attributes: u32,
}

impl Fingerprint {
    /// Returns the hash of these attributes. Durable: records hold it.
    pub fn attributes_of(mode: u32, uid: u32, gid: u32, links: u64) -> u32 {
        let fields = [mode, uid, gid, links as u32];
        // FNV-1a.
        let hash = fields.iter().flat_map(|field| field.to_le_bytes());
        hash.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)).max(1)
    }

    /// Whether size and mtime agree. Equal ones may still be of different contents: see [`Fingerprint::moved`].
    pub fn same_content(&self, other: &Fingerprint) -> bool {
        self.size == other.size && self.mtime == other.mtime
    }

    /// Returns what differs in `found`, a later fingerprint of the file.
    pub fn moved(&self, found: &Fingerprint) -> Moved {
        match self.same_content(found) {
            false => Moved::Content,
            true if self.ctime == found.ctime => Moved::Nothing,
            true => Moved::ChangeTime,
        }
    }

    /// Returns `found`, with the time of change and the attributes of this one if only they moved: what is doubtful stays so for
    /// whoever compares next.
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

    /// Records hold it.
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
