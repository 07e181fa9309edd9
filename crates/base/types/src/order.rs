//! Counters that order changes and name replica files.

/// Number of a committed change of one file; a larger epoch is later. Used to reject work that was started before the
/// newest change.
///
/// Minted by the file cache each time a clean or draining file begins to change. Grows as long as the replica has a
/// record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the following epoch.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Number of one replica file in a burst buffer.
///
/// The counter never repeats. A new version of a file is therefore a new replica, and descriptors that are already open
/// keep the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
