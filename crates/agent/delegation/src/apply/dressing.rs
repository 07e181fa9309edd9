//! Attributes of nodes in the store.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;

use namespace::{FileAttributes, Inode};
use types::{HasErrno, NewTime};

use super::Hands;
use super::acting::changing;
use crate::acl;
use crate::fault;
use crate::state::{Moment, NodeKind, NodeState};

const SET_IDS: u16 = 0o6000;

/// Whether an attribute of the store that a node lacks is to be removed: others belong to the machine.
fn is_ours(name: &[u8]) -> bool {
    let of_users = name.starts_with(b"user.") && !name.starts_with(b"user.forebay.");
    of_users || name == acl::ACCESS || name == acl::DEFAULT
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::ENODATA))
}

/// Knowledge about a file that is to get its attributes.
#[derive(Clone, Copy)]
pub(super) struct Dressing {
    /// Whether this apply has just made the file.
    pub is_new: bool,
    /// Whether the file may have attributes that nobody gave it, from its directory.
    pub has_acl: bool,
}

impl Dressing {
    pub(super) const KNOWN: Dressing = Dressing { is_new: false, has_acl: true };
}

impl Hands {
    /// Returns whether new files in a directory of the store get an ACL from it. The store is asked once.
    pub(super) fn hands_down_acl(&self, directory: &Inode) -> io::Result<bool> {
        if let Some(known) = self.acls.lock().get(directory.identity()) {
            return Ok(*known);
        }
        let listed = match self.store.namespace.xattr_names(directory) {
            Err(error) if is_unsupported(&error) => Vec::new(),
            listed => listed?,
        };
        let has_acl = listed.split(|byte| *byte == 0).any(|name| name == acl::DEFAULT);
        self.acls.lock().insert(directory.identity().clone(), has_acl);
        Ok(has_acl)
    }

    /// Gives a file of the store the node's owner, extended attributes, mode and times, as far as they differ.
    pub(super) fn dress(
        &self,
        inode: &Inode,
        state: &NodeState,
        below: &FileAttributes,
        how: Dressing,
    ) -> io::Result<()> {
        let (names, who) = (&self.store.namespace, &state.creator);
        let uid = (below.uid != state.uid).then_some(state.uid);
        let gid = (below.gid != state.gid).then_some(state.gid);
        let owner_differs = uid.is_some() || gid.is_some();
        if owner_differs {
            changing(who, &|caller| names.set_owner(caller, inode, uid, gid))?;
        }
        if state.kind != NodeKind::Symlink {
            let acl_differs = self.dress_xattrs(inode, state, how)?;
            let mode_differs = below.mode & 0o7777 != u32::from(state.mode);
            if mode_differs || acl_differs || (owner_differs && state.mode & SET_IDS != 0) {
                changing(who, &|caller| names.set_mode(caller, inode, state.mode.into()))?;
            }
        }
        let differs = |below, state| how.is_new || Moment::from(below) != state;
        if differs(below.mtime, state.mtime) || differs(below.atime, state.atime) {
            self.dress_times(inode, state)?;
        }
        fault::point("apply.dressed");
        Ok(())
    }

    /// Sets the times of a file of the store.
    pub(super) fn dress_times(&self, inode: &Inode, state: &NodeState) -> io::Result<()> {
        let times = [state.atime, state.mtime].map(|time| Some(NewTime::At(time.into())));
        changing(&state.creator, &|caller| self.store.namespace.set_times(caller, inode, times))
    }

    /// Returns whether an ACL was changed, which may have changed the mode.
    fn dress_xattrs(&self, inode: &Inode, state: &NodeState, how: Dressing) -> io::Result<bool> {
        if how.is_new && !how.has_acl && state.xattrs.is_empty() {
            return Ok(false);
        }
        let (names, who) = (&self.store.namespace, &state.creator);
        let listed = match names.xattr_names(inode) {
            Err(error) if is_unsupported(&error) => Vec::new(),
            listed => listed?,
        };
        let known: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        let mut acl_differs = false;
        for name in known.iter().filter(|name| is_ours(name) && !state.xattrs.contains_key(**name)) {
            let name = CString::new(*name)?;
            changing(who, &|caller| names.remove_xattr(caller, inode, &name))?;
            acl_differs |= name.as_bytes().starts_with(b"system.");
        }
        for (key, value) in &state.xattrs {
            let name = CString::new(&**key)?;
            if (!how.is_new || known.contains(&**key)) && names.xattr(inode, &name).is_ok_and(|below| *below == **value)
            {
                continue;
            }
            changing(who, &|caller| names.set_xattr(caller, inode, &name, value, 0))?;
            acl_differs |= key.starts_with(b"system.");
        }
        Ok(acl_differs)
    }
}
