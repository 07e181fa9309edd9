//! Attributes in the global store.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsRawFd;

use global_store::calls::StoreCall;
use namespace::{Attributes, Caller, FileAttributes, FileSystemSpace, Inode, Mode as OpenMode};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use types::NewTime;

use crate::impersonator::Judge;
use crate::{PosixNamespace, descriptor_name, descriptor_of};

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
        self.xattr_below(inode, name)
    }

    fn xattr_names(&self, inode: &Inode) -> io::Result<Vec<u8>> {
        self.xattr_names_below(inode)
    }

    fn set_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr, value: &[u8], flags: u32) -> io::Result<()> {
        self.set_xattr_below(caller, inode, (name, value), flags)
    }

    fn remove_xattr(&self, caller: &Caller, inode: &Inode, name: &CStr) -> io::Result<()> {
        self.remove_xattr_below(caller, inode, name)
    }

    fn flags(&self, caller: &Caller, inode: &Inode, command: u32, argument: &mut [u8]) -> io::Result<()> {
        self.flags_below(caller, inode, command, argument)
    }

    fn keeps_acls(&self) -> bool {
        self.keeps_acls_below()
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
