//! Numbers for the versions of files' data: equal numbers are one version.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use concurrency::Mutex;
use file_cache::File;

use crate::limits::VERSIONS_SWEPT;

#[derive(Default)]
struct Known {
    last: u64,
    by_place: HashMap<usize, (Weak<File>, u64)>,
}

/// The numbers given so far; another server gives others, as it begins elsewhere.
pub(crate) struct VersionNumbers(Mutex<Known>);

impl VersionNumbers {
    /// Numbers from a random place on.
    pub(crate) fn beginning_at(start: u64) -> VersionNumbers {
        VersionNumbers(Mutex::new(Known { last: start, ..Known::default() }))
    }

    pub(crate) fn number(&self, file: &Arc<File>) -> u64 {
        let place = Arc::as_ptr(file) as usize;
        let mut known = self.0.lock();
        // A place that is used again holds another file: then the former one is gone.
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
        known.by_place.insert(place, (Arc::downgrade(file), number));
        number
    }
}
