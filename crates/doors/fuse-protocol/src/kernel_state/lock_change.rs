//! Change that a request of the kernel makes to the locks of a file.

use types::{LockKind, LockOwner, RangeLock};

use crate::abi::{FlushIn, LkIn};
use crate::decode::lock_args;
use crate::view::{arguments, is_success};
use crate::{Envelope, Handle, LockArgs, NodeId, Opcode, set_lock};

/// Change of one owner's locks by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockChange {
    /// Lock owner, as the kernel numbers owners.
    pub owner: u64,
    /// Open file through which the request came.
    pub handle: Handle,
    /// Process that asks; 0 for a flush.
    pub pid: u32,
    /// Whether the lock is for the whole file, as flock(2) takes it.
    pub flock: bool,
    /// First and last byte.
    pub range: (u64, u64),
    /// Kind of the lock to take. `None`: releases the owner's locks in the range.
    pub kind: Option<LockKind>,
}

/// Outcome of a request that changes locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOutcome {
    /// The request was executed.
    Done,
    /// The request was not granted.
    Refused,
    /// The request was passed on to nobody.
    Unsent,
    /// The caller was killed, and any effect of the request is to be undone.
    Died,
}

impl LockOutcome {
    /// Returns the outcome that an answer states, or an event that is one.
    pub(super) fn of(answer: &[u8]) -> LockOutcome {
        if is_success(answer) { LockOutcome::Done } else { LockOutcome::Refused }
    }
}

impl LockChange {
    /// Reads the change that a request makes to the locks of a file. Returns `None` if it makes none.
    pub fn of(envelope: &Envelope, message: &[u8]) -> Option<LockChange> {
        let whole = (0, i64::MAX as u64);
        match envelope.opcode? {
            // Of all POSIX locks of who closes.
            Opcode::Flush => {
                let (flush, _) = arguments::<FlushIn>(message)?;
                Some(LockChange { owner: flush.lock_owner, handle: flush.fh, range: whole, ..LockChange::default() })
            }
            Opcode::Setlk | Opcode::Setlkw => {
                let (fixed, _) = arguments::<LkIn>(message)?;
                let (handle, lock) = (fixed.fh, lock_args(&fixed));
                let kind = match lock.kind {
                    libc::F_RDLCK => Some(LockKind::Shared),
                    libc::F_WRLCK => Some(LockKind::Exclusive),
                    _ => None,
                };
                let range = if lock.flock { whole } else { (lock.start, lock.end) };
                Some(LockChange { owner: lock.owner, handle, pid: lock.pid, flock: lock.flock, range, kind })
            }
            _ => None,
        }
    }

    /// Returns whether a lock is asked for, and not the end of one.
    pub fn takes(&self) -> bool {
        self.kind.is_some()
    }

    pub(super) fn who(&self) -> (u64, bool) {
        (self.owner, self.flock)
    }

    pub(super) fn meets(&self, other: &LockChange) -> bool {
        self.who() == other.who() && self.range.0 <= other.range.1 && other.range.0 <= self.range.1
    }

    /// Returns whether `held` belongs to the same owner and overlaps the range.
    pub(super) fn is_over(&self, held: &RangeLock) -> bool {
        held.owner == LockOwner::from(self.owner) && held.start <= self.range.1 && self.range.0 <= held.end
    }

    pub(super) fn releases_all(&self) -> bool {
        self.kind.is_none() && (self.flock || (self.range.0 == 0 && self.range.1 >= i64::MAX as u64))
    }

    /// Returns the lock that the change takes.
    pub(super) fn lock(&self, kind: LockKind) -> RangeLock {
        let (start, end) = self.range;
        RangeLock { start, end, kind, owner: self.owner.into(), pid: self.pid, handle: self.handle }
    }

    /// Makes the message that makes this change without waiting.
    pub fn message(&self, node: NodeId) -> Vec<u8> {
        let kind = match self.kind {
            Some(LockKind::Shared) => libc::F_RDLCK,
            Some(LockKind::Exclusive) => libc::F_WRLCK,
            None => libc::F_UNLCK,
        };
        let (start, end) = self.range;
        let args = LockArgs { start, end, kind, pid: self.pid, owner: self.owner, flock: self.flock };
        set_lock(node, self.handle, &args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{self, FileLock, InHeader, Plain, bytes_of};

    fn envelope(opcode: Opcode) -> Envelope {
        Envelope { opcode: Some(opcode), unique: 2, node: 7, uid: 0, gid: 0, pid: 1, first: 0 }
    }

    /// The change of a request with these arguments. No change is read from any part of it.
    fn read<T: Plain>(opcode: Opcode, body: &T) -> LockChange {
        let whole = [bytes_of(&InHeader::default()), bytes_of(body)].concat();
        assert!((0..whole.len()).all(|len| LockChange::of(&envelope(opcode), &whole[..len]).is_none()));
        LockChange::of(&envelope(opcode), &whole).unwrap()
    }

    #[test]
    fn a_flush_says_who_closes_what() {
        let flush = read(Opcode::Flush, &FlushIn { fh: 1, unused: 2, padding: 3, lock_owner: 4 });
        let all = (0, i64::MAX as u64);
        assert_eq!(flush, LockChange { owner: 4, handle: 1, range: all, ..LockChange::default() });
    }

    #[test]
    fn a_lock_is_read_with_all_its_arguments() {
        let lk = FileLock { start: 3, end: 4, kind: libc::F_WRLCK.cast_unsigned(), pid: 5 };
        let posix = LkIn { fh: 1, owner: 2, lk, lk_flags: 0, padding: 6 };
        let kind = Some(LockKind::Exclusive);
        let wanted = LockChange { owner: 2, handle: 1, pid: 5, flock: false, range: (3, 4), kind };
        assert_eq!(read(Opcode::Setlk, &posix), wanted);
        let flock = read(Opcode::Setlkw, &LkIn { lk_flags: abi::LK_FLOCK, ..posix });
        assert_eq!(flock, LockChange { flock: true, range: (0, i64::MAX as u64), ..wanted });
        let unlock = LkIn { lk: FileLock { kind: libc::F_UNLCK.cast_unsigned(), ..lk }, ..posix };
        assert_eq!(read(Opcode::Setlk, &unlock), LockChange { kind: None, ..wanted });
    }

    #[test]
    fn the_message_of_a_change_is_read_as_that_change() {
        for flock in [false, true] {
            for kind in [None, Some(LockKind::Shared), Some(LockKind::Exclusive)] {
                let range = if flock { (0, i64::MAX as u64) } else { (3, 9) };
                let change = LockChange { owner: 4, handle: 5, pid: 6, flock, range, kind };
                let message = change.message(7);
                let envelope = Envelope::of(&message).unwrap();
                assert_eq!(envelope.node, 7);
                assert_eq!(LockChange::of(&envelope, &message), Some(change));
                assert_eq!(change.takes(), kind.is_some());
                assert_eq!(LockChange::of(&Envelope { opcode: Some(Opcode::Getlk), ..envelope }, &message), None);
            }
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let mut random = testkit::Random(11);
        let mut changes = 0;
        for opcode in [Opcode::Flush, Opcode::Setlk, Opcode::Setlkw, Opcode::Write] {
            for _ in 0..300 {
                let len = random.below(200) as usize;
                let bytes = random.bytes(len);
                changes += usize::from(LockChange::of(&envelope(opcode), &bytes).is_some());
            }
        }
        assert!(changes > 100, "{changes}");
    }
}
