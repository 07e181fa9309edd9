//! What this process may do.

use std::fs;

use fuse::OnlyUser;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Number of `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: u32 = 21;

/// True if it may administrate the machine itself, not only a namespace: what passthrough needs.
pub fn administrates_machine() -> bool {
    has_admin() && is_first_user_namespace()
}

/// The user and the group that a mount of this process knows: it cannot mount but in a user namespace with these alone. `None`: it knows
/// all.
pub fn only_user() -> Option<OnlyUser> {
    let own = OnlyUser { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    (!has_admin()).then_some(own)
}

/// True if it may mount in its namespace.
pub fn has_admin() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// From here on this thread and those that it starts are not exempt from the quotas of file systems: what they write for users is
/// refused where the users' own writes would be. A failure leaves them exempt.
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
