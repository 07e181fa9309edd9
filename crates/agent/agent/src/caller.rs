//! Who asks, and doing things below as that user and not as the agent.
//!
//! Linux keeps credentials per thread at the system call's level; glibc's wrappers spread them over the process, so
//! the raw calls are used. What a thread had assumed of groups is set again before it acts for somebody else; for a root
//! caller its capabilities decide.
//!
//! Supplementary groups and capabilities are as they are at the call, so they are read of `/proc` each time, which costs some 10 us:
//! only where what the store knows of the file without being asked leaves the answer open, and after a refusal.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, StatxFlags};

use crate::node::Node;
use crate::rights::{self, Rights};

/// The process that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Its file-system user id.
    pub uid: u32,
    /// Its file-system group id.
    pub gid: u32,
    /// Its thread id; 0 if it is not visible from here.
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

/// The supplementary groups that a caller has now, as `/proc` tells them; none if it cannot be seen from here.
pub fn groups_of(caller: &Caller) -> Arc<[u32]> {
    rights::read(caller).groups
}

/// What decides whether a caller may.
#[derive(Clone, Copy)]
pub(crate) enum Judge<'a> {
    /// The mode of a node: as much of read (4), write (2) and search or execution (1) as these bits say.
    Node(&'a Node, u32),
    /// His groups or capabilities, in what comes of it as well: nothing would be refused without them.
    Groups,
}

/// A directory in which names are changed.
pub(crate) fn names_in(directory: &Node) -> Judge<'_> {
    Judge::Node(directory, 3)
}

/// From now on callers for whom this thread works have these groups, whatever `/proc` says: they are on another machine.
/// `None`: `/proc` is asked again.
pub fn set_groups_of_callers(groups: Option<Arc<[u32]>>) {
    TOLD_GROUPS.set(groups);
}

/// Turns the calling thread into a caller, for one operation.
pub struct Impersonator {
    /// Without privilege everything is done as the agent's own user, who is then the only caller.
    privileged: bool,
}

thread_local! {
    static THREAD_GROUPS: RefCell<Option<Arc<[u32]>>> = const { RefCell::new(None) };
    static TOLD_GROUPS: RefCell<Option<Arc<[u32]>>> = const { RefCell::new(None) };
}

impl Default for Impersonator {
    fn default() -> Impersonator {
        Impersonator::new()
    }
}

impl Impersonator {
    /// For the credentials that the process has now.
    pub fn new() -> Impersonator {
        Impersonator { privileged: rustix::process::geteuid().is_root() }
    }

    /// Whether it can be anybody.
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Does something as the caller: this thread's file-system calls are judged and owned as his meanwhile. `act` is called again with
    /// what `/proc` says of him if it was refused without. `EPERM` also if the kernel refuses to change, which it does not for a
    /// privileged agent.
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
        if let Some(groups) = TOLD_GROUPS.with_borrow(Option::clone) {
            return act_with(&Rights::of_groups(groups));
        }
        if caller.uid != 0 && is_open(judge, caller) {
            return act_with(&rights::read(caller));
        }
        let acted = act_with(&Rights::default());
        let refused = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        if caller.uid == 0 || !acted.as_ref().is_err_and(refused) {
            return acted;
        }
        let rights = rights::read(caller);
        if rights.is_empty() { acted } else { act_with(&rights) }
    }
}

/// Whether groups may decide, as far as is known without a question to the store. The kernel above has judged the caller with all that he
/// has already: this is about what has changed below since, so what is open to all is not asked for groups that are kept out.
fn is_open(judge: Judge<'_>, caller: &Caller) -> bool {
    let Judge::Node(node, wanted) = judge else { return true };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(known) = fs::statx(node.fd(), "", flags, StatxFlags::BASIC_STATS) else { return true };
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
        // The kernel has taken all of these from the thread, and gives them back with the user.
        rights::raise(rights.capabilities)?;
    }
    Ok(assumed)
}

/// This thread acts as a caller until this drops. It stays on its thread.
#[must_use = "dropping it ends the impersonation"]
struct Assumed {
    gid: bool,
    uid: bool,
    thread: PhantomData<*const ()>,
}

impl Drop for Assumed {
    fn drop(&mut self) {
        // Going on with a stranger's rights would be worse than ending: neither can fail for a privileged process.
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
    // They report the former id whatever happened; asking with an impossible id tells what holds now.
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

thread_local! {
    static OWN_UMASK: bool = {
        // SAFETY: unshare with CLONE_FS gives this thread its own umask and working directory and touches no memory.
        unsafe { libc::unshare(libc::CLONE_FS) == 0 }
    };
}

/// Runs a creation under the caller's umask, so that the store below applies it, or a default ACL instead of it, itself.
/// `create` gets the mode to use. The umask is this thread's own; where threads cannot have one, the mode is masked.
pub fn with_umask<T>(mode: u32, umask: u32, create: impl FnOnce(u32) -> T) -> T {
    struct Restore(libc::mode_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: umask cannot fail and is this thread's own.
            unsafe { libc::umask(self.0) };
        }
    }
    if !OWN_UMASK.with(|own| *own) {
        return create(mode & !(umask & 0o777));
    }
    // SAFETY: as above.
    let _restore = Restore(unsafe { libc::umask(umask & 0o777) });
    create(mode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn the_umask_is_the_threads_own() {
        let directory = tempfile::tempdir().unwrap();
        let (inside, outside) = (directory.path().join("inside"), directory.path().join("outside"));
        let other = with_umask(0o666, 0o077, |_| {
            std::fs::write(&inside, b"").unwrap();
            let outside = outside.clone();
            std::thread::spawn(move || with_umask(0o666, 0o002, |_| std::fs::write(outside, b"").unwrap())).join()
        });
        other.unwrap();
        assert_eq!(std::fs::metadata(inside).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(outside).unwrap().mode() & 0o777, 0o664);
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
            // The number is that of a process here: root's.
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
