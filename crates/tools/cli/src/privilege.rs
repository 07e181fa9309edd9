//! Privileges of this process.

use std::fs;

use fuse::OnlyUser;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Number of `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: u32 = 21;

/// Returns whether this process may administrate the machine itself, not only a namespace. Passthrough needs that.
pub fn administrates_machine() -> bool {
    has_admin() && is_first_user_namespace()
}

/// Returns the user and group that a mount of this process knows, if it can mount only in a user namespace with these
/// alone. `None`: the mount knows all.
pub fn only_user() -> Option<OnlyUser> {
    let own = OnlyUser { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    (!has_admin()).then_some(own)
}

/// Returns whether this process may mount in its namespace.
pub fn has_admin() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// Makes this thread, and those that it starts from now on, subject to file systems' quotas. Their writes for users
/// are then refused where the users' own would be. A failure leaves them exempt.
pub fn keep_within_quotas() {
    let kept = capabilities(None).and_then(|mut sets| {
        sets.effective.remove(CapabilitySet::SYS_RESOURCE);
        sets.permitted.remove(CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, sets)
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "quotas of the global store do not hold for what is staged out");
    }
}

fn is_first_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}
