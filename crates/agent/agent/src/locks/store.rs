//! Locks that the agent holds in the global store for its programs, so that they exclude the programs of other nodes.
//!
//! A request is first granted by the [`LockTable`](super::LockTable), which serves this node's programs in order and
//! detects their deadlocks. Then it is requested from the store.
//!
//! L1. An owner has one open file description of the store's file for ranges, and one for flocks. So the store tells
//! the owners of one node apart. It is kept until the open file through which it was last used is closed.
//! L2. `Held` is what the store has granted. A refusal leaves it unchanged. Exception: the store first releases a flock
//! of the other kind.
//! L3. No call to the store is made while the table of owners is locked. A store that hangs delays only the owner that
//! asks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use concurrency::{Condvar, Instant, Mutex};
use global_store::posix::{FileLocks, LockedRange, PosixStore};
use rustix::io::Errno;
use types::{Identity, LockKind, LockOwner, RangeLock, RangeLocks};

use super::{LockRequest, OnGranted, client_of, owner};
use crate::limits;
use crate::node::Node;

/// Client number of owners on other nodes.
const ELSEWHERE: u64 = u64::MAX;

/// Locks of one owner on one file.
#[derive(Default)]
struct Held {
    locks: Option<FileLocks>,
    ranges: RangeLocks,
    flock: Option<LockKind>,
    /// The open file of the last request.
    handle: u64,
    /// Whether that open file is closed: nothing is kept after the last lock.
    closed: bool,
    /// Whether this was removed from the table.
    removed: bool,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.flock.is_none()
    }
}

/// Holders by owner and kind: ranges and flocks are kept apart, as in the store.
type Owners = HashMap<(LockOwner, bool), Arc<Mutex<Held>>>;

struct Waiter {
    node: Arc<Node>,
    request: LockRequest,
    cancelled: Arc<AtomicBool>,
    done: OnGranted,
    next: Instant,
    pause: Duration,
}

#[derive(Default)]
struct Waiters {
    all: Vec<Waiter>,
    /// Whether a thread retries for the waiters.
    served: bool,
}

#[derive(Default)]
struct Holders {
    files: HashMap<Identity, Owners>,
    /// Clients that are gone. Their numbers are never used again.
    gone: HashSet<u64>,
}

/// The locks of all files that the agent holds in the global store.
pub(crate) struct StoreLocks {
    store: PosixStore,
    files: Mutex<Holders>,
    waiters: Mutex<Waiters>,
    comes: Condvar,
}

impl StoreLocks {
    pub fn new(store: PosixStore) -> Arc<StoreLocks> {
        let (files, waiters, comes) = (Mutex::default(), Mutex::default(), Condvar::new());
        Arc::new(StoreLocks { store, files, waiters, comes })
    }

    /// Takes a lock now. Errors: `EAGAIN` if a program of another node holds a conflicting lock; those of the store.
    pub fn try_take(&self, node: &Node, request: &LockRequest) -> Result<(), Errno> {
        let (range, exclusive) = (&request.range, request.range.kind == LockKind::Exclusive);
        self.with(node, request, |held| {
            let Some(locks) = &held.locks else { return Err(Errno::NOLCK) };
            if request.flock {
                let taken = locks.try_whole(exclusive);
                held.flock = taken.is_ok().then_some(range.kind);
                return taken;
            }
            locks.try_range(LockedRange { start: range.start, end: range.end, exclusive })?;
            held.ranges.take(*range);
            Ok(())
        })
    }

    /// Takes a lock when no other node holds a conflicting one, or fails with `EINTR` if `cancelled`. `done` is called
    /// once, perhaps by another thread.
    pub fn take(
        self: &Arc<StoreLocks>,
        node: Arc<Node>,
        request: LockRequest,
        cancelled: Arc<AtomicBool>,
        done: OnGranted,
    ) {
        match self.try_take(&node, &request) {
            Err(Errno::AGAIN) => {}
            known => return done(known),
        }
        let pause = limits::STORE_LOCK_RETRY;
        let waiter = Waiter { node, request, cancelled, done, next: Instant::now() + pause, pause };
        let mut waiters = self.waiters.lock();
        waiters.all.push(waiter);
        if waiters.served {
            self.comes.notify_one();
            return;
        }
        let this = Arc::clone(self);
        let serve = move || this.serve_waiters();
        match concurrency::spawn("store-locks", serve) {
            Ok(_) => waiters.served = true,
            Err(_) => {
                let waiter = waiters.all.pop();
                drop(waiters);
                waiter.into_iter().for_each(|waiter| (waiter.done)(Err(Errno::NOLCK)));
            }
        }
    }

