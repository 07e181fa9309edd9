//! Acting as callers in the global store.
//!
//! Linux keeps credentials per thread at the system call's level. The wrappers of glibc change the whole process, so
//! raw calls are used. Groups that a thread assumed for one caller are replaced before it acts for another. For a root
//! caller, its capabilities decide.
//!
//! Supplementary groups and capabilities can change between calls, so they are read from `/proc` each time, which costs
//! some 10 us. They are read only if the cached attributes of the file leave the permission open, and after a refusal.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, StatxFlags};

use namespace::{Caller, Inode, Rights, rights_of};

use crate::descriptor_of;

/// `_LINUX_CAPABILITY_VERSION_3`
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The attributes that decide whether a caller has permission.
#[derive(Clone, Copy)]
pub(crate) enum Judge<'a> {
    /// The mode of a file. The bits name the permissions needed: read (4), write (2), search or execute (1).
    Inode(&'a Inode, u32),
    /// The caller's groups or capabilities. They must be read first, because without them the result would differ
    /// instead of being refused.
    Groups,
}

/// Permission to change names in a directory.
pub(crate) fn names_in(directory: &Inode) -> Judge<'_> {
    Judge::Inode(directory, 3)
}

/// Turns the calling thread into a caller, for one operation.
pub(crate) struct Impersonator {
    /// Whether the agent runs as root. If not, everything is done as the agent's own user, who is then the only caller.
    privileged: bool,
}

thread_local! {
    static THREAD_GROUPS: RefCell<Option<Arc<[u32]>>> = const { RefCell::new(None) };
}

impl Impersonator {
    /// Uses the credentials that the process has now.
    pub(crate) fn new() -> Impersonator {
        Impersonator { privileged: rustix::process::geteuid().is_root() }
    }

    /// Whether this can act as any user.
    pub(crate) fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Runs `act` as the caller: meanwhile this thread's file-system calls are checked, and new files owned, as the
    /// caller's. If `act` is refused, it runs once more with the groups and capabilities that `/proc` shows. `EPERM`
    /// also if the kernel refuses the change of credentials, which does not happen to a privileged agent.
    pub(crate) fn act<T>(
        &self,
        caller: &Caller,
        judge: Judge<'_>,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.privileged || (caller.uid == 0 && caller.gid == 0) {
            return act();
        }
        let mut act_with = |rights: &Rights| {
            let _as_caller = assume(caller, rights)?;
            act()
        };
        if let Some(groups) = namespace::groups_set() {
            return act_with(&Rights::of_groups(groups));
        }
        if caller.uid != 0 && is_open(judge, caller) {
            return act_with(&rights_of(caller));
        }
        let acted = act_with(&Rights::default());
        let refused = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if caller.uid == 0 || !acted.as_ref().is_err_and(refused) {
            return acted;
        }
        let rights = rights_of(caller);
        if rights.is_empty() { acted } else { act_with(&rights) }
    }
}

/// Whether groups may decide, judged by cached attributes. The kernel has already checked the caller with all groups.
/// So this matters only for changes in the global store since then. Where the mode allows everybody, groups that it
/// excludes are not read.
fn is_open(judge: Judge<'_>, caller: &Caller) -> bool {
    let Judge::Inode(inode, wanted) = judge else { return true };
    let Ok(fd) = descriptor_of(inode) else { return true };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(known) = fs::statx(fd, "", flags, StatxFlags::BASIC_STATS) else { return true };
    let has = |shift: u32| u32::from(known.stx_mode) >> shift & wanted == wanted;
    known.stx_uid != caller.uid && !has(0) && !(known.stx_gid == caller.gid && has(3))
}

fn assume(caller: &Caller, rights: &Rights) -> io::Result<Assumed> {
    if caller.uid != 0 {
        set_thread_groups(Arc::clone(&rights.groups))?;
    }
    let mut assumed = Assumed { gid: false, uid: false, thread: PhantomData };
    set_fs_id(libc::SYS_setfsgid, caller.gid)?;
    assumed.gid = true;
    if caller.uid != 0 {
        set_fs_id(libc::SYS_setfsuid, caller.uid)?;
        assumed.uid = true;
        // The kernel has removed all capabilities from the thread, and restores them with the user id.
        raise(rights.capabilities)?;
    }
    Ok(assumed)
}

