//! Duplicate-request cache of one session. A request that is sent again is not executed again. A late copy of a
//! request that the client is done with changes nothing.
//!
//! 1. A request that the client is *done with* is stale and is not executed. These are the requests below the
//!    session's *oldest*, and those named by [`DuplicateRequestCache::done_with`].
//! 2. A request begins only after two kinds of running requests have ended: copies of itself, and those that share a
//!    target with it and that the client was done with when it was sent.
//! 3. An answer that is to be remembered is given again until the session's oldest passes its request.

use std::collections::{BTreeMap, BTreeSet};

use concurrency::{Condvar, Instant, Mutex};
use wire::Message;

use crate::limits::{ANSWERS_MAX, FRAME};

/// Numbers of the things that a request changes: a file, and for an open and a close the handle too. One that has but one thing to say says
/// it twice.
pub type Targets = [u64; 2];

#[derive(Default)]
struct Inner {
    oldest: u64,
    /// The client is done with all requests below this number, except those in `open`.
    below: u64,
    open: BTreeSet<u64>,
    running: Vec<(u64, Targets)>,
    answers: BTreeMap<u64, Message>,
    /// Highest request whose answer was dropped for want of room.
    dropped: u64,
    closed: bool,
}

/// Duplicate-request cache of one session.
#[derive(Default)]
pub(crate) struct DuplicateRequestCache {
    inner: Mutex<Inner>,
    ended: Condvar,
}

/// Decision about a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is executed now. The caller then calls [`DuplicateRequestCache::leave`].
    Execute,
    /// The request was executed before, with this answer.
    Answer(Message),
    /// The client waits for this request no longer.
    Stale,
    /// The request has waited for a running one as long as a connection may. A client that still wants the answer
    /// sends the request again.
    Late,
    /// The request cannot be executed; this is the error number.
    Fail(i32),
}

impl Inner {
    fn is_done_with(&self, request: u64) -> bool {
        request < self.oldest || (request < self.below && !self.open.contains(&request))
    }

    /// Drops the answers to requests that the client is done with.
    fn drop_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        answers.retain(|request, _| !self.is_done_with(*request));
        self.answers = answers;
    }

    fn remember(&mut self, request: u64, answer: &Message) {
        self.answers.insert(request, answer.clone());
        if self.answers.len() > ANSWERS_MAX {
            self.drop_answers();
        }
        if self.answers.len() > ANSWERS_MAX
            && let Some(oldest) = self.answers.keys().copied().find(|other| *other != request)
        {
            self.answers.remove(&oldest);
            self.dropped = self.dropped.max(oldest);
        }
    }
}

impl DuplicateRequestCache {
    /// Notes that the client is done with all requests below `below`, except those in `open`. A request that enters
    /// afterwards waits for those of them that still run and share a target with it.
    pub(crate) fn done_with(&self, below: u64, open: BTreeSet<u64>) {
        let mut inner = self.inner.lock();
        if below > inner.below {
            (inner.below, inner.open) = (below, open);
        } else if below == inner.below {
            inner.open.retain(|one| open.contains(one));
        }
        inner.drop_answers();
        drop(inner);
        self.ended.notify_all();
    }

    pub(crate) fn enter(&self, request: u64, oldest: u64, targets: Targets) -> Verdict {
        self.enter_until(request, oldest, targets, Instant::now() + FRAME)
    }

    fn enter_until(&self, request: u64, oldest: u64, targets: Targets, until: Instant) -> Verdict {
        let mut inner = self.inner.lock();
        loop {
            if oldest > inner.oldest {
                inner.oldest = oldest;
                let kept = inner.answers.split_off(&oldest);
                inner.answers = kept;
            }
            if inner.closed || inner.is_done_with(request) {
                return Verdict::Stale;
            }
            if let Some(answer) = inner.answers.get(&request) {
                return Verdict::Answer(answer.clone());
            }
            // The answer of a running request is still to come, so it is not lost.
            if request <= inner.dropped && !inner.running.iter().any(|(number, _)| *number == request) {
                return Verdict::Fail(libc::EIO);
            }
            let shares = |of: &Targets| of.iter().any(|one| targets.contains(one));
            let done_with = |number: u64| number < oldest || inner.is_done_with(number);
            let blocks = |(number, of): &(u64, Targets)| *number == request || (done_with(*number) && shares(of));
            if !inner.running.iter().any(blocks) {
                inner.running.push((request, targets));
                return Verdict::Execute;
            }
            if self.ended.wait_until(&mut inner, until).timed_out() {
                return Verdict::Late;
            }
        }
    }

    /// Ends a running request. `answer`: the answer to remember, if any.
    pub(crate) fn leave(&self, request: u64, answer: Option<&Message>) {
        let mut inner = self.inner.lock();
        inner.running.retain(|(number, _)| *number != request);
        if let Some(answer) = answer.filter(|_| !inner.is_done_with(request)) {
            inner.remember(request, answer);
        }
        drop(inner);
        self.ended.notify_all();
    }

    /// Lets no request of this session begin any more, and waits for those that run.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        while !inner.running.is_empty() {
            self.ended.wait(&mut inner);
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod stories;
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const FILE: Targets = [7, 7];

