//! Numbers for the versions of files' data: equal numbers mean the same version.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use concurrency::Mutex;

use crate::limits::VERSIONS_SWEPT;

#[derive(Default)]
struct Known {
    last: u64,
    by_place: HashMap<usize, (Weak<dyn Any + Send + Sync>, u64)>,
}

/// The numbers given so far. Another server gives other numbers, for it begins at another random place.
pub(crate) struct VersionNumbers(Mutex<Known>);

impl VersionNumbers {
    /// Makes numbers that begin after `start`, which is random.
    pub(crate) fn beginning_at(start: u64) -> VersionNumbers {
        VersionNumbers(Mutex::new(Known { last: start, ..Known::default() }))
    }

    pub(crate) fn number(&self, content: &Arc<dyn Any + Send + Sync>) -> u64 {
        let place = Arc::as_ptr(content).addr();
        let mut known = self.0.lock();
        // An address that is used again belongs to another file: the former file is gone.
        if let Some((held, number)) = known.by_place.get(&place)
            && held.strong_count() > 0
        {
            return *number;
        }
        if known.by_place.len() >= VERSIONS_SWEPT {
            known.by_place.retain(|_, (held, _)| held.strong_count() > 0);
        }
        known.last = known.last.wrapping_add(1);
        let number = known.last;
        known.by_place.insert(place, (Arc::downgrade(content), number));
        number
    }
}
