//! Numbers of a node's requests that it is not done with. The server remembers their answers until then.

use std::collections::BTreeSet;

use concurrency::Mutex;

#[derive(Default)]
struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
}

/// All requests of a node that it is not done with.
#[derive(Default)]
pub(crate) struct OpenRequests(Mutex<Numbers>);

impl OpenRequests {
    /// Begins a request and returns its number.
    pub fn begin(&self) -> u64 {
        let mut numbers = self.0.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.open.insert(number);
        number
    }

    /// Ends a request whose answer has reached the kernel, or was taken back.
    pub fn end(&self, number: u64) {
        self.0.lock().open.remove(&number);
    }

    /// Returns the lowest number that the node is not done with.
    pub fn oldest(&self) -> u64 {
        let numbers = self.0.lock();
        numbers.open.first().copied().unwrap_or(numbers.last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_lowest_that_is_not_done_with() {
        let open = OpenRequests::default();
        assert_eq!((open.begin(), open.begin(), open.oldest()), (1, 2, 1));
        open.end(1);
        assert_eq!(open.oldest(), 2);
        open.end(2);
        assert_eq!(open.oldest(), 3);
    }
}
