//! Attributes in the global store.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsRawFd;

use global_store::calls::StoreCall;
use namespace::{Attributes, Caller, FileAttributes, FileSystemSpace, Inode, Mode as OpenMode};
use rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use types::NewTime;

use crate::impersonator::Judge;
use crate::{PosixNamespace, descriptor_name, descriptor_of, limits, proc_path};

const ACCESS_ACL: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL: &CStr = c"system.posix_acl_default";

/// Bytes tried first for a value. Most are smaller; the rare long one costs a second call.
const SMALL_BYTES: usize = 256;

fn is_acl(name: &CStr) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

/// `FS_IOC_GETFLAGS` as the kernel sends it to 32-bit and 64-bit programs alike. The argument has 32 bits in both
/// cases.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`
const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`
const SET_EXTENDED: u32 = 0x401c_5820;

impl Attributes for PosixNamespace {
    fn attributes(&self, inode: &Inode) -> io::Result<FileAttributes> {
        let fd = descriptor_of(inode)?;
        Ok(FileAttributes::of_stat(&self.below(StoreCall::Attributes, || fs::fstat(fd))?))
    }

    fn set_owner(&self, caller: &Caller, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let fd = descriptor_of(inode)?;
        // The store decides by the caller's groups, so the groups are read first.
        let judge = if gid.is_some() { Judge::Groups } else { Judge::Inode(inode, 0) };
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        let change = || fs::chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH);
        self.impersonator.act(caller, judge, || self.change(StoreCall::Change, change))
    }

    fn set_mode(&self, caller: &Caller, inode: &Inode, mode: u32) -> io::Result<()> {
        let (name, mode) = (descriptor_name(inode)?, Mode::from_raw_mode(mode & 0o7777));
        // For a caller outside the file's group, the store clears set-group-id without an error. So the groups are read
        // first.
        let judge = if mode.contains(Mode::SGID) { Judge::Groups } else { Judge::Inode(inode, 0) };
        let change = || fs::chmodat(&self.descriptors, &name, mode, AtFlags::empty());
        self.impersonator.act(caller, judge, || self.change(StoreCall::Change, change))
    }

    fn set_times(
        &self,
        caller: &Caller,
        inode: &Inode,
        [last_access, last_modification]: [Option<NewTime>; 2],
    ) -> io::Result<()> {
        let name = descriptor_name(inode)?;
        let times = Timestamps { last_access: timespec(last_access), last_modification: timespec(last_modification) };
        let change = || fs::utimensat(&self.descriptors, &name, &times, AtFlags::empty());
        self.impersonator.act(caller, Judge::Inode(inode, 2), || self.change(StoreCall::Change, change))
    }

    fn check_open(&self, caller: &Caller, inode: &Inode, mode: OpenMode) -> io::Result<()> {
        if mode.write || mode.truncate {
            return self.open_to_check(caller, inode, mode);
        }
        if caller.uid == 0 {
            return Ok(());
        }
        let access = if mode.execute { libc::X_OK } else { libc::R_OK };
        let (name, descriptors) = (CString::new(descriptor_name(inode)?)?, self.descriptors.as_raw_fd());
        // The raw call is used because wrappers check the real user where they take it to be the effective one.
        // SAFETY: an open descriptor and a C string that lives through the call.
        let ask =
            || unsafe { libc::syscall(libc::SYS_faccessat2, descriptors, name.as_ptr(), access, libc::AT_EACCESS) };
        self.impersonator.act(caller, Judge::Inode(inode, access as u32), || {
            self.below(StoreCall::Attributes, || if ask() == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
        })
    }

    fn xattr(&self, inode: &Inode, name: &CStr) -> io::Result<Vec<u8>> {
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

    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        let (path, mut names) = (proc_path(inode)?, vec![0; limits::XATTR_LIST_BYTES_MAX]);
        let len = self.below(StoreCall::Attributes, || fs::listxattr(&path, &mut names[..]))?;
        names.truncate(len);
        Ok(names)
    }

    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        let (path, flags) = (proc_path(inode)?, XattrFlags::from_bits_retain(flags));
        // If a caller outside the file's group sets an ACL, the store clears set-group-id without an error.
        let judge = if is_acl(name) { Judge::Groups } else { Judge::Inode(inode, 2) };
        let change = || fs::setxattr(&path, name, value, flags);
        self.impersonator.act(caller, judge, || self.change(StoreCall::Change, change))
    }

    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        let path = proc_path(inode)?;
        let change = || fs::removexattr(&path, name);
        self.impersonator.act(caller, Judge::Inode(inode, 2), || self.change(StoreCall::Change, change))
    }

    fn flags(&self, caller: &Caller, inode: &Inode, command: u32, argument: &mut [u8]) -> io::Result<()> {
        let (bytes, sets) = match command {
            GET_FLAGS => (4, false),
            SET_FLAGS => (4, true),
            GET_EXTENDED => (28, false),
            SET_EXTENDED => (28, true),
            _ => return Err(Errno::NOTTY.into()),
        };
        if argument.len() < bytes {
            return Err(Errno::INVAL.into());
        }
        let kind = if inode.kind() == FileType::Directory { OFlags::DIRECTORY } else { OFlags::NONBLOCK };
        let (name, flags) = (descriptor_name(inode)?, OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | kind);
        let file = self.below(StoreCall::Open, || fs::openat(&self.descriptors, name, flags, Mode::empty()))?;
        let mut ask = || {
            // SAFETY: the descriptor is open, and the command reads or writes no more than `bytes` of the argument.
            let done = unsafe { libc::ioctl(file.as_raw_fd(), command as _, argument.as_mut_ptr()) };
            if done == 0 { Ok(()) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
        };
        if sets {
            return self.impersonator.act(caller, Judge::Inode(inode, 0), || self.change(StoreCall::Change, &mut ask));
        }
        Ok(self.below(StoreCall::Attributes, ask)?)
    }

    fn keeps_acls(&self) -> bool {
        let root = self.store.root();
        let path = format!("/proc/self/fd/{}", root.as_raw_fd());
        !matches!(fs::getxattr(path, ACCESS_ACL, &mut [0u8; 0][..]), Err(Errno::OPNOTSUPP))
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        let stat = self.below(StoreCall::Attributes, || fs::fstatvfs(self.store.root()))?;
        Ok(FileSystemSpace {
            blocks: stat.f_blocks,
            bfree: stat.f_bfree,
            bavail: stat.f_bavail,
            files: stat.f_files,
            ffree: stat.f_ffree,
            bsize: stat.f_bsize,
            namelen: stat.f_namemax,
            frsize: stat.f_frsize,
        })
    }
}

impl PosixNamespace {
    /// Opens the store's own file in the requested mode as the caller, and closes it. So all that the store would refuse
    /// later is refused here: immutable, append-only and read-only files, and owners it does not trust. Does not
    /// truncate. An append-only file must not be truncated either, so a check for truncation opens without `O_APPEND`.
    fn open_to_check(&self, caller: &Caller, inode: &Inode, mode: OpenMode) -> io::Result<()> {
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if mode.read { OFlags::RDWR } else { OFlags::WRONLY };
        if mode.append && !mode.truncate {
            flags |= OFlags::APPEND;
        }
        let name = descriptor_name(inode)?;
        let wanted = if mode.read { 6 } else { 2 };
        self.impersonator.act(caller, Judge::Inode(inode, wanted), || {
            self.below(StoreCall::Open, || Ok(fs::openat(&self.descriptors, &name, flags, Mode::empty()).map(drop)?))
        })
    }
}

fn timespec(time: Option<NewTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(NewTime::At(at)) => Timespec { tv_sec: at.seconds, tv_nsec: at.nanos.into() },
    }
}
