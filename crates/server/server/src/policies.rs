//! Policies as agents send them: the same text again and again.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use concurrency::Mutex;
use config::{Policy, PolicySet};

use crate::limits::POLICIES_MAX;

/// Parsed policies by their text.
#[derive(Default)]
pub(crate) struct Policies(Mutex<HashMap<String, Arc<Policy>>>);

impl Policies {
    /// Returns the policy of a text, parsed once. Errors: `EINVAL` if this version does not know a rule.
    pub(crate) fn get(&self, text: &str) -> io::Result<Arc<Policy>> {
        if let Some(known) = self.0.lock().get(text) {
            return Ok(Arc::clone(known));
        }
        let set = PolicySet::from_toml(text).map_err(|reason| {
            tracing::warn!(reason, "refused a policy that this version does not know");
            io::Error::from_raw_os_error(libc::EINVAL)
        })?;
        let policy = Arc::new(set.apply(Policy::default()));
        let mut known = self.0.lock();
        if known.len() >= POLICIES_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), Arc::clone(&policy));
        Ok(policy)
    }
}
