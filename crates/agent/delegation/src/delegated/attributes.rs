//! Attributes of the nodes of a delegated tree.

use std::ffi::CStr;
use std::io;

use namespace::{Attributes, Caller, FileAttributes, FileSystemSpace, Inode, Mode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use types::NewTime;

use super::DelegatedTree;
use crate::acl::{self, Acl};
use crate::limits;
use crate::rules::{
    self, Capability, GROUP_EXECUTES, READ, SEARCH, SET_GROUP_ID, SET_USER_ID, STICKY, WRITE, has, is_in, may, owns,
};
use crate::state::{Moment, NodeKind, NodeState};
use crate::tree::Member;

/// Capabilities of a program file, which a change of its owner takes away.
const FILE_CAPABILITIES: &[u8] = b"security.capability";

impl Attributes for DelegatedTree {
    fn attributes(&self, inode: &Inode) -> io::Result<FileAttributes> {
        let slot = self.shared.slot(inode)?;
        Ok(self.shared.inner.read().tree.attributes(slot, inode.ino()))
    }

    fn set_owner(&self, caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let slot = self.shared.slot(inode)?;
        let mut inner = self.shared.change();
        let member = inner.tree.member(slot);
        let stays = |uid: u32| caller.uid == member.uid && uid == member.uid;
        let joins = |gid: u32| caller.uid == member.uid && (gid == member.gid || is_in(caller, gid));
        let may_change = uid.is_none_or(stays) && gid.is_none_or(joins) || has(caller, Capability::Chown);
        if !may_change {
            return Err(Errno::PERM.into());
        }
        // Without permission of execution the bit once meant mandatory locks, and a member of the group may keep it.
        let kept = SET_GROUP_ID | GROUP_EXECUTES;
        let keeps = member.mode & kept != SET_GROUP_ID || is_in(caller, member.gid) || has(caller, Capability::Fsetid);
        inner.update(&self.shared, slot, |state| {
            (state.uid, state.gid) = (uid.unwrap_or(state.uid), gid.unwrap_or(state.gid));
            if state.kind != NodeKind::Directory {
                state.mode &= !SET_USER_ID;
                if state.mode & GROUP_EXECUTES != 0 || !keeps {
                    state.mode &= !SET_GROUP_ID;
                }
                state.xattrs.remove(FILE_CAPABILITIES);
            }
        })
    }

    fn set_mode(&self, caller: &Caller, inode: &Inode, mode: u32) -> io::Result<()> {
        let slot = self.shared.slot(inode)?;
        let mut inner = self.shared.change();
        let member = inner.tree.member(slot);
        if member.kind == NodeKind::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        if !owns(caller, member) {
            return Err(Errno::PERM.into());
        }
        let mode = (mode & 0o7777) as u16;
        let strips = mode & SET_GROUP_ID != 0 && !is_in(caller, member.gid) && !has(caller, Capability::Fsetid);
        let mode = if strips { mode & !SET_GROUP_ID } else { mode };
        let acl = member.acl(acl::ACCESS);
        inner.update(&self.shared, slot, |state| {
            state.mode = mode;
            if let Some(mut acl) = acl {
                acl.set_mode(mode);
                state.xattrs.insert(acl::ACCESS.into(), acl.encode());
            }
        })
    }

    fn set_times(&self, caller: &Caller, inode: &Inode, [atime, mtime]: [Option<NewTime>; 2]) -> io::Result<()> {
        let slot = self.shared.slot(inode)?;
        let mut inner = self.shared.change();
        let member = inner.tree.member(slot);
        match (atime, mtime) {
            (None, None) => return Ok(()),
            (Some(NewTime::Now), Some(NewTime::Now)) if !owns(caller, member) => may(caller, member, WRITE)?,
            _ if !owns(caller, member) => return Err(Errno::PERM.into()),
            _ => {}
        }
        let now = rules::now();
        let set = |time: NewTime| if let NewTime::At(at) = time { Moment::from(at) } else { now };
        inner.update(&self.shared, slot, |state| {
            (state.atime, state.mtime) = (atime.map_or(state.atime, set), mtime.map_or(state.mtime, set));
        })
    }

    fn check_open(&self, caller: &Caller, inode: &Inode, mode: Mode) -> io::Result<()> {
        let slot = self.shared.slot(inode)?;
        let (read, write) = (mode.read, mode.write || mode.truncate);
        let wanted = match (mode.execute && !write, read, write) {
            (true, ..) => SEARCH,
            (_, true, true) => READ | WRITE,
            (_, _, true) => WRITE,
            _ => READ,
        };
        if caller.uid == 0 && !write {
            return Ok(());
        }
        Ok(may(caller, self.shared.inner.read().tree.member(slot), wanted)?)
    }

    fn xattr(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>> {
        let (slot, inner) = (self.shared.slot(inode)?, self.shared.inner.read());
        let value = inner.tree.member(slot).xattrs().and_then(|xattrs| xattrs.get(name.to_bytes()));
        value.map(|value| value.to_vec()).ok_or_else(|| Errno::NODATA.into())
    }

    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        let (slot, inner) = (self.shared.slot(inode)?, self.shared.inner.read());
        let names = inner.tree.member(slot).xattrs().into_iter().flat_map(|xattrs| xattrs.keys());
        Ok(names.flat_map(|name| name.iter().chain(&[0])).copied().collect())
    }

    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        let (slot, name) = (self.shared.slot(inode)?, name.to_bytes());
        let flags = XattrFlags::from_bits_retain(flags);
        match () {
            _ if name.is_empty() || name.len() > limits::XATTR_NAME_BYTES_MAX => return Err(Errno::RANGE.into()),
            _ if value.len() > limits::XATTR_VALUE_BYTES_MAX => return Err(Errno::TOOBIG.into()),
            _ if is_acl(name) => return self.set_acl(caller, slot, name, Acl::parse(value)?),
            _ => {}
        }
        let mut inner = self.shared.change();
        let member = inner.tree.member(slot);
        may_change_xattr(caller, member, name)?;
        let (mut bytes, mut exists) = (name.len() + value.len(), false);
        for (other, value) in member.xattrs().into_iter().flatten() {
            exists |= **other == *name;
            bytes += if **other == *name { 0 } else { other.len() + value.len() };
        }
        match () {
            _ if flags.contains(XattrFlags::CREATE) && exists => return Err(Errno::EXIST.into()),
            _ if flags.contains(XattrFlags::REPLACE) && !exists => return Err(Errno::NODATA.into()),
            _ if bytes > limits::XATTRS_BYTES_MAX => return Err(Errno::NOSPC.into()),
            _ => {}
        }
        inner.update(&self.shared, slot, |state: &mut NodeState| {
            state.xattrs.insert(name.into(), value.into());
        })
    }

    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        let (slot, name) = (self.shared.slot(inode)?, name.to_bytes());
        if is_acl(name) {
            return self.set_acl(caller, slot, name, None);
        }
        let mut inner = self.shared.change();
        let member = inner.tree.member(slot);
        may_change_xattr(caller, member, name)?;
        if !member.xattrs().is_some_and(|xattrs| xattrs.contains_key(name)) {
            return Err(Errno::NODATA.into());
        }
        inner.update(&self.shared, slot, |state| drop(state.xattrs.remove(name)))
    }

    fn flags(&self, _: &Caller, _: &Inode, _: u32, _: &mut [u8]) -> io::Result<()> {
        Err(Errno::NOTTY.into())
    }

    fn keeps_acls(&self) -> bool {
        true
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        self.shared.below.space()
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS || name == acl::DEFAULT
}

