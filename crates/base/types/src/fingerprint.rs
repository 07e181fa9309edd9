//! What tells one content of a file from another without reading it.

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

/// Size and times of one content of a file of the global store. Taken after our own last change to it; a later
/// difference means that somebody else changed the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint {
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
}

impl Fingerprint {
    /// Whether both describe the same content: size and mtime agree. A ctime that moved alone is a change of
    /// attributes (owner, mode, links), which is the global store's own affair.
    pub fn same_content(&self, other: &Fingerprint) -> bool {
        self.size == other.size && self.mtime == other.mtime
    }
}
