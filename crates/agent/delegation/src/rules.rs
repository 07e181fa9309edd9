//! Permissions: which callers may do what with the nodes of a tree.
//!
//! The rules are those of Linux (path_resolution(7), `fs/namei.c`), in the order in which it checks them: the order decides which
//! error a caller gets. Capabilities of other users than root are looked at after a refusal.

use namespace::{Caller, NewMode, rights_of};
use rustix::io::Errno;

use crate::acl;
use crate::limits;
use crate::state::{Moment, NodeKind, Xattrs};
use crate::tree::{Member, Tree};

/// Read, write and search permission.
pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const SEARCH: u16 = 1;

pub(crate) const SET_USER_ID: u16 = 0o4000;
pub(crate) const SET_GROUP_ID: u16 = 0o2000;
pub(crate) const STICKY: u16 = 0o1000;
pub(crate) const GROUP_EXECUTES: u16 = 0o010;

/// A capability, by its number in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    Chown = 0,
    DacOverride = 1,
    DacReadSearch = 2,
    Fowner = 3,
    Fsetid = 4,
    Mknod = 27,
}

/// Whether the caller is the superuser or has the capability.
pub(crate) fn has(caller: &Caller, capability: Capability) -> bool {
    // Callers of other machines have the groups that were set, and no capabilities.
    let shown = || namespace::groups_set().is_none() && rights_of(caller).capabilities >> capability as u32 & 1 != 0;
    caller.uid == 0 || shown()
}

/// Whether the caller owns the node, or may act as if.
pub(crate) fn owns(caller: &Caller, member: &Member) -> bool {
    caller.uid == member.uid || has(caller, Capability::Fowner)
}

/// Whether a group is one of the caller's.
pub(crate) fn is_in(caller: &Caller, gid: u32) -> bool {
    let groups = || namespace::groups_set().unwrap_or_else(|| rights_of(caller).groups);
    caller.gid == gid || groups().contains(&gid)
}

/// Checks permissions of a node. `EACCES` if one of `wanted` is missing.
pub(crate) fn may(caller: &Caller, member: &Member, wanted: u16) -> Result<(), Errno> {
    let granted = |shift: u32| member.mode >> shift & wanted == wanted;
    let by_mode = || {
        if caller.uid == member.uid {
            return granted(6);
        }
        if member.mode & 0o070 != 0
            && let Some(acl) = member.acl(acl::ACCESS)
        {
            return acl.grants(caller.uid, member.gid, |gid| is_in(caller, gid), wanted);
        }
        // Where group and others have equal bits, groups need not be read.
        match (granted(3), granted(0)) {
            (group, others) if group == others => group,
            (group, _) => is_in(caller, member.gid) == group,
        }
    };
    let executes = member.mode & 0o111 != 0 || member.is_directory();
    let overrides = || wanted & SEARCH == 0 || executes;
    if caller.uid == 0 {
        return if overrides() { Ok(()) } else { Err(Errno::ACCESS) };
    }
    let reads = wanted == READ || member.is_directory() && wanted & WRITE == 0;
    let is_allowed = by_mode()
        || overrides() && has(caller, Capability::DacOverride)
        || reads && has(caller, Capability::DacReadSearch);
    if is_allowed { Ok(()) } else { Err(Errno::ACCESS) }
}

impl Tree {
    /// Checks that the slot has a directory. `ENOTDIR` for another node.
    pub(crate) fn check_directory(&self, slot: u32) -> Result<(), Errno> {
        if self.member(slot).is_directory() { Ok(()) } else { Err(Errno::NOTDIR) }
    }

    /// Finds a name. `None` if it does not exist; `ENOENT` if the directory itself was removed.
    pub(crate) fn find(&self, directory: u32, name: &[u8]) -> Result<Option<u32>, Errno> {
        self.check_directory(directory)?;
        if name.len() > limits::NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if self.link_count(directory) == 0 {
            return Err(Errno::NOENT);
        }
        Ok(self.child(directory, name))
    }

