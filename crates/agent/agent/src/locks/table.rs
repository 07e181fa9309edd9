//! All locks of a node and the requests that wait for them.
//!
//! Waiting blocks no thread. A request that must wait leaves an [`OnGranted`], which is called exactly once: granted,
//! refused as a deadlock, or cancelled. It is never called with the table's mutex held. Waiters of one file are served
//! in the order of arrival. As on Linux, a newcomer that conflicts with no holder does not queue behind them.
//!
//! The kernel reports the close of a descriptor before `close` returns. That it was the last one of its open file is
//! reported only afterwards. So a holder whose descriptor was just closed may be gone already. A request that conflicts
//! only with such holders is answered when this is known, or [`limits::LOCK_CLOSE_WAIT`] after the close.

use std::collections::{HashMap, HashSet, VecDeque};

use concurrency::{Condvar, Instant, Mutex, MutexGuard};
use rustix::io::Errno;
use types::{Identity, LockKind, LockOwner, RangeLock, RangeLocks};

use super::{WholeLocks, client_of};
use crate::limits;

/// Callback for the outcome of a lock that had to wait: granted, `EINTR` when cancelled, or `EDEADLK`. Called once.
pub type OnGranted = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// Name of a waiting request, valid until its grant is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockTicket(u64);

/// A wanted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// Range, kind and owner. A flock ignores the range.
    pub range: RangeLock,
    /// Whether this is a whole-file flock, which is independent of ranges.
    pub flock: bool,
}

impl LockRequest {
    fn owner(&self) -> LockOwner {
        self.range.owner
    }
}

struct Waiter {
    ticket: LockTicket,
    request: LockRequest,
    grant: OnGranted,
}

#[derive(Default)]
struct FileLocks {
    ranges: RangeLocks,
    whole: WholeLocks,
    waiting: VecDeque<Waiter>,
    /// Open files that hold locks and of which a descriptor was closed, and until when their release may still come.
    closing: Vec<(u64, Instant)>,
}

impl FileLocks {
    /// Releases all ranges of an owner. Notes that the release of the open file `handle` may follow. Returns whether a
    /// range was released.
    fn descriptor_closed(&mut self, owner: LockOwner, handle: u64) -> bool {
        let released = self.ranges.release(owner, 0, u64::MAX);
        self.closing.retain(|&(closing, _)| closing != handle);
        if self.ranges.is_held_through(handle) || self.whole.is_held_through(handle) {
            self.closing.push((handle, Instant::now() + limits::LOCK_CLOSE_WAIT));
        }
        released
    }

    /// Returns until when all conflicting holders may turn out to be gone. `None`: there is no conflict, or a holder
    /// stays.
    fn may_be_gone(&self, request: &LockRequest) -> Option<Instant> {
        let now = Instant::now();
        let until = |handle| self.closing.iter().find(|&&(closing, until)| closing == handle && until > now);
        let earliest = |holders: &mut dyn Iterator<Item = u64>| -> Option<Instant> {
            holders.map(|handle| until(handle).map(|(_, until)| *until)).collect::<Option<Vec<_>>>()?.into_iter().min()
        };
        if request.flock {
            earliest(&mut self.whole.in_the_way(request.owner(), request.range.kind))
        } else {
            earliest(&mut self.ranges.conflicts(request.range).map(|held| held.handle))
        }
    }

    fn blocked(&self, request: &LockRequest) -> bool {
        if request.flock {
            self.whole.conflicts(request.owner(), request.range.kind)
        } else {
            self.ranges.conflict(&request.range).is_some()
        }
    }

    fn take(&mut self, request: &LockRequest) {
        if request.flock {
            self.whole.take(request.owner(), request.range.kind, request.range.handle);
        } else {
            self.ranges.take(request.range);
        }
    }

    /// Grants what can be granted now, in order.
    fn serve(&mut self, granted: &mut Vec<OnGranted>) {
        let mut at = 0;
        while at < self.waiting.len() {
            if self.blocked(&self.waiting[at].request) {
                at += 1;
                continue;
            }
            if let Some(waiter) = self.waiting.remove(at) {
                self.take(&waiter.request);
                granted.push(waiter.grant);
                // A conversion can also make room for earlier waiters.
                at = 0;
            }
        }
    }

    /// Removes and returns the waiters for which `goes` is true.
    fn give_up(&mut self, goes: impl Fn(&LockRequest) -> bool) -> VecDeque<Waiter> {
        let (gone, stay) = self.waiting.drain(..).partition(|waiter| goes(&waiter.request));
        self.waiting = stay;
        gone
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.whole.is_empty() && self.waiting.is_empty()
    }

    fn count(&self) -> usize {
        self.ranges.len() + self.whole.len() + self.waiting.len()
    }
}

