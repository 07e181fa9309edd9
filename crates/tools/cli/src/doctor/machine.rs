//! Checks of the kernel, privileges, memory and limits.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::limits::{MEMORY_WARN_BYTES, NOFILE_WARN};
use crate::memory::of_machine;
use crate::privilege;

/// Oldest kernel that serves: `open_tree` and `move_mount`.
const KERNEL_MIN: (u32, u32) = (5, 2);
/// First kernel with FUSE passthrough.
const KERNEL_PASSTHROUGH: (u32, u32) = (6, 9);

pub fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < KERNEL_MIN {
        Check::missing("kernel", release, "5.2 is the oldest kernel that can mount in place")
    } else if version < KERNEL_PASSTHROUGH {
        Check::limited("kernel", release, "kernels from 6.9 read and write replicas without the agent (passthrough)")
    } else {
        Check::ok("kernel", release)
    }
}

pub fn privileges() -> Check {
    if privilege::administrates_machine() {
        Check::ok("privileges", "CAP_SYS_ADMIN: mount for the node, passthrough")
    } else if privilege::has_admin() {
        Check::limited("privileges", "CAP_SYS_ADMIN in a user namespace only", "passthrough needs the machine's root")
    } else {
        Check::limited(
            "privileges",
            "ordinary user: `forebay run` works, without passthrough",
            "`forebay mount` and passthrough need root",
        )
    }
}

pub fn user_namespaces() -> Check {
    let read = |file: &str| fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let max = read("/proc/sys/user/max_user_namespaces").unwrap_or(0);
    let allowed = read("/proc/sys/kernel/unprivileged_userns_clone").unwrap_or(1);
    let restricted = read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").unwrap_or(0);
    let name = "user namespaces";
    if max == 0 || allowed == 0 {
        let remedy = "ordinary users cannot use `forebay run`: sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1";
        Check::limited(name, "switched off", remedy)
    } else if restricted == 1 {
        let remedy = "ordinary users need an AppArmor profile for forebay, or sysctl kernel.apparmor_restrict_unprivileged_userns=0";
        Check::limited(name, "restricted by AppArmor", remedy)
    } else {
        Check::ok(name, format!("available, at most {max}"))
    }
}

pub fn memory() -> Check {
    let bytes = of_machine("MemAvailable:").unwrap_or(0);
    let found = format!("{} MiB available", bytes >> 20);
    if bytes < MEMORY_WARN_BYTES {
        Check::limited("memory", found, "the agent works best with 512 MiB to spare")
    } else {
        Check::ok("memory", found)
    }
}

pub fn open_files() -> Check {
    let hard = getrlimit(Resource::Nofile).maximum;
    match hard {
        Some(limit) if limit < NOFILE_WARN => {
            let remedy = format!(
                "the agent needs one descriptor for each open file of all programs: raise the hard limit to {NOFILE_WARN} or more (limits.conf, LimitNOFILE=)"
            );
            Check::limited("open files", format!("at most {limit}"), remedy)
        }
        Some(limit) => Check::ok("open files", format!("at most {limit}")),
        None => Check::ok("open files", "unlimited"),
    }
}
