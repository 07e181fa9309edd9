//! Locks of the files of one node: POSIX byte ranges, open-file-description ranges and whole-file flocks.
//!
//! Locks are kept here, by identity, and not in the kernel. A file that was changed in the global store has two inodes
//! for a while, the old version's and the new one's, and both must have the same locks. If locks are to exclude the
//! programs of other nodes too, they are taken in the global store as well ([`StoreLocks`]), by one agent for all its
//! programs.

mod scope;
mod store;
mod table;
mod whole;

pub use scope::LockScope;
pub(crate) use store::StoreLocks;
pub use table::{LockRequest, LockTable, LockTicket, OnGranted};
use types::LockOwner;
pub use whole::WholeLocks;

/// Returns the owner that a client's kernel knows by `number`.
pub fn owner(client: u64, number: u64) -> LockOwner {
    u128::from(client) << 64 | u128::from(number)
}

/// Returns the client of an owner.
pub fn client_of(owner: LockOwner) -> u64 {
    (owner >> 64) as u64
}
