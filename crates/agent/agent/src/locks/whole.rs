//! The flocks of one file.

use super::{LockKind, Owner};

/// Invariant: one exclusive holder, or any number of shared ones; each owner at most once.
#[derive(Debug, Default)]
pub struct WholeLocks {
    held: Vec<(Owner, LockKind)>,
}

impl WholeLocks {
    /// Whether another owner stands in the way.
    pub fn conflicts(&self, owner: Owner, kind: LockKind) -> bool {
        self.held.iter().any(|&(other, held)| other != owner && held.conflicts(kind))
    }

    /// What the owner holds.
    pub fn held_by(&self, owner: Owner) -> Option<LockKind> {
        self.held.iter().find(|&&(other, _)| other == owner).map(|&(_, kind)| kind)
    }

    /// Takes it; the caller has seen that nothing stands in the way.
    pub fn take(&mut self, owner: Owner, kind: LockKind) {
        self.release(owner);
        self.held.push((owner, kind));
    }

    /// Releases it. Says whether it was held.
    pub fn release(&mut self, owner: Owner) -> bool {
        let before = self.held.len();
        self.held.retain(|&(other, _)| other != owner);
        before != self.held.len()
    }

    /// Releases what owners of a kind hold. Says whether anything was.
    pub fn release_all(&mut self, goes: impl Fn(Owner) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|&(other, _)| !goes(other));
        before != self.held.len()
    }

    /// Holders.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nobody holds it.
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
        locks.take(1, LockKind::Shared);
        assert!(!locks.conflicts(2, LockKind::Shared));
        locks.take(2, LockKind::Shared);
        assert!(locks.conflicts(1, LockKind::Exclusive));
        assert!(locks.release(2) && !locks.release(2));
        assert!(!locks.conflicts(1, LockKind::Exclusive));
    }
}