#[derive(Default)]
struct Tables {
    files: HashMap<Identity, FileLocks>,
    next_ticket: u64,
}

/// The locks of all files of a node, under one mutex. An operation touches one file; deadlock detection touches all
/// waiters.
#[derive(Default)]
pub struct LockTable {
    tables: Mutex<Tables>,
    changed: Condvar,
}

impl LockTable {
    /// Returns a held range that conflicts with `wanted`, if there is one.
    pub fn test(&self, file: &Identity, wanted: &RangeLock) -> Option<RangeLock> {
        let tables = self.wait_for_closes(file, &LockRequest { range: *wanted, flock: false });
        tables.files.get(file)?.ranges.conflict(wanted).copied()
    }

    /// Locks the table. Waits first, at most [`limits::LOCK_CLOSE_WAIT`], while all conflicting locks belong to open
    /// files that may have ended.
    fn wait_for_closes(&self, file: &Identity, request: &LockRequest) -> MutexGuard<'_, Tables> {
        let mut tables = self.tables.lock();
        while let Some(until) = tables.files.get(file).and_then(|locks| locks.may_be_gone(request)) {
            self.changed.wait_until(&mut tables, until);
        }
        tables
    }

    /// Takes the lock, or fails: `EAGAIN` if another owner holds it, `ENOLCK` if the file has too many.
    pub fn try_lock(&self, file: &Identity, request: LockRequest) -> Result<(), Errno> {
        let tables = self.wait_for_closes(file, &request);
        self.change_locked(tables, |tables, granted| {
            let locks = tables.files.entry(file.clone()).or_default();
            let outcome = attempt(locks, &request, granted);
            if locks.is_empty() {
                tables.files.remove(file);
            }
            outcome
        })
    }

    /// Takes the lock now or when it becomes free. If the outcome is known at once, `grant` is called before this
    /// returns, and the ticket is `None`.
    pub fn lock(&self, file: &Identity, request: LockRequest, grant: OnGranted) -> Option<LockTicket> {
        let parked = self.change(|tables, granted| {
            let outcome = attempt(tables.files.entry(file.clone()).or_default(), &request, granted);
            if outcome != Err(Errno::AGAIN) {
                return Err((outcome, grant));
            }
            if !request.flock && would_deadlock(&tables.files, file, &request) {
                return Err((Err(Errno::DEADLK), grant));
            }
            let ticket = LockTicket(tables.next_ticket);
            tables.next_ticket += 1;
            tables.files.entry(file.clone()).or_default().waiting.push_back(Waiter { ticket, request, grant });
            Ok(ticket)
        });
        match parked {
            Ok(ticket) => Some(ticket),
            Err((outcome, grant)) => {
                grant(outcome);
                None
            }
        }
    }

    /// Cancels a wait: the grant is called with `EINTR`, unless it has been called already.
    pub fn cancel(&self, file: &Identity, ticket: LockTicket) {
        let waiter = {
            let mut tables = self.tables.lock();
            let Some(locks) = tables.files.get_mut(file) else { return };
            let Some(at) = locks.waiting.iter().position(|waiter| waiter.ticket == ticket) else { return };
            let waiter = locks.waiting.remove(at);
            if locks.is_empty() {
                tables.files.remove(file);
            }
            waiter
        };
        if let Some(waiter) = waiter {
            (waiter.grant)(Err(Errno::INTR));
        }
    }

    /// Releases a range of an owner.
    pub fn unlock(&self, file: &Identity, owner: LockOwner, start: u64, end: u64) {
        self.release(file, |locks| locks.ranges.release(owner, start, end));
    }

    /// Releases an owner's ranges on a file: the process that `owner` stands for has closed a descriptor. Locks of the
    /// open file end with its last descriptor ([`LockTable::release_handle`]).
    pub fn close_descriptor(&self, file: &Identity, owner: LockOwner, handle: u64) {
        self.release(file, |locks| locks.descriptor_closed(owner, handle));
    }

    /// Releases an owner's flock.
    pub fn unlock_flock(&self, file: &Identity, owner: LockOwner) {
        self.release(file, |locks| locks.whole.release(owner));
    }

    /// Releases the ranges taken through an open file whose last descriptor is closed. Waits through it end with
    /// `EINTR`; their callers are gone and have been answered.
    pub fn release_handle(&self, file: &Identity, handle: u64) {
        let given_up = self.change(|tables, granted| {
            let Some(locks) = tables.files.get_mut(file) else { return VecDeque::new() };
            let given_up = locks.give_up(|waiter| waiter.range.handle == handle);
            if locks.ranges.release_handle(handle) {
                locks.serve(granted);
            }
            if locks.is_empty() {
                tables.files.remove(file);
            }
            given_up
        });
        given_up.into_iter().for_each(|waiter| (waiter.grant)(Err(Errno::INTR)));
    }

    /// Releases the locks of a client that is gone. Its waits end with `EINTR`.
    pub fn release_client(&self, client: u64) {
        let theirs = |owner: LockOwner| client_of(owner) == client;
        let given_up = self.change(|tables, granted| {
            let mut given_up = Vec::new();
            for locks in tables.files.values_mut() {
                given_up.extend(locks.give_up(|waiter| theirs(waiter.owner())));
                let whole = locks.whole.release_all(theirs);
                if locks.ranges.release_all(theirs) || whole {
                    locks.serve(granted);
                }
            }
            tables.files.retain(|_, locks| !locks.is_empty());
            given_up
        });
        given_up.into_iter().for_each(|waiter| (waiter.grant)(Err(Errno::INTR)));
    }

    /// Replaces an owner's ranges by `held`, after a request was granted here and refused elsewhere. Locks granted to
    /// others meanwhile stay.
    pub fn restore(&self, file: &Identity, owner: LockOwner, held: &RangeLocks) {
        self.change(|tables, granted| {
            let locks = tables.files.entry(file.clone()).or_default();
            locks.ranges.release(owner, 0, u64::MAX);
            held.iter().filter(|range| range.owner == owner).for_each(|range| {
                if locks.ranges.conflict(range).is_none() {
                    locks.ranges.take(*range);
                }
            });
            locks.serve(granted);
            if locks.is_empty() {
                tables.files.remove(file);
            }
        });
    }

    /// Whether there are no locks and no waiters.
    pub fn is_empty(&self) -> bool {
        self.tables.lock().files.is_empty()
    }

    fn release(&self, file: &Identity, release: impl FnOnce(&mut FileLocks) -> bool) {
        self.change(|tables, granted| {
            let Some(locks) = tables.files.get_mut(file) else { return };
            if release(locks) {
                locks.serve(granted);
            }
            if locks.is_empty() {
                tables.files.remove(file);
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Tables, &mut Vec<OnGranted>) -> T) -> T {
        self.change_locked(self.tables.lock(), change)
    }

    fn change_locked<T>(
        &self,
        mut tables: MutexGuard<'_, Tables>,
        change: impl FnOnce(&mut Tables, &mut Vec<OnGranted>) -> T,
    ) -> T {
        let mut granted = Vec::new();
        let outcome = change(&mut tables, &mut granted);
        drop(tables);
        self.changed.notify_all();
        granted.into_iter().for_each(|grant| grant(Ok(())));
        outcome
    }
}

/// Takes the lock if there is no conflict. A flock that is converted is released first, as flock(2) says.
fn attempt(locks: &mut FileLocks, request: &LockRequest, granted: &mut Vec<OnGranted>) -> Result<(), Errno> {
    if request.flock && locks.whole.held_by(request.owner()).is_some_and(|held| held != request.range.kind) {
        locks.whole.release(request.owner());
        if locks.blocked(request) {
            locks.serve(granted);
        }
    }
    if locks.blocked(request) {
        return Err(Errno::AGAIN);
    }
    if locks.count() >= limits::LOCKS_PER_FILE_MAX {
        return Err(Errno::NOLCK);
    }
    locks.take(request);
    // Replacing an exclusive range by a shared one lets others in.
    locks.serve(granted);
    Ok(())
}

/// Whether an owner that `request` would wait for is waiting, directly or through others, for the owner of `request`.
fn would_deadlock(files: &HashMap<Identity, FileLocks>, file: &Identity, request: &LockRequest) -> bool {
    let blockers = |locks: &FileLocks, wanted: RangeLock| -> Vec<LockOwner> {
        locks.ranges.conflicts(wanted).map(|held| held.owner).collect()
    };
    let Some(locks) = files.get(file) else { return false };
    let mut seen = HashSet::new();
    let mut next = blockers(locks, request.range);
    while let Some(owner) = next.pop() {
        if owner == request.owner() {
            return true;
        }
        if !seen.insert(owner) {
            continue;
        }
        for locks in files.values() {
            let waiting =
                locks.waiting.iter().filter(|waiter| !waiter.request.flock && waiter.request.owner() == owner);
            waiting.for_each(|waiter| next.extend(blockers(locks, waiter.request.range)));
        }
    }
    false
}

/// Constructors.
impl LockRequest {
    /// Builds a request for a range, of an owner through an open file.
    pub fn range(start: u64, end: u64, kind: LockKind, owner: LockOwner, pid: u32, handle: u64) -> LockRequest {
        LockRequest { range: RangeLock { start, end, kind, owner, pid, handle }, flock: false }
    }

    /// Builds a request for a whole-file lock.
    pub fn flock(kind: LockKind, owner: LockOwner, pid: u32, handle: u64) -> LockRequest {
        LockRequest { range: RangeLock { start: 0, end: u64::MAX, kind, owner, pid, handle }, flock: true }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
