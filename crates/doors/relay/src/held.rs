//! What the kernel of this node has open, by its numbers.

use std::collections::HashMap;

use parking_lot::Mutex;
use types::Identity;

/// One open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// Which file.
    pub identity: Identity,
    /// It is open for writing.
    pub writes: bool,
}

/// All open files.
#[derive(Default)]
pub(crate) struct Opens(Mutex<HashMap<u64, Held>>);

impl Opens {
    pub fn add(&self, handle: u64, held: Held) {
        self.0.lock().insert(handle, held);
    }

    /// It is closed, or was never got.
    pub fn remove(&self, handle: u64) -> Option<Held> {
        self.0.lock().remove(&handle)
    }

    /// Whether it is open for writing.
    pub fn writes(&self, handle: u64) -> bool {
        self.0.lock().get(&handle).is_some_and(|held| held.writes)
    }

    /// Nothing is open any more; what was.
    pub fn clear(&self) -> Vec<Held> {
        self.0.lock().drain().map(|(_, held)| held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_held_until_it_is_closed() {
        let opens = Opens::default();
        let held = |writes| Held { identity: Identity::new(vec![1, 2, 3]).unwrap(), writes };
        opens.add(7, held(true));
        opens.add(8, held(false));
        assert!(opens.writes(7) && !opens.writes(8) && !opens.writes(9));
        assert_eq!(opens.remove(7), Some(held(true)));
        assert!(!opens.writes(7) && opens.remove(7).is_none());
        assert_eq!(opens.clear(), [held(false)]);
        assert_eq!(opens.clear(), []);
    }
}
