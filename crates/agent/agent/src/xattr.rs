//! Extended attributes and ACLs, kept by the global store. Our own attributes are hidden.

use std::ffi::CStr;
use std::io;

use namespace::Caller;
use rustix::io::Errno;

use crate::agent::Agent;
use crate::node::Node;
use crate::set_id::{CAPABILITY, SET_GROUP_ID};

/// Prefix of our own attributes, which programs can neither see nor set.
const HIDDEN: &[u8] = b"user.forebay.";

/// Attribute of the accelerated directory, visible through the mount. The value is a path of the directory with the
/// agent's control socket, for callers that do not find the socket where the mount says.
pub const CONTROL: &CStr = c"trusted.forebay.control";

impl Agent {
    /// Whether the global store supports POSIX ACLs.
    pub fn keeps_acls(&self) -> bool {
        self.names.keeps_acls()
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
        if name == CAPABILITY && node.take_plain() {
            return Err(Errno::NODATA.into());
        }
        self.names.xattr(node.inode(), name)
    }

    /// Returns all names, each ended by a NUL byte. Names in `trusted.` are returned only to the superuser.
    pub fn xattr_names(&self, caller: &Caller, node: &Node) -> io::Result<Vec<u8>> {
        let names = self.names.xattr_names(node.inode())?;
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
        if name == CAPABILITY {
            node.note_capable();
            self.settle_before_privileges(node);
        }
        self.as_ours(node, || self.names.set_xattr(caller, node.inode(), name, value, flags))?;
        if clear_set_gid {
            let mode = self.stat(node)?.mode & 0o7777;
            if mode & SET_GROUP_ID != 0 {
                let clear = || self.names.set_mode(&Caller::own(), node.inode(), mode & !SET_GROUP_ID);
                self.as_ours(node, clear)?;
            }
        }
        self.tell_server(node)
    }

    /// Removes an attribute.
    pub fn remove_xattr(&self, caller: &Caller, node: &Node, name: &CStr) -> io::Result<()> {
        refuse_hidden(name)?;
        self.as_ours(node, || self.names.remove_xattr(caller, node.inode(), name))?;
        self.tell_server(node)
    }

    /// Tells a server of changes that only ctime shows, because it does not see changes in the global store.
    fn tell_server(&self, node: &Node) -> io::Result<()> {
        if self.is_shared() { self.changed(node) } else { Ok(()) }
    }
}

fn refuse_hidden(name: &CStr) -> io::Result<()> {
    if name.to_bytes().starts_with(HIDDEN) { Err(Errno::PERM.into()) } else { Ok(()) }
}
