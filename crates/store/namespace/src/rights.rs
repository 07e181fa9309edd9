//! Supplementary groups and capabilities of a process, as shown by `/proc`.

use std::sync::Arc;

use crate::caller::Caller;

/// Capabilities that the kernel removes from a thread whose file-system user is not root: `CAP_CHOWN`,
/// `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`, `CAP_FSETID`, `CAP_LINUX_IMMUTABLE` and `CAP_MKNOD`.
const OF_FILES: u32 = 0b1_1111 | 1 << 9 | 1 << 27;

/// Supplementary groups and capabilities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Bits of the capabilities for files, numbered as `CAP_*`.
    pub capabilities: u32,
}

impl Rights {
    /// Returns rights of these groups alone.
    pub fn of_groups(groups: Arc<[u32]>) -> Rights {
        Rights { groups, capabilities: 0 }
    }

    /// Whether there are neither groups nor capabilities.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.capabilities == 0
    }
}

/// Returns the rights that a caller has now. Empty if the process is not visible from here, or has other ids by now.
pub fn rights_of(caller: &Caller) -> Rights {
    if caller.pid == 0 {
        return Rights::default();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", caller.pid));
    let mut rights = status.ok().and_then(|status| parse(&status, caller)).unwrap_or_default();
    if rights.capabilities != 0 && !is_of_our_users(caller.pid) {
        rights.capabilities = 0;
    }
    rights
}

fn parse(status: &str, caller: &Caller) -> Option<Rights> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // The last of the four ids is the file-system id.
    let is = |name: &str, id: u32| line(name)?.split_whitespace().last().map(|last| last.parse() == Ok(id));
    if !(is("Uid:", caller.uid)? && is("Gid:", caller.gid)?) {
        return None;
    }
    let groups = line("Groups:")?.split_whitespace().filter_map(|group| group.parse().ok()).collect();
    let effective = u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?;
    Some(Rights { groups, capabilities: effective as u32 & OF_FILES })
}

/// Whether the process is in our user namespace. Only then do its capabilities apply to the store's files.
fn is_of_our_users(pid: u32) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
    namespace("self").is_some_and(|ours| Some(ours) == namespace(&pid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_live_process_may_is_read_and_what_another_may_is_not() {
        let own = Caller::own();
        assert!(parse(&std::fs::read_to_string("/proc/self/status").unwrap(), &own).is_some());
        assert_eq!(
            rights_of(&Caller { uid: own.uid + 1, ..own }),
            Rights::default(),
            "another process has the number by now"
        );
        assert_eq!(rights_of(&Caller { pid: 0, ..own }), Rights::default());
    }

    #[test]
    fn groups_and_the_capabilities_of_files_are_told_apart_from_others() {
        let status = "Name:\tx\nUid:\t1\t1\t1\t7\nGid:\t2\t2\t2\t8\nGroups:\t5 77 \nCapEff:\t000001ffffffffff\n";
        let caller = Caller { uid: 7, gid: 8, pid: 1 };
        let rights = parse(status, &caller).unwrap();
        assert_eq!((&*rights.groups, rights.capabilities), (&[5, 77][..], OF_FILES));
        assert_eq!(parse(status, &Caller { uid: 1, ..caller }), None);
    }
}
