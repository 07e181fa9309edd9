//! Credentials of recent callers, as they are noted of what they create.

use std::collections::HashMap;
use std::sync::Arc;

use concurrency::{Instant, Mutex};
use namespace::{Caller, groups_of, groups_set};

use crate::limits;
use crate::state::Credentials;

/// Credentials by caller, for a short time: reading them from `/proc` would cost more than a creation.
#[derive(Default)]
pub(crate) struct RecentCallers(Mutex<HashMap<Caller, (Instant, Arc<Credentials>)>>);

impl RecentCallers {
    /// Returns the credentials that a caller has, or had up to [`limits::CALLER_AGE`] ago.
    pub fn credentials(&self, caller: &Caller) -> Arc<Credentials> {
        let Caller { uid, gid, .. } = *caller;
        if let Some(groups) = groups_set() {
            return Arc::new(Credentials { uid, gid, groups });
        }
        if caller.pid == 0 {
            return Arc::new(Credentials { uid, gid, groups: [].into() });
        }
        let known = self.0.lock().get(caller).cloned();
        if let Some((at, credentials)) = known
            && at.elapsed() < limits::CALLER_AGE
        {
            return credentials;
        }
        let credentials = Arc::new(Credentials { uid, gid, groups: groups_of(caller) });
        let mut callers = self.0.lock();
        if callers.len() >= limits::CALLERS_MAX {
            callers.clear();
        }
        callers.insert(*caller, (Instant::now(), Arc::clone(&credentials)));
        credentials
    }
}
