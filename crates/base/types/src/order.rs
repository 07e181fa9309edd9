//! Numbers that put things in order.

/// Orders the committed changes of one file: a fence against the past.
///
/// Minted by the file cache each time a clean or draining file begins to change; it grows for the life of the
/// replica's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch that follows this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Names one replica file in a burst buffer: a counter that is never used twice, so that a new version of a file is a
/// new replica and old descriptors keep theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