impl DelegatedTree {
    /// Sets or removes an ACL. One that says no more than a mode becomes the mode.
    fn set_acl(&self, caller: &Caller, slot: u32, name: &[u8], acl: Option<Acl>) -> io::Result<()> {
        let mut inner = self.shared.change();
        let member = inner.tree.member(slot);
        match member.kind {
            NodeKind::Symlink => return Err(Errno::OPNOTSUPP.into()),
            NodeKind::Directory => {}
            _ if name == acl::ACCESS => {}
            _ if acl.is_some() => return Err(Errno::ACCESS.into()),
            _ => return Ok(()),
        }
        if !owns(caller, member) {
            return Err(Errno::PERM.into());
        }
        if acl.as_ref().is_some_and(|acl| !acl.is_valid()) {
            return Err(Errno::INVAL.into());
        }
        let mut mode = member.mode;
        if let Some(acl) = acl.as_ref().filter(|_| name == acl::ACCESS) {
            let keeps = is_in(caller, member.gid) || has(caller, Capability::Fsetid);
            mode = mode & !0o777 & if keeps { !0 } else { !SET_GROUP_ID } | acl.mode();
        }
        let acl = acl.filter(|acl| name == acl::DEFAULT || !acl.is_mode());
        inner.update(&self.shared, slot, |state| {
            state.mode = mode;
            match acl {
                Some(acl) => drop(state.xattrs.insert(name.into(), acl.encode())),
                None => drop(state.xattrs.remove(name)),
            }
        })
    }
}

/// Checks that an attribute may be changed. Only files and directories have attributes of users.
fn may_change_xattr(caller: &Caller, member: &Member, name: &[u8]) -> Result<(), Errno> {
    let begins = |prefix: &[u8]| name.len() > prefix.len() && name.starts_with(prefix);
    if !begins(b"user.") {
        return match begins(b"trusted.") || begins(b"security.") {
            false => Err(Errno::OPNOTSUPP),
            true if caller.uid == 0 => Ok(()),
            true => Err(Errno::PERM),
        };
    }
    if !member.is_directory() && member.kind != NodeKind::File {
        return Err(Errno::PERM);
    }
    if member.is_directory() && member.mode & STICKY != 0 && !owns(caller, member) {
        return Err(Errno::PERM);
    }
    may(caller, member, WRITE)
}
