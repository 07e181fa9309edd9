//! Extended attributes and ACLs in the global store.

use std::ffi::CStr;
use std::io;

use global_store::calls::StoreCall;
use namespace::{Caller, Inode};
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

use crate::impersonator::Judge;
use crate::{PosixNamespace, limits, proc_path};

const ACCESS_ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// Bytes tried first for a value. Most are smaller; the rare long one costs a second call.
const SMALL_BYTES: usize = 256;

fn is_acl(name: &CStr) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

impl PosixNamespace {
    pub(crate) fn keeps_acls_below(&self) -> bool {
        let root = self.store.root();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&root));
        !matches!(fs::getxattr(path, ACCESS_ACL, &mut [0u8; 0][..]), Err(Errno::OPNOTSUPP))
    }

    pub(crate) fn xattr_below(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>> {
        let path = proc_path(inode)?;
        self.below(StoreCall::Attributes, || {
            let mut small = [0u8; SMALL_BYTES];
            match fs::getxattr(&path, name, &mut small[..]) {
                Ok(len) => Ok(small[..len].to_vec()),
                Err(Errno::RANGE) => {
                    let mut value = vec![0; limits::XATTR_VALUE_BYTES_MAX];
                    let len = fs::getxattr(&path, name, &mut value[..])?;
                    value.truncate(len);
                    Ok(value)
                }
                // The kernel queries ACLs of every kind of file; a file without ACLs must not fail its lookup.
                Err(Errno::OPNOTSUPP) if is_acl(name) => Err(Errno::NODATA.into()),
                Err(error) => Err(error.into()),
            }
        })
    }

    pub(crate) fn xattr_names_below(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        let (path, mut names) = (proc_path(inode)?, vec![0; limits::XATTR_LIST_BYTES_MAX]);
        let len = self.below(StoreCall::Attributes, || fs::listxattr(&path, &mut names[..]))?;
        names.truncate(len);
        Ok(names)
    }

    pub(crate) fn set_xattr_below(
        &self,
        caller: &Caller,
        inode: &Inode,
        (name, value): (&CStr, &[u8]),
        flags: u32,
    ) -> io::Result<()> {
        let (path, flags) = (proc_path(inode)?, XattrFlags::from_bits_retain(flags));
        // If a caller outside the file's group sets an ACL, the store clears set-group-id without an error.
        let judge = if is_acl(name) { Judge::Groups } else { Judge::Inode(inode, 2) };
        let change = || fs::setxattr(&path, name, value, flags);
        self.impersonator.act(caller, judge, || self.change(StoreCall::Change, change))
    }

    pub(crate) fn remove_xattr_below(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        let path = proc_path(inode)?;
        let change = || fs::removexattr(&path, name);
        self.impersonator.act(caller, Judge::Inode(inode, 2), || self.change(StoreCall::Change, change))
    }
}
