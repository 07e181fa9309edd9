//! When clean replicas that nobody has open are to go, on the monotonic clock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use types::Identity;

#[derive(Default)]
struct State {
    by_time: BTreeMap<(Duration, u64), Identity>,
    by_file: HashMap<Identity, (Duration, u64)>,
    next: u64,
}

/// The deadlines.
#[derive(Default)]
pub(crate) struct Expiry {
    state: Mutex<State>,
}

impl Expiry {
    /// Sets a file's deadline; it replaces an earlier one.
    pub(crate) fn set(&self, identity: &Identity, at: Duration) {
        let mut state = self.state.lock();
        state.next += 1;
        let key = (at, state.next);
        if let Some(old) = state.by_file.insert(identity.clone(), key) {
            state.by_time.remove(&old);
        }
        state.by_time.insert(key, identity.clone());
    }

    /// The file is in use, or gone.
    pub(crate) fn forget(&self, identity: &Identity) {
        let mut state = self.state.lock();
        if let Some(key) = state.by_file.remove(identity) {
            state.by_time.remove(&key);
        }
    }

    /// Takes out a file whose deadline has passed.
    pub(crate) fn pop(&self, now: Duration) -> Option<Identity> {
        let mut state = self.state.lock();
        let (&key, _) = state.by_time.first_key_value().filter(|(key, _)| key.0 <= now)?;
        let identity = state.by_time.remove(&key)?;
        state.by_file.remove(&identity);
        Some(identity)
    }

    /// Whether the file has a deadline.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.state.lock().by_file.contains_key(identity)
    }
}