    /// Ends the waits that were cancelled, even if the store hangs. A wait being retried at this moment ends when the
    /// store answers.
    pub fn end_cancelled(&self) {
        let is_over = |waiter: &mut Waiter| waiter.cancelled.load(Ordering::SeqCst);
        let over: Vec<Waiter> = self.waiters.lock().all.extract_if(.., is_over).collect();
        over.into_iter().for_each(|waiter| (waiter.done)(Err(Errno::INTR)));
    }

    /// Retries for all waiters. Returns when none is left.
    fn serve_waiters(&self) {
        loop {
            let mut waiters = self.waiters.lock();
            let Some(first) = waiters.all.iter().map(|waiter| waiter.next).min() else {
                waiters.served = false;
                return;
            };
            if first > Instant::now() {
                self.comes.wait_until(&mut waiters, first);
                continue;
            }
            let now = Instant::now();
            let due: Vec<Waiter> = waiters.all.extract_if(.., |waiter| waiter.next <= now).collect();
            drop(waiters);
            for waiter in due {
                self.serve_waiter(waiter);
            }
        }
    }

    fn serve_waiter(&self, mut waiter: Waiter) {
        if waiter.cancelled.load(Ordering::SeqCst) {
            return (waiter.done)(Err(Errno::INTR));
        }
        match self.try_take(&waiter.node, &waiter.request) {
            Err(Errno::AGAIN) => {
                waiter.pause = (2 * waiter.pause).min(limits::STORE_LOCK_RETRY_MAX);
                waiter.next = Instant::now() + waiter.pause;
                self.waiters.lock().all.push(waiter);
            }
            known => (waiter.done)(known),
        }
    }

    /// Returns a range of another node's program that conflicts with `wanted`, if there is one.
    pub fn conflict(&self, node: &Node, wanted: &RangeLock) -> Result<Option<RangeLock>, Errno> {
        let range = LockedRange { start: wanted.start, end: wanted.end, exclusive: wanted.kind == LockKind::Exclusive };
        let known =
            self.files.lock().files.get(node.identity()).and_then(|owners| owners.get(&(wanted.owner, false)).cloned());
        let found = match known.as_ref().map(|held| held.lock()).as_ref().and_then(|held| held.locks.as_ref()) {
            Some(locks) => locks.conflict(range)?,
            None => self.open(node)?.conflict(range)?,
        };
        Ok(found.map(|found| RangeLock {
            start: found.start,
            end: found.end,
            kind: if found.exclusive { LockKind::Exclusive } else { LockKind::Shared },
            owner: owner(ELSEWHERE, 0),
            pid: 0,
            handle: 0,
        }))
    }

    /// Ranges that the store has granted an owner.
    pub fn ranges(&self, file: &Identity, owner: LockOwner) -> RangeLocks {
        self.get(file, (owner, false)).map(|held| held.lock().ranges.clone()).unwrap_or_default()
    }

    /// Releases a range of an owner.
    pub fn release(&self, file: &Identity, owner: LockOwner, start: u64, end: u64) {
        let Some(held) = self.get(file, (owner, false)) else { return };
        let mut held = held.lock();
        if held.ranges.release(owner, start, end) {
            held.give_back(file, |locks| locks.release_range(start, end));
        }
        self.forget_if_unused(file, (owner, false), &mut held);
    }

    /// Releases all ranges of an owner whose process has closed a descriptor of the file, and its open file
    /// description.
    pub fn close(&self, file: &Identity, owner: LockOwner) {
        let Some(held) = self.get(file, (owner, false)) else { return };
        let mut held = held.lock();
        if !held.ranges.is_empty() {
            held.give_back(file, |locks| locks.release_range(0, u64::MAX));
        }
        // The locks of an open file description end with its last descriptor.
        held.ranges.release(owner, 0, u64::MAX);
        held.closed = true;
        self.forget_if_unused(file, (owner, false), &mut held);
    }

