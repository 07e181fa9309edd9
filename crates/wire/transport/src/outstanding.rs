//! Outstanding requests of the client. Their numbers rise, and each request tells the server the lowest.
//!
//! A request is *in doubt* if it was given up or sent more than once: a copy may still be on its way or run at the
//! server. Usually the lowest outstanding number tells the server to ignore it. While an older request waits for
//! long, that number does not rise, and the server is told expressly.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use concurrency::Mutex;

use crate::limits::OPEN_MAX;

#[derive(Default)]
struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
}

/// Numbers of a session's requests.
#[derive(Default)]
pub(crate) struct OutstandingRequests {
    numbers: Mutex<Numbers>,
    /// Number of requests that ended in doubt so far.
    doubts: AtomicU64,
}

/// Statement that the client is done with all requests below `below`, except those in `open`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DoneWith {
    pub(crate) below: u64,
    pub(crate) open: Vec<u64>,
    /// Value of [`OutstandingRequests::doubts`] at that time.
    pub(crate) doubts: u64,
}

/// Outstanding request. The client is done with it when this is dropped.
pub(crate) struct Number<'a> {
    all: &'a OutstandingRequests,
    /// Number of the request.
    pub(crate) request: u64,
    /// How often the request was sent; stops at 255.
    sent: Cell<u8>,
    answered: Cell<bool>,
}

impl OutstandingRequests {
    pub(crate) fn begin(&self) -> Number<'_> {
        let mut numbers = self.numbers.lock();
        numbers.last += 1;
        let request = numbers.last;
        numbers.open.insert(request);
        Number { all: self, request, sent: Cell::new(0), answered: Cell::new(false) }
    }

    /// Returns the number of requests that ended in doubt so far.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// Returns the current statement for the server.
    pub(crate) fn done_with(&self) -> DoneWith {
        let numbers = self.numbers.lock();
        let open: Vec<u64> = numbers.open.iter().copied().take(OPEN_MAX).collect();
        // Requests beyond the bound are not mentioned.
        let below = numbers.open.iter().nth(OPEN_MAX).copied().unwrap_or(numbers.last + 1);
        DoneWith { below, open, doubts: self.doubts() }
    }
}

impl Number<'_> {
    /// Returns the lowest outstanding number at this moment.
    pub(crate) fn oldest(&self) -> u64 {
        self.all.numbers.lock().open.first().copied().unwrap_or(self.request)
    }

    /// Notes that the request is about to be sent, for the first time or again.
    pub(crate) fn is_sent(&self) {
        self.sent.set(self.sent.get().saturating_add(1));
    }

    /// Notes that the answer has arrived.
    pub(crate) fn is_answered(&self) {
        self.answered.set(true);
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        let mut numbers = self.all.numbers.lock();
        numbers.open.remove(&self.request);
        // A request that was sent once and answered leaves nothing behind.
        if self.sent.get() > u8::from(self.answered.get()) {
            self.all.doubts.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_lowest_that_is_not_done_with() {
        let all = OutstandingRequests::default();
        let (first, second) = (all.begin(), all.begin());
        assert_eq!((first.request, second.oldest()), (1, 1));
        drop(first);
        assert_eq!(second.oldest(), 2);
    }

    #[test]
    fn what_was_given_up_or_sent_again_is_in_doubt() {
        let all = OutstandingRequests::default();
        let _oldest = all.begin();
        for (sent, answered, doubts) in [(0, false, 0), (1, true, 0), (1, false, 1), (2, true, 1), (3, false, 1)] {
            let (before, one) = (all.doubts(), all.begin());
            (0..sent).for_each(|_| one.is_sent());
            if answered {
                one.is_answered();
            }
            drop(one);
            assert_eq!(all.doubts() - before, doubts, "sent {sent} times, answered: {answered}");
        }
        let last = all.begin();
        assert_eq!(all.done_with(), DoneWith { below: last.request + 1, open: vec![1, last.request], doubts: 3 });
        let many: Vec<_> = (0..OPEN_MAX).map(|_| all.begin()).collect();
        let told = all.done_with();
        assert_eq!((told.open.len(), told.below), (OPEN_MAX, many[OPEN_MAX - 2].request), "no more than is told");
    }
}
