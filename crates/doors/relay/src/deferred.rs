//! Deferred requests: notices to the server that no caller waits for, repeated until the server has them. They are
//! interrupts, lookups given back, releases, withdrawn requests, and locks to be waited for or undone.

use std::collections::BTreeMap;

use concurrency::{Condvar, Instant, Mutex};
use peer::{NextNotice, Notices};

use crate::limits::{ERRAND_POLL, FORGETS_PER_MESSAGE};

/// Notice to the server that no caller waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeferredRequest {
    /// The caller of the kernel's request with this number got a signal.
    Interrupt(u64),
    /// The relay's request with this number was given up.
    Withdraw(u64),
    /// The kernel's lock request with this number is to be undone by the message, which unlocks all that it has
    /// locked or may lock yet.
    Unlock(u64, Vec<u8>),
    /// The kernel's lock request with this number waited at a server that has forgotten it.
    Await(u64),
    /// A release that the server did not receive in time.
    Release(Vec<u8>),
    /// Lookups given back: node numbers and counts.
    Forget(Vec<(u64, u64)>),
}

#[derive(Default)]
struct Todo {
    /// All but lookups. Interrupts and waits have a time before which they are not due.
    notices: Notices<DeferredRequest>,
    forgets: BTreeMap<u64, u64>,
    ended: bool,
}

/// Queue of all deferred requests.
#[derive(Default)]
pub(crate) struct DeferredRequests {
    todo: Mutex<Todo>,
    more: Condvar,
}

impl Todo {
    fn next(&mut self) -> NextNotice<DeferredRequest> {
        let next = self.notices.next(Instant::now());
        if matches!(next, NextNotice::Send(_)) || self.forgets.is_empty() {
            return next;
        }
        let some = std::iter::from_fn(|| self.forgets.pop_first());
        NextNotice::Send(DeferredRequest::Forget(some.take(FORGETS_PER_MESSAGE).collect()))
    }
}

impl DeferredRequests {
    pub fn add(&self, deferred_request: DeferredRequest) {
        self.add_at(deferred_request, Instant::now());
    }

    /// Adds a deferred request. An interrupt or a wait is not run before `due`.
    pub fn add_at(&self, deferred_request: DeferredRequest, due: Instant) {
        let mut todo = self.todo.lock();
        match deferred_request {
            DeferredRequest::Interrupt(_) | DeferredRequest::Await(_) => todo.notices.add_at(deferred_request, due),
            DeferredRequest::Forget(ones) => {
                for (node, count) in ones {
                    let known = todo.forgets.entry(node).or_default();
                    *known = known.saturating_add(count);
                }
            }
            other => todo.notices.add(other),
        }
        drop(todo);
        self.more.notify_one();
    }

    /// Puts back a deferred request that could not be run. It is tried again before others of its kind, or after a
    /// pause if it is timed.
    pub fn put_back(&self, deferred_request: DeferredRequest) {
        match deferred_request {
            other @ (DeferredRequest::Withdraw(_) | DeferredRequest::Unlock(..) | DeferredRequest::Release(_)) => {
                self.todo.lock().notices.put_back(other)
            }
            other => self.add_at(other, Instant::now() + ERRAND_POLL),
        }
    }

    /// Waits for the next deferred request. Returns `Ok(None)` if there is none yet and the caller should ask again.
    /// Errors: the queue has ended.
    pub fn next(&self) -> Result<Option<DeferredRequest>, ()> {
        let mut todo = self.todo.lock();
        if todo.ended {
            return Err(());
        }
        match todo.next() {
            NextNotice::Send(deferred_request) => return Ok(Some(deferred_request)),
            NextNotice::NotBefore(due) => _ = self.more.wait_until(&mut todo, due),
            // Without a timed request the thread sleeps until something is added.
            NextNotice::Nothing => self.more.wait(&mut todo),
        }
        Ok(None)
    }

    /// Drops the requests that mean nothing to the next server, after the last one has forgotten this node. Unlocks
    /// and releases stay: their objects may have been claimed already, and otherwise they have no effect. Interrupts
    /// stay too, since waits are repeated at the next server. Returns the numbers of the requests that were to be
    /// withdrawn.
    pub fn clear(&self) -> Vec<u64> {
        let mut todo = self.todo.lock();
        todo.forgets.clear();
        let dropped = todo.notices.forgotten(|deferred_request| {
            use DeferredRequest::{Interrupt, Release, Unlock};
            matches!(deferred_request, Interrupt(_) | Unlock(..) | Release(_))
        });
        let number = |deferred_request| match deferred_request {
            DeferredRequest::Withdraw(number) => Some(number),
            _ => None,
        };
        dropped.into_iter().filter_map(number).collect()
    }

    /// Ends the queue: [`DeferredRequests::next`] fails from now on.
    pub fn end(&self) {
        self.todo.lock().ended = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_come_first_and_lookups_are_given_back_together() {
        let deferred = DeferredRequests::default();
        deferred.add(DeferredRequest::Forget(vec![(7, 1)]));
        deferred.add(DeferredRequest::Release(vec![1]));
        deferred.add(DeferredRequest::Withdraw(3));
        deferred.add(DeferredRequest::Forget(vec![(7, 2)]));
        deferred.add(DeferredRequest::Interrupt(2));
        let next = || deferred.next().unwrap().unwrap();
        assert_eq!(next(), DeferredRequest::Interrupt(2));
        let release = next();
        assert_eq!(release, DeferredRequest::Release(vec![1]));
        deferred.put_back(release);
        assert_eq!((next(), next()), (DeferredRequest::Release(vec![1]), DeferredRequest::Withdraw(3)));
        assert_eq!(next(), DeferredRequest::Forget(vec![(7, 3)]));
    }

    #[test] // S49
    fn what_is_to_be_undone_or_ended_is_told_the_next_server_and_nothing_else_is() {
        let deferred = DeferredRequests::default();
        let all = [
            DeferredRequest::Await(4),
            DeferredRequest::Interrupt(6),
            DeferredRequest::Unlock(4, vec![]),
            DeferredRequest::Withdraw(9),
            DeferredRequest::Release(vec![2]),
            DeferredRequest::Forget(vec![(7, 1)]),
        ];
        all.into_iter().for_each(|deferred_request| deferred.add(deferred_request));
        assert_eq!(deferred.clear(), [9]);
        let told: Vec<_> = std::iter::from_fn(|| match deferred.todo.lock().next() {
            NextNotice::Send(deferred_request) => Some(deferred_request),
            _ => None,
        })
        .collect();
        assert_eq!(
            told,
            [DeferredRequest::Interrupt(6), DeferredRequest::Unlock(4, vec![]), DeferredRequest::Release(vec![2])]
        );
        deferred.end();
        assert!(deferred.next().is_err());
    }
}
