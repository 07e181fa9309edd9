//! The client's requests that are not done with: their numbers rise, and the server is told the lowest.

use std::collections::BTreeSet;

use parking_lot::Mutex;

#[derive(Default)]
struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
}

/// The numbers of a session's requests.
#[derive(Default)]
pub(crate) struct Outstanding(Mutex<Numbers>);

/// One request; done with when dropped.
pub(crate) struct Number<'a> {
    all: &'a Outstanding,
    /// Its number.
    pub(crate) request: u64,
}

impl Outstanding {
    pub(crate) fn begin(&self) -> Number<'_> {
        let mut numbers = self.0.lock();
        numbers.last += 1;
        let request = numbers.last;
        numbers.open.insert(request);
        Number { all: self, request }
    }
}

impl Number<'_> {
    /// The lowest number that is not done with, at this moment.
    pub(crate) fn oldest(&self) -> u64 {
        self.all.0.lock().open.first().copied().unwrap_or(self.request)
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.all.0.lock().open.remove(&self.request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_lowest_that_is_not_done_with() {
        let all = Outstanding::default();
        let (first, second) = (all.begin(), all.begin());
        assert_eq!((first.request, second.oldest()), (1, 1));
        drop(first);
        assert_eq!(second.oldest(), 2);
    }
}
