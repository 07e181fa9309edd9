//! Clones of mounts: a private mount of a file system that is visible in no namespace.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes a clone by open_tree(2) private and changes its mount attributes.
///
/// Without the private propagation, later mounts over the original would appear over the clone too. Of `MOUNT_ATTR_*`,
/// `clear` is removed and `set` is added.
///
/// Errors: `ENOSYS` before Linux 5.12, `EPERM` without privilege.
pub fn make_own(clone: BorrowedFd<'_>, clear: u64, set: u64) -> io::Result<()> {
    // SAFETY: mount_attr is plain data, for which zero is valid.
    let mut attr: libc::mount_attr = unsafe { std::mem::zeroed() };
    (attr.attr_clr, attr.attr_set) = (clear, set);
    attr.propagation = libc::MS_PRIVATE;
    // SAFETY: the descriptor is open, the path is a C string, the structure is valid and its size is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            clone.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