    /// Checks that names of a directory may be looked up. `ENOTDIR` for another node.
    pub(crate) fn may_search(&self, caller: &Caller, directory: u32) -> Result<(), Errno> {
        self.check_directory(directory)?;
        may(caller, self.member(directory), SEARCH)
    }

    /// Checks that a new name may be made in a directory, for a name that does not exist.
    pub(crate) fn may_make(&self, caller: &Caller, directory: u32, name: &[u8]) -> Result<(), Errno> {
        self.may_search(caller, directory)?;
        if self.find(directory, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.may_write_names(caller, directory)
    }

    pub(crate) fn may_write_names(&self, caller: &Caller, directory: u32) -> Result<(), Errno> {
        may(caller, self.member(directory), WRITE | SEARCH)
    }

    /// Checks that a name may be removed. `is_directory`: as a removal of directories does it.
    pub(crate) fn may_remove(
        &self,
        caller: &Caller,
        directory: u32,
        victim: u32,
        is_directory: bool,
    ) -> Result<(), Errno> {
        self.may_write_names(caller, directory)?;
        let (above, victim) = (self.member(directory), self.member(victim));
        if above.mode & STICKY != 0 && caller.uid != above.uid && !owns(caller, victim) {
            return Err(Errno::PERM);
        }
        match (is_directory, victim.is_directory()) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            _ => Ok(()),
        }
    }

    /// Checks that a node may get a further name, as with the sysctl protected_hardlinks.
    pub(crate) fn may_link(&self, caller: &Caller, slot: u32) -> Result<(), Errno> {
        let member = self.member(slot);
        let both = SET_GROUP_ID | GROUP_EXECUTES;
        let is_privileged = member.mode & SET_USER_ID != 0 || member.mode & both == both;
        let is_safe = || member.kind == NodeKind::File && !is_privileged && may(caller, member, READ | WRITE).is_ok();
        if owns(caller, member) || is_safe() { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Returns mode, user and group of a new node, and its ACLs. A default ACL of the directory replaces the umask.
    pub(crate) fn dressed(&self, caller: &Caller, directory: u32, kind: NodeKind, new: NewMode) -> Dress {
        let (above, mut xattrs) = (self.member(directory), Xattrs::new());
        let mut mode = (new.mode & 0o7777) as u16;
        match above.acl(acl::DEFAULT).filter(|_| kind != NodeKind::Symlink) {
            None => mode &= !(new.umask & 0o777) as u16,
            Some(mut acl) => {
                if kind == NodeKind::Directory {
                    xattrs.insert(acl::DEFAULT.into(), acl.encode());
                }
                mode = acl.begin_with(mode);
                if !acl.is_mode() {
                    xattrs.insert(acl::ACCESS.into(), acl.encode());
                }
            }
        }
        (self.owned(caller, above, kind, mode), xattrs)
    }

    fn owned(&self, caller: &Caller, above: &Member, kind: NodeKind, mode: u16) -> (u16, u32, u32) {
        let inherits = above.mode & SET_GROUP_ID != 0;
        let gid = if inherits { above.gid } else { caller.gid };
        if kind == NodeKind::Directory {
            let inherited = if inherits { SET_GROUP_ID } else { 0 };
            return (mode & 0o1777 | inherited, caller.uid, gid);
        }
        let both = SET_GROUP_ID | GROUP_EXECUTES;
        let strips = inherits && mode & both == both && !is_in(caller, gid) && !has(caller, Capability::Fsetid);
        (if strips { mode & !SET_GROUP_ID } else { mode }, caller.uid, gid)
    }
}

/// Mode, user and group of a node, and its ACLs.
pub(crate) type Dress = ((u16, u32, u32), Xattrs);

/// Returns the time of a change: now, by the clock of file systems.
pub(crate) fn now() -> Moment {
    global_store::now_of_files().into()
}
