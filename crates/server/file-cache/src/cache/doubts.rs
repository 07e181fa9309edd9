//! The records that count for nothing.

use std::collections::HashMap;

use concurrency::Mutex;
use types::{Identity, Version};

/// Replicas whose records count for nothing. Some are fresh ones whose intent failed and could not be taken back;
/// their record may exist although its commit returned an error. The others are clean ones that were dropped while
/// nothing could be recorded. The value says whether a replica is still open: its last user then removes it.
#[derive(Default)]
pub(crate) struct Doubts(pub(crate) Mutex<HashMap<(Identity, Version), bool>>);

impl Doubts {
    /// Returns whether a record is one of these.
    pub(crate) fn has(&self, identity: &Identity, version: Version) -> bool {
        let doubts = self.0.lock();
        !doubts.is_empty() && doubts.contains_key(&(identity.clone(), version))
    }

    /// Adds a replica. Returns false if there are too many.
    pub(crate) fn add(&self, identity: &Identity, version: Version, in_use: bool, most: usize) -> bool {
        let mut doubts = self.0.lock();
        let room = doubts.len() < most;
        if room {
            doubts.insert((identity.clone(), version), in_use);
        }
        room
    }
}