    #[test]
    fn what_was_answered_is_answered_again_and_not_done_again() {
        let duplicate_requests = DuplicateRequestCache::default();
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Execute);
        duplicate_requests.leave(1, Some(&Message::Written { offset: 5 }));
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Answer(Message::Written { offset: 5 }));
        assert_eq!(duplicate_requests.enter(2, 2, FILE), Verdict::Execute);
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Stale, "the client was done with it");
    }

    #[test]
    fn a_request_waits_for_a_lost_one_that_still_runs_on_its_file_and_for_no_other() {
        let duplicate_requests = Arc::new(DuplicateRequestCache::default());
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Execute);
        // A request beside which the client sent this one does not wait; nor does another file's request.
        assert_eq!(duplicate_requests.enter(2, 1, FILE), Verdict::Execute);
        assert_eq!(duplicate_requests.enter(3, 3, [8, 9]), Verdict::Execute);
        duplicate_requests.leave(2, None);
        let (other, entered) = (Arc::clone(&duplicate_requests), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&entered);
        let waiter = std::thread::spawn(move || {
            let verdict = other.enter(4, 4, FILE);
            flag.store(true, Ordering::SeqCst);
            verdict
        });
        assert!(!entered.load(Ordering::SeqCst));
        duplicate_requests.leave(1, None);
        assert_eq!(waiter.join().unwrap(), Verdict::Execute);
    }

    #[test]
    fn what_the_client_says_that_it_is_done_with_counts_also_while_an_older_one_is_open() {
        let duplicate_requests = DuplicateRequestCache::default();
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Execute);
        assert_eq!(duplicate_requests.enter(2, 1, FILE), Verdict::Execute);
        assert_eq!(duplicate_requests.enter_until(4, 1, FILE, Instant::now()), Verdict::Execute, "a neighbour");
        duplicate_requests.leave(4, None);
        duplicate_requests.done_with(6, [1, 5].into());
        // An older message that arrives late.
        duplicate_requests.done_with(5, [1, 2, 4].into());
        assert_eq!(duplicate_requests.enter_until(5, 1, FILE, Instant::now()), Verdict::Late, "the second runs");
        for lost in [2, 3, 4] {
            assert_eq!(duplicate_requests.enter(lost, 1, FILE), Verdict::Stale);
        }
        duplicate_requests.leave(2, None);
        assert_eq!(duplicate_requests.enter(5, 1, FILE), Verdict::Execute, "not for the first, which is waited for");
        duplicate_requests.done_with(6, [1].into());
        assert_eq!(duplicate_requests.enter_until(7, 1, FILE, Instant::now()), Verdict::Late, "the fifth runs");
    }

    #[test]
    fn a_request_waits_for_one_with_which_it_has_one_of_two_targets_in_common() {
        let duplicate_requests = DuplicateRequestCache::default();
        assert_eq!(duplicate_requests.enter(1, 1, [7, 100]), Verdict::Execute);
        for targets in [[7, 8], [8, 7], [100, 100], [9, 100]] {
            assert_eq!(duplicate_requests.enter_until(2, 2, targets, Instant::now()), Verdict::Late, "{targets:?}");
        }
        assert_eq!(duplicate_requests.enter(2, 2, [8, 101]), Verdict::Execute);
    }

    #[test]
    fn a_request_that_waits_too_long_has_not_failed() {
        let duplicate_requests = DuplicateRequestCache::default();
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Execute);
        // First a copy of the request, then another one sent after the client gave it up.
        assert_eq!(duplicate_requests.enter_until(1, 1, FILE, Instant::now()), Verdict::Late);
        assert_eq!(duplicate_requests.enter_until(2, 2, FILE, Instant::now()), Verdict::Late);
        duplicate_requests.leave(1, None);
        assert_eq!(duplicate_requests.enter(2, 2, FILE), Verdict::Execute);
    }

    #[test]
    fn forgotten_answers_are_errors_and_never_done_again() {
        let duplicate_requests = DuplicateRequestCache::default();
        for request in 1..=ANSWERS_MAX as u64 + 1 {
            assert_eq!(duplicate_requests.enter(request, 1, FILE), Verdict::Execute);
            duplicate_requests.leave(request, Some(&Message::Done {}));
        }
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Fail(libc::EIO));
        assert_eq!(duplicate_requests.enter(2, 1, FILE), Verdict::Answer(Message::Done {}));
    }

    #[test]
    fn one_that_hangs_while_answers_are_forgotten_is_answered_and_makes_none_of_them_new() {
        let duplicate_requests = DuplicateRequestCache::default();
        let last = ANSWERS_MAX as u64 + 100;
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Execute);
        for request in 2..=last {
            assert_eq!(duplicate_requests.enter(request, 1, [8, 8]), Verdict::Execute);
            duplicate_requests.leave(request, Some(&Message::Done {}));
        }
        assert_eq!(duplicate_requests.enter(90, 1, [8, 8]), Verdict::Fail(libc::EIO));
        assert_eq!(duplicate_requests.enter_until(1, 1, FILE, Instant::now()), Verdict::Late, "it runs");
        duplicate_requests.leave(1, Some(&Message::Written { offset: 5 }));
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Answer(Message::Written { offset: 5 }));
        assert_eq!(duplicate_requests.enter(90, 1, [8, 8]), Verdict::Fail(libc::EIO));
        assert_eq!(duplicate_requests.enter(last, 1, [8, 8]), Verdict::Answer(Message::Done {}));
        // Answers to requests that the client is done with make room.
        duplicate_requests.done_with(last, [1, 1000].into());
        assert_eq!(duplicate_requests.inner.lock().answers.len(), 3);
    }

    #[test]
    fn a_closed_session_executes_nothing() {
        let duplicate_requests = DuplicateRequestCache::default();
        duplicate_requests.close();
        assert_eq!(duplicate_requests.enter(1, 1, FILE), Verdict::Stale);
    }
}
