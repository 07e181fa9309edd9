//! Memory of the node for windows.

use std::sync::Arc;

use concurrency::Mutex;
use window::limits::CAPACITY_MIN;

#[derive(Debug, Clone)]
pub(crate) struct WindowBudget(Arc<Mutex<u64>>);

/// A part of the budget, returned on drop.
#[derive(Debug)]
pub(crate) struct Share {
    bytes: u64,
    of: WindowBudget,
}

impl WindowBudget {
    pub fn new(bytes: u64) -> WindowBudget {
        WindowBudget(Arc::new(Mutex::new(bytes)))
    }

    /// Takes the largest ring of at most `wish` bytes, or of the smallest size, that leaves at least as much as it
    /// takes. So the first of many programs does not take all, and the last still gets something. `None` if less than
    /// the smallest ring is left.
    pub fn take(&self, wish: u64) -> Option<Share> {
        let mut left = self.0.lock();
        let most = wish.max(CAPACITY_MIN).min(*left / 2);
        let bytes = (most.checked_ilog2()).map_or(0, |log| 1 << log);
        if bytes < CAPACITY_MIN {
            return None;
        }
        *left -= bytes;
        Some(Share { bytes, of: self.clone() })
    }

    #[cfg(test)]
    pub fn left(&self) -> u64 {
        *self.0.lock()
    }
}

impl Share {
    /// Bytes for records: a power of two.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.of.0.lock() += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_comer_gets_something_and_all_is_given_back() {
        let budget = WindowBudget::new(64 << 20);
        let shares: Vec<_> = std::iter::from_fn(|| budget.take(16 << 20)).collect();
        let mib: Vec<_> = shares.iter().map(|share| share.bytes() >> 20).collect();
        assert_eq!(mib[..5], [16, 16, 16, 8, 4]);
        assert!(shares.last().is_some_and(|share| share.bytes() == CAPACITY_MIN));
        drop(shares);
        assert_eq!(budget.left(), 64 << 20);
        assert!(budget.take(1).is_some_and(|share| share.bytes() == CAPACITY_MIN));
        assert!(WindowBudget::new(2 * CAPACITY_MIN - 1).take(CAPACITY_MIN).is_none());
    }
}
