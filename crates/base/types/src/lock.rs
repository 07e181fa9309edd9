//! Kinds and owners of locks, and the POSIX byte-range locks of one file.

/// Kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of owners at once.
    Shared,
    /// One owner alone.
    Exclusive,
}

impl LockKind {
    /// Returns whether two owners cannot hold locks of these kinds at once.
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// Owner of a lock. The low 64 bits are the number by which a kernel knows the process or the open file. The high 64
/// bits number that kernel's machine, 0 for this one, because two kernels may use the same number.
pub type LockOwner = u128;

/// A held range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive. A lock to the end of the file reaches `i64::MAX`, after which there is no byte.
    pub end: u64,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Owner of the lock.
    pub owner: LockOwner,
    /// Process id of the owner, reported by `F_GETLK`.
    pub pid: u32,
    /// Open file through which the lock was taken. A lock of an open file description ends with it.
    pub handle: u64,
}

impl RangeLock {
    fn meets(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }

    fn same_holder(&self, other: &RangeLock) -> bool {
        (self.owner, self.kind, self.handle) == (other.owner, other.kind, other.handle)
    }
}

/// Held byte ranges. Invariant 1: the ranges of one owner never overlap. Invariant 2: overlapping ranges of two owners
/// are both shared. Invariant 3: ranges are sorted by first byte.
#[derive(Debug, Clone, Default)]
pub struct RangeLocks {
    held: Vec<RangeLock>,
}

impl RangeLocks {
    /// Returns a held lock that conflicts with `wanted`.
    pub fn conflict(&self, wanted: &RangeLock) -> Option<&RangeLock> {
        self.conflicts(*wanted).next()
    }

    /// Returns all held locks that conflict with `wanted`.
    pub fn conflicts(&self, wanted: RangeLock) -> impl Iterator<Item = &RangeLock> {
        self.held.iter().filter(move |held| {
            held.owner != wanted.owner && held.meets(wanted.start, wanted.end) && held.kind.conflicts(wanted.kind)
        })
    }

    /// Takes the lock, replacing the owner's locks in that range. The caller has checked that there is no conflict.
    pub fn take(&mut self, lock: RangeLock) {
        self.release(lock.owner, lock.start, lock.end);
        let mut lock = lock;
        self.held.retain(|held| {
            let touches = held.same_holder(&lock)
                && (held.end.checked_add(1) == Some(lock.start) || lock.end.checked_add(1) == Some(held.start));
            if touches {
                lock.start = lock.start.min(held.start);
                lock.end = lock.end.max(held.end);
            }
            !touches
        });
        let at = self.held.partition_point(|held| held.start < lock.start);
        self.held.insert(at, lock);
    }

    /// Releases `start..=end` of one owner. A lock that reaches beyond on both sides becomes two. Returns whether
    /// anything was released.
    pub fn release(&mut self, owner: LockOwner, start: u64, end: u64) -> bool {
        if !self.held.iter().any(|held| held.owner == owner && held.meets(start, end)) {
            return false;
        }
        let mut kept = Vec::with_capacity(self.held.len() + 1);
        for held in self.held.drain(..) {
            if held.owner != owner || !held.meets(start, end) {
                kept.push(held);
                continue;
            }
            if held.start < start {
                kept.push(RangeLock { end: start - 1, ..held });
            }
            if held.end > end {
                kept.push(RangeLock { start: end + 1, ..held });
            }
        }
        kept.sort_by_key(|held| held.start);
        self.held = kept;
        true
    }

    /// Whether a range was taken through this open file.
    pub fn is_held_through(&self, handle: u64) -> bool {
        self.held.iter().any(|held| held.handle == handle)
    }

    /// Releases the ranges taken through an open file. Returns whether there were any.
    pub fn release_handle(&mut self, handle: u64) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.handle != handle);
        before != self.held.len()
    }

    /// Releases the ranges of all owners for which `goes` is true. Returns whether there were any.
    pub fn release_all(&mut self, goes: impl Fn(LockOwner) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|held| !goes(held.owner));
        before != self.held.len()
    }

    /// Held ranges, by first byte.
    pub fn iter(&self) -> impl Iterator<Item = &RangeLock> {
        self.held.iter()
    }

    /// Number of held ranges.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether no range is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(start: u64, end: u64, kind: LockKind, owner: LockOwner) -> RangeLock {
        RangeLock { start, end, kind, owner, pid: 0, handle: owner as u64 }
    }

    #[test]
    fn releasing_the_middle_leaves_both_ends() {
        let mut locks = RangeLocks::default();
        locks.take(lock(0, 99, LockKind::Exclusive, 1));
        assert!(locks.release(1, 40, 59));
        assert!(locks.conflict(&lock(40, 59, LockKind::Exclusive, 2)).is_none());
        assert!(locks.conflict(&lock(39, 39, LockKind::Shared, 2)).is_some());
        assert!(locks.conflict(&lock(60, 60, LockKind::Shared, 2)).is_some());
    }

    #[test]
    fn neighbours_of_one_holder_become_one_range() {
        let mut locks = RangeLocks::default();
        locks.take(lock(0, 9, LockKind::Shared, 1));
        locks.take(lock(20, i64::MAX as u64, LockKind::Shared, 1));
        locks.take(lock(10, 19, LockKind::Shared, 1));
        assert_eq!(locks.len(), 1);
    }

    #[test]
    fn a_lock_to_the_very_last_byte_does_not_wrap() {
        let mut locks = RangeLocks::default();
        locks.take(lock(5, u64::MAX, LockKind::Exclusive, 1));
        locks.take(lock(0, 4, LockKind::Exclusive, 1));
        assert!(locks.release(1, 7, u64::MAX));
        assert_eq!(locks.held, [lock(0, 6, LockKind::Exclusive, 1)]);
    }

    /// The model holds the lock kind for each byte and owner.
    #[test]
    fn random_locks_agree_with_one_slot_a_byte() {
        const BYTES: u64 = 24;
        const OWNERS: u64 = 4;
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut locks = RangeLocks::default();
        let mut model = [[None::<LockKind>; BYTES as usize]; OWNERS as usize];
        for _ in 0..50_000 {
            let owner = LockOwner::from(next(OWNERS));
            let start = next(BYTES);
            let end = start + next(BYTES - start);
            let slots = start as usize..=end as usize;
            let kind = if next(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
            let wanted = lock(start, end, kind, owner);
            match next(3) {
                0 => {
                    locks.release(owner, start, end);
                    model[owner as usize][slots].fill(None);
                }
                _ => {
                    let conflicts = (0..LockOwner::from(OWNERS)).filter(|&other| other != owner).any(|other| {
                        model[other as usize][slots.clone()].iter().flatten().any(|held| held.conflicts(kind))
                    });
                    assert_eq!(locks.conflict(&wanted).is_some(), conflicts);
                    if !conflicts {
                        locks.take(wanted);
                        model[owner as usize][slots].fill(Some(kind));
                    }
                }
            }
            check(&locks, &model);
        }
    }

    fn check(locks: &RangeLocks, model: &[[Option<LockKind>; 24]; 4]) {
        assert!(locks.held.is_sorted_by_key(|held| held.start), "invariant 3");
        let mut seen = [[None; 24]; 4];
        for held in &locks.held {
            for byte in held.start..=held.end {
                let slot = &mut seen[held.owner as usize][byte as usize];
                assert!(slot.is_none(), "invariant 1");
                *slot = Some(held.kind);
            }
        }
        assert_eq!(&seen, model);
    }
}
