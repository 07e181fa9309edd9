//! Flags of files and directories (`chattr`, `lsattr`, project quotas) in the global store.

use std::io;
use std::os::fd::AsRawFd;

use global_store::calls::StoreCall;
use namespace::{Caller, Inode};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::impersonator::Judge;
use crate::{PosixNamespace, descriptor_name};

/// `FS_IOC_GETFLAGS` as the kernel sends it to 32-bit and 64-bit programs alike. The argument has 32 bits in both
/// cases.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`
const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`
const SET_EXTENDED: u32 = 0x401c_5820;

impl PosixNamespace {
    pub(crate) fn flags_below(
        &self,
        caller: &Caller,
        inode: &Inode,
        command: u32,
        argument: &mut [u8],
    ) -> io::Result<()> {
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
}
