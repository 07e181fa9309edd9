//! Locks of the files of one node: POSIX byte ranges, open-file-description ranges and whole-file flocks.
//!
//! Locks are kept here, by identity, and not in the kernel. A file that was changed in the global store has two inodes
//! for a while, the old version's and the new one's, and both must have the same locks. If locks are to exclude the
//! programs of other nodes too, they are taken in the global store as well ([`StoreLocks`]), by one agent for all its
//! programs.

mod ranges;
mod scope;
mod store;
mod table;
mod whole;

pub use ranges::{RangeLock, RangeLocks};
pub use scope::LockScope;
pub(crate) use store::StoreLocks;
pub use table::{LockRequest, LockTable, LockTicket, OnGranted};
pub use whole::WholeLocks;

/// Kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of owners at once.
    Shared,
    /// One owner alone.
    Exclusive,
}

impl LockKind {
    /// Whether two owners cannot hold locks of these kinds at once.
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// Owner of a lock. The low 64 bits are the number by which a kernel knows the process or the open file. The high 64
/// bits number that kernel's machine, 0 for this one, because two kernels may use the same number.
pub type LockOwner = u128;

/// Returns the owner that a client's kernel knows by `number`.
pub fn owner(client: u64, number: u64) -> LockOwner {
    u128::from(client) << 64 | u128::from(number)
}

/// Returns the client of an owner.
pub fn client_of(owner: LockOwner) -> u64 {
    (owner >> 64) as u64
}
