//! The flocks of one file.

use types::{LockKind, LockOwner};

/// Whole-file locks. Invariant: one exclusive holder or any number of shared ones, and each owner at most once.
#[derive(Debug, Default)]
pub struct WholeLocks {
    held: Vec<WholeLock>,
}

#[derive(Debug, Clone, Copy)]
struct WholeLock {
    owner: LockOwner,
    kind: LockKind,
    /// Open file through which the lock was taken.
    handle: u64,
}

impl WholeLocks {
    /// Whether another owner holds a conflicting lock.
    pub fn conflicts(&self, owner: LockOwner, kind: LockKind) -> bool {
        self.in_the_way(owner, kind).next().is_some()
    }

    /// Returns the open files through which others hold conflicting locks.
    pub fn in_the_way(&self, owner: LockOwner, kind: LockKind) -> impl Iterator<Item = u64> {
        let held = self.held.iter().filter(move |held| held.owner != owner && held.kind.conflicts(kind));
        held.map(|held| held.handle)
    }

    /// Whether a lock was taken through this open file.
    pub fn is_held_through(&self, handle: u64) -> bool {
        self.held.iter().any(|held| held.handle == handle)
    }

    /// Returns the kind of lock that the owner holds.
    pub fn held_by(&self, owner: LockOwner) -> Option<LockKind> {
        self.held.iter().find(|held| held.owner == owner).map(|held| held.kind)
    }

    /// Takes the lock. The caller has checked that there is no conflict.
    pub fn take(&mut self, owner: LockOwner, kind: LockKind, handle: u64) {
        self.release(owner);
        self.held.push(WholeLock { owner, kind, handle });
    }

    /// Releases the owner's lock. Returns whether there was one.
    pub fn release(&mut self, owner: LockOwner) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.owner != owner);
        before != self.held.len()
    }

    /// Releases the locks of all owners for which `goes` is true. Returns whether there were any.
    pub fn release_all(&mut self, goes: impl Fn(LockOwner) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|held| !goes(held.owner));
        before != self.held.len()
    }

    /// Number of holders.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is no holder.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_holders_exclude_an_exclusive_one_and_not_each_other() {
        let mut locks = WholeLocks::default();
        locks.take(1, LockKind::Shared, 1);
        assert!(!locks.conflicts(2, LockKind::Shared));
        locks.take(2, LockKind::Shared, 2);
        assert!(locks.conflicts(1, LockKind::Exclusive));
        assert!(locks.release(2) && !locks.release(2));
        assert!(!locks.conflicts(1, LockKind::Exclusive));
    }
}
