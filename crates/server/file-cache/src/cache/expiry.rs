//! Deadlines of clean replicas that nobody has open, on the monotonic clock.
//!
//! Every clean file has an entry here, so its identity is stored once, and files are told apart by a hash of it. Two
//! files have the same hash with odds of 1 to 10^8 at 10^6 files. The first one then has no deadline until the next
//! start. It stays longer, and is evicted when room is needed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use concurrency::Mutex;
use types::Identity;

#[derive(Default)]
struct State {
    /// Identities by deadline in milliseconds and hash.
    by_time: BTreeMap<(u64, u64), Identity>,
    by_file: HashMap<u64, u64>,
}

#[derive(Default)]
pub(crate) struct Expiry {
    hasher: RandomState,
    state: Mutex<State>,
}

impl Expiry {
    /// Sets a file's deadline; it replaces an earlier one.
    pub(crate) fn set(&self, identity: &Identity, at: Duration) {
        let hash = self.hasher.hash_one(identity);
        // Rounded up: never too early.
        let at = u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let mut state = self.state.lock();
        if let Some(old) = state.by_file.insert(hash, at) {
            state.by_time.remove(&(old, hash));
        }
        state.by_time.insert((at, hash), identity.clone());
    }

    /// Removes the deadline of a file that is in use, or gone.
    pub(crate) fn forget(&self, identity: &Identity) {
        let hash = self.hasher.hash_one(identity);
        let mut state = self.state.lock();
        if let Some(at) = state.by_file.remove(&hash) {
            state.by_time.remove(&(at, hash));
        }
    }

    /// Takes out a file whose deadline has passed, and returns it.
    pub(crate) fn pop(&self, now: Duration) -> Option<Identity> {
        let mut state = self.state.lock();
        let (&key, _) = state.by_time.first_key_value().filter(|(key, _)| Duration::from_millis(key.0) <= now)?;
        state.by_file.remove(&key.1);
        state.by_time.remove(&key)
    }

    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.state.lock().by_file.contains_key(&self.hasher.hash_one(identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_in_the_order_of_their_latest_deadlines_and_never_early() {
        let expiry = Expiry::default();
        let file = |n: u8| Identity::new([n]).unwrap();
        expiry.set(&file(1), Duration::from_micros(5_000_500));
        expiry.set(&file(2), Duration::from_secs(3));
        expiry.set(&file(3), Duration::from_secs(1));
        expiry.set(&file(3), Duration::from_secs(9));
        expiry.set(&file(4), Duration::from_secs(2));
        expiry.forget(&file(4));
        assert!(expiry.has(&file(3)) && !expiry.has(&file(4)));
        let at = |ms| expiry.pop(Duration::from_millis(ms));
        assert_eq!(at(2_999), None);
        assert_eq!(at(5_000), Some(file(2)));
        assert_eq!(at(5_000), None, "half a millisecond early");
        assert_eq!(at(10_000), Some(file(1)));
        assert_eq!(at(10_000), Some(file(3)));
        assert_eq!(at(10_000), None);
    }
}