/// Raises those of the given capabilities that the thread is permitted.
fn raise(capabilities: u32) -> io::Result<()> {
    if capabilities == 0 {
        return Ok(());
    }
    let header = [CAPABILITY_VERSION, 0];
    // Each of the two sets has 32 bits of effective, permitted and inheritable capabilities.
    let mut data = [[0u32; 3]; 2];
    // SAFETY: the kernel reads a header of two words and writes two sets of three words.
    if unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    data[0][0] |= capabilities & data[0][1];
    // SAFETY: as above; this thread's sets alone change.
    if unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Impersonation of a caller by this thread, which ends on drop. Must stay on its thread.
#[must_use = "dropping it ends the impersonation"]
struct Assumed {
    gid: bool,
    uid: bool,
    thread: PhantomData<*const ()>,
}

impl Drop for Assumed {
    fn drop(&mut self) {
        // Neither call can fail for a privileged process. To continue with another user's rights would be worse than to
        // abort.
        if self.uid && set_fs_id(libc::SYS_setfsuid, 0).is_err() {
            std::process::abort();
        }
        if self.gid && set_fs_id(libc::SYS_setfsgid, rustix::process::getegid().as_raw()).is_err() {
            std::process::abort();
        }
    }
}

fn set_fs_id(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: both calls take one integer and change this thread's credentials only.
    unsafe { libc::syscall(call, id) };
    // Both calls return the former id, even on failure. A call with an impossible id returns the current one.
    // SAFETY: as above; u32::MAX is never valid and changes nothing.
    let now = unsafe { libc::syscall(call, u32::MAX) };
    if now as u32 == id { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn set_thread_groups(groups: Arc<[u32]>) -> io::Result<()> {
    THREAD_GROUPS.with_borrow_mut(|current| {
        if current.as_ref().is_some_and(|current| **current == *groups) {
            return Ok(());
        }
        // SAFETY: the pointer and the count describe `groups`; the raw call changes this thread only.
        let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        *current = Some(groups);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use namespace::set_groups_of_callers;

    use super::*;

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn a_file_made_for_a_caller_is_the_callers_and_the_agent_is_itself_again() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let impersonator = Impersonator::new();
        let write = || std::fs::write(directory.path().join("theirs"), b"x");
        impersonator.act(&Caller { uid: 1234, gid: 4321, pid: 0 }, Judge::Groups, write).unwrap();
        std::fs::write(directory.path().join("ours"), b"x").unwrap();
        let theirs = std::fs::metadata(directory.path().join("theirs")).unwrap();
        assert_eq!((theirs.uid(), theirs.gid()), (1234, 4321));
        assert_eq!(std::fs::metadata(directory.path().join("ours")).unwrap().uid(), 0);
    }

    #[test] // S1
    fn a_caller_cannot_do_what_its_user_cannot() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let impersonator = Impersonator::new();
        let write = || std::fs::write(directory.path().join("theirs"), b"x");
        let refused = impersonator.act(&Caller { uid: 1234, gid: 4321, pid: 0 }, Judge::Groups, write).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test] // S48
    fn a_caller_of_another_machine_has_the_groups_that_were_told_and_those_of_no_process_here() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o770)).unwrap();
        std::os::unix::fs::chown(directory.path(), Some(0), Some(777)).unwrap();
        let impersonator = Impersonator::new();
        let create = |groups: Option<&[u32]>, name: &str| {
            set_groups_of_callers(groups.map(Into::into));
            // The process id is that of a process on this machine, which runs as root.
            let caller = Caller { uid: 1234, gid: 4321, pid: std::process::id() };
            let write = || std::fs::write(directory.path().join(name), b"x");
            let created = impersonator.act(&caller, Judge::Groups, write);
            set_groups_of_callers(None);
            created
        };
        assert_eq!(create(Some(&[]), "none").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        create(Some(&[5, 777]), "told").unwrap();
    }
}