    /// Releases an owner's flock.
    pub fn release_flock(&self, file: &Identity, owner: LockOwner) {
        let Some(held) = self.get(file, (owner, true)) else { return };
        let mut held = held.lock();
        if held.flock.take().is_some() {
            held.give_back(file, FileLocks::release_whole);
        }
        self.forget_if_unused(file, (owner, true), &mut held);
    }

    /// Releases the ranges taken through an open file that was closed. Closes the open file descriptions last used for
    /// it.
    pub fn release_handle(&self, file: &Identity, handle: u64) {
        let owners: Vec<_> = match self.files.lock().files.get(file) {
            Some(owners) => owners.iter().map(|(key, held)| (*key, Arc::clone(held))).collect(),
            None => return,
        };
        for (key, held) in owners {
            let mut held = held.lock();
            let through: Vec<RangeLock> = held.ranges.iter().filter(|range| range.handle == handle).copied().collect();
            for range in through {
                held.ranges.release(range.owner, range.start, range.end);
                held.give_back(file, |locks| locks.release_range(range.start, range.end));
            }
            held.closed |= held.handle == handle;
            self.forget_if_unused(file, key, &mut held);
        }
    }

    /// Releases all locks of a client that is gone.
    pub fn release_client(&self, client: u64) {
        let mut gone = Vec::new();
        {
            let mut all = self.files.lock();
            all.gone.insert(client);
            all.files.retain(|_, owners| {
                gone.extend(owners.extract_if(|(owner, _), _| client_of(*owner) == client).map(|(_, held)| held));
                !owners.is_empty()
            });
        }
        // This closes the open file descriptions, which ends their locks.
        gone.iter().for_each(|held| *held.lock() = Held { removed: true, ..Held::default() });
    }

    fn open(&self, node: &Node) -> Result<FileLocks, Errno> {
        let fd = node.inode().descriptor().ok_or(Errno::NOLCK)?;
        let opened = self.store.open_for_locks(fd);
        opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOLCK))
    }

    fn get(&self, file: &Identity, key: (LockOwner, bool)) -> Option<Arc<Mutex<Held>>> {
        self.files.lock().files.get(file)?.get(&key).cloned()
    }

    /// Calls `run` with the locks of a request's owner, and with its open file description opened.
    fn with<T>(
        &self,
        node: &Node,
        request: &LockRequest,
        run: impl FnOnce(&mut Held) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (file, key) = (node.identity(), (request.range.owner, request.flock));
        loop {
            let held = {
                let mut all = self.files.lock();
                if all.gone.contains(&client_of(key.0)) {
                    return Err(Errno::NOLCK);
                }
                Arc::clone(all.files.entry(file.clone()).or_default().entry(key).or_default())
            };
            let mut held = held.lock();
            if held.removed {
                continue;
            }
            (held.handle, held.closed) = (request.range.handle, false);
            if held.locks.is_none() {
                match self.open(node) {
                    Ok(opened) => held.locks = Some(opened),
                    Err(errno) => {
                        held.closed = true;
                        self.forget_if_unused(file, key, &mut held);
                        return Err(errno);
                    }
                }
            }
            return run(&mut held);
        }
    }

    fn forget_if_unused(&self, file: &Identity, key: (LockOwner, bool), held: &mut Held) {
        if !held.closed || !held.is_empty() || held.removed {
            return;
        }
        held.removed = true;
        let mut all = self.files.lock();
        let Some(owners) = all.files.get_mut(file) else { return };
        owners.remove(&key);
        if owners.is_empty() {
            all.files.remove(file);
        }
    }
}

impl Held {
    fn give_back(&self, file: &Identity, release: impl FnOnce(&FileLocks) -> Result<(), Errno>) {
        if let Some(Err(error)) = self.locks.as_ref().map(release) {
            tracing::warn!(
                %error,
                %file,
                "could not release a lock in the global store; it ends when the program closes the file"
            );
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
