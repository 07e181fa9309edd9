//! Extended attributes and ACLs, kept by the global store. Our own attributes are hidden.

use std::ffi::CStr;
use std::io;

use global_store::calls::StoreCall;
use rustix::fs::{self, Mode, XattrFlags};
use rustix::io::Errno;

use crate::agent::Agent;
use crate::caller::{Caller, Judge};
use crate::limits;
use crate::node::Node;
use crate::set_id::CAPABILITY;

/// Prefix of our own attributes, which programs can neither see nor set.
const HIDDEN: &[u8] = b"user.forebay.";

/// Attribute of the accelerated directory, visible through the mount. The value is a path of the directory with the
/// agent's control socket, for callers that do not find the socket where the mount says.
pub const CONTROL: &CStr = c"trusted.forebay.control";

const ACCESS_ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

fn is_acl(name: &CStr) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

impl Agent {
    /// Whether the global store supports POSIX ACLs.
    pub fn keeps_acls(&self) -> bool {
        !matches!(fs::getxattr(self.root().proc_path(), ACCESS_ACL, &mut [0u8; 0][..]), Err(Errno::OPNOTSUPP))
    }

    /// Returns the value of an attribute. `ENODATA` if there is none.
    pub fn xattr(&self, node: &Node, name: &CStr) -> io::Result<Vec<u8>> {
        if name.to_bytes().starts_with(HIDDEN) {
            return Err(Errno::NODATA.into());
        }
        // The kernel allows only the superuser to read this attribute.
        if name == CONTROL
            && node.identity() == self.root().identity()
            && let Some(place) = self.control.get()
        {
            return Ok(place.clone().into_bytes());
        }
        if name.to_bytes() == CAPABILITY.as_bytes() && node.take_plain() {
            return Err(Errno::NODATA.into());
        }
        self.below(StoreCall::Attributes, || value_of(node, name))
    }

    /// Returns all names, each ended by a NUL byte. Names in `trusted.` are returned only to the superuser.
    pub fn xattr_names(&self, caller: &Caller, node: &Node) -> io::Result<Vec<u8>> {
        let mut names = vec![0; limits::XATTR_LIST_BYTES_MAX];
        let len = self.below(StoreCall::Attributes, || fs::listxattr(node.proc_path(), &mut names[..]))?;
        names.truncate(len);
        let seen = names
            .split_inclusive(|&byte| byte == 0)
            .filter(|name| !name.starts_with(HIDDEN) && (caller.uid == 0 || !name.starts_with(b"trusted.")));
        Ok(seen.flatten().copied().collect())
    }

    /// Sets an attribute; `flags` are those of setxattr(2). `clear_set_gid`: an ACL set by a caller outside the file's
    /// group.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        node: &Node,
        name: &CStr,
        value: &[u8],
        flags: u32,
        clear_set_gid: bool,
    ) -> io::Result<()> {
        refuse_hidden(name)?;
        node.take_plain();
        if name.to_bytes() == CAPABILITY.as_bytes() {
            node.note_capable();
            self.settle_before_privileges(node);
        }
        let _steady = self.steady(node)?;
        // If a caller outside the file's group sets an ACL, the store clears set-group-id without an error.
        let judge = if is_acl(name) { Judge::Groups } else { Judge::Node(node, 2) };
        self.impersonator.act(caller, judge, || {
            let flags = XattrFlags::from_bits_retain(flags);
            let change = || fs::setxattr(node.proc_path(), name, value, flags);
            Ok(self.as_ours(node, || self.change_below(StoreCall::Change, change))?)
        })?;
        if clear_set_gid {
            let mode = Mode::from_raw_mode(self.stat(node)?.st_mode & 0o7777);
            if mode.contains(Mode::SGID) {
                let name = self.descriptor_name(node);
                let change = || fs::chmodat(&self.descriptors, name, mode - Mode::SGID, fs::AtFlags::empty());
                self.as_ours(node, || self.change_below(StoreCall::Change, change))?;
            }
        }
        self.tell_server(node)
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, caller: &Caller, node: &Node, name: &CStr) -> io::Result<()> {
        refuse_hidden(name)?;
        let _steady = self.steady(node)?;
        self.impersonator.act(caller, Judge::Node(node, 2), || {
            Ok(self
                .as_ours(node, || self.change_below(StoreCall::Change, || fs::removexattr(node.proc_path(), name)))?)
        })?;
        self.tell_server(node)
    }

    /// Tells a server of changes that only ctime shows, because it does not see changes in the global store.
    fn tell_server(&self, node: &Node) -> io::Result<()> {
        if self.is_shared() { self.changed(node) } else { Ok(()) }
    }
}

fn value_of(node: &Node, name: &CStr) -> io::Result<Vec<u8>> {
    // Most values are small; the rare long one costs a second call.
    let mut small = [0u8; 256];
    match fs::getxattr(node.proc_path(), name, &mut small[..]) {
        Ok(len) => Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {
            let mut value = vec![0; limits::XATTR_VALUE_BYTES_MAX];
            let len = fs::getxattr(node.proc_path(), name, &mut value[..])?;
            value.truncate(len);
            Ok(value)
        }
        // The kernel queries ACLs of every kind of file; a file without ACLs must not fail its lookup.
        Err(Errno::OPNOTSUPP) if is_acl(name) => Err(Errno::NODATA.into()),
        Err(error) => Err(error.into()),
    }
}

fn refuse_hidden(name: &CStr) -> io::Result<()> {
    if name.to_bytes().starts_with(HIDDEN) { Err(Errno::PERM.into()) } else { Ok(()) }
}
