//! Opening `/dev/fuse`, mounting it over a directory, and unmounting.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Source that `findmnt` shows.
    pub source: String,
    /// Subtype: the type is shown as `fuse.` and this, or as `fuse` if empty.
    pub subtype: String,
    /// Whether users other than the mounter may enter.
    pub allow_other: bool,
    /// Whether the kernel checks modes and ACLs itself.
    pub default_permissions: bool,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Further mount flags, usually those of the file system below: [`flags_of`].
    pub flags: MountFlags,
    /// Maximum bytes of one read request, at most [`crate::limits::READ_MAX`]; 0 means that maximum.
    pub max_read: u32,
}

/// Opens `/dev/fuse`. Errors: `ENOENT` or `ENODEV` if the kernel has no FUSE.
pub fn device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Mounts over `dir`, which then shows the file system that the session of `device` serves. Returns before INIT is
/// answered. Errors: those of mount(2), such as `EPERM` without `CAP_SYS_ADMIN`.
pub fn mount(dir: &Path, device: BorrowedFd<'_>, options: &MountOptions) -> io::Result<()> {
    let mut kind = String::from("fuse");
    if !options.subtype.is_empty() {
        kind = format!("fuse.{}", options.subtype);
    }
    let data = CString::new(data(device, options))?;
    let mut flags = options.flags;
    flags.set(MountFlags::RDONLY, options.read_only);
    rustix::mount::mount(options.source.as_str(), dir, kind.as_str(), flags, data.as_c_str())?;
    Ok(())
}

fn data(device: BorrowedFd<'_>, options: &MountOptions) -> String {
    let read_max = crate::limits::READ_MAX as u32;
    let max_read = if options.max_read == 0 { read_max } else { options.max_read.min(read_max) };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid},max_read={max_read}", device.as_raw_fd());
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    data
}

/// Unmounts `dir`. With `lazy`, takes the mount out of the tree at once and ends it with its last user. Errors: `EBUSY`
/// if the mount is in use and `lazy` is false.
pub fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW)?)
}

/// Returns the mount flags of the file system that holds `dir` (`nosuid`, `nodev`, `noexec`, `noatime`, ...), so that a
/// mount over it behaves alike. Returns also whether that file system is read-only ([`MountOptions::read_only`]).
pub fn flags_of(dir: BorrowedFd<'_>) -> io::Result<(MountFlags, bool)> {
    use rustix::fs::StatVfsMountFlags as Below;
    let below = rustix::fs::fstatvfs(dir)?.f_flag;
    let mut flags = MountFlags::empty();
    for (one, as_flag) in [
        (Below::NOSUID, MountFlags::NOSUID),
        (Below::NODEV, MountFlags::NODEV),
        (Below::NOEXEC, MountFlags::NOEXEC),
        (Below::NOATIME, MountFlags::NOATIME),
        (Below::NODIRATIME, MountFlags::NODIRATIME),
        (Below::RELATIME, MountFlags::RELATIME),
        (Below::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
    ] {
        flags.set(as_flag, below.contains(one));
    }
    Ok((flags, below.contains(Below::RDONLY)))
}

/// Returns whether a file system is mounted exactly at `dir`, as this mount namespace sees it.
pub fn is_mounted(dir: &Path) -> io::Result<bool> {
    // Without automounting and without looking inside: a hanging server must not hang us.
    let stat = rustix::fs::statx(
        rustix::fs::CWD,
        dir.as_os_str().as_bytes(),
        rustix::fs::AtFlags::NO_AUTOMOUNT,
        rustix::fs::StatxFlags::MNT_ID,
    )?;
    Ok(stat.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT))
}
