//! Locks of the files of one node: POSIX byte ranges, open-file-description ranges and whole-file flocks.
//!
//! They are kept here, by identity, and not in the kernel, because a file that was changed below has two inodes for a
//! while - the old version's and the new one's - and both must mean the same locks. Where they are to exclude the programs of other
//! nodes as well they are taken in the global store besides ([`StoreLocks`]), by one agent for all its programs.

mod ranges;
mod store;
mod table;
mod whole;

pub use ranges::{RangeLock, RangeLocks};
pub(crate) use store::StoreLocks;
pub use table::{LockRequest, LockTable, LockTicket, OnGranted};
pub use whole::WholeLocks;

/// Shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of owners at once.
    Shared,
    /// One owner alone.
    Exclusive,
}

impl LockKind {
    /// Whether two owners cannot have both at once.
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// Who holds or wants a lock: the number by which a kernel knows the process or the open file, and above it the number of
/// the kernel's machine: 0 for this one. Two kernels may give the same number.
pub type LockOwner = u128;

/// The owner that the kernel of a client knows by this number.
pub fn owner(client: u64, number: u64) -> LockOwner {
    u128::from(client) << 64 | u128::from(number)
}

/// Whose an owner is.
pub fn client_of(owner: LockOwner) -> u64 {
    (owner >> 64) as u64
}
