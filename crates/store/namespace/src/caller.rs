//! Callers: the processes whose requests are served.

use std::cell::RefCell;
use std::sync::Arc;

use crate::rights::rights_of;

/// The process that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Thread id; 0 if the process is not visible from here.
    pub pid: u32,
}

impl Caller {
    /// The agent itself.
    pub fn own() -> Caller {
        Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            pid: std::process::id(),
        }
    }
}

thread_local! {
    static SET_GROUPS: RefCell<Option<Arc<[u32]>>> = const { RefCell::new(None) };
}

/// Returns the caller's current supplementary groups from `/proc`. Empty if the process is not visible from here.
pub fn groups_of(caller: &Caller) -> Arc<[u32]> {
    rights_of(caller).groups
}

/// Sets the groups of callers that this thread acts for, in place of those in `/proc`: the callers are on another
/// machine. `None`: groups are read from `/proc` again.
pub fn set_groups_of_callers(groups: Option<Arc<[u32]>>) {
    SET_GROUPS.set(groups);
}

/// Returns the groups set by [`set_groups_of_callers`] for this thread.
pub fn groups_set() -> Option<Arc<[u32]>> {
    SET_GROUPS.with_borrow(Option::clone)
}
