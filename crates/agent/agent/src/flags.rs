//! Flags of files and directories (`chattr`, `lsattr`, the project of a quota): the global store's.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use global_store::calls::StoreCall;
use rustix::fs::{self, Mode, OFlags};

use crate::agent::Agent;
use crate::caller::{Caller, Judge};
use crate::node::Node;

/// `FS_IOC_GETFLAGS`, as the kernel asks whichever width a program has. Its argument is a word of 32 bits all the same.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`
const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`
const SET_EXTENDED: u32 = 0x401c_5820;

/// Bytes of `struct fsxattr`, the longer of the two arguments.
const ARGUMENT_BYTES_MAX: usize = 28;

/// `FS_IMMUTABLE_FL | FS_APPEND_FL`, and the same two as `FS_XFLAG_*`.
const NO_WRITES: [(u32, u32); 2] = [(SET_FLAGS, 0x30), (SET_EXTENDED, 0x18)];

/// Bytes of the argument of an ioctl that asks for flags or sets them; `None`: another ioctl.
fn argument_bytes(command: u32) -> Option<usize> {
    match command {
        GET_FLAGS | SET_FLAGS => Some(4),
        GET_EXTENDED | SET_EXTENDED => Some(ARGUMENT_BYTES_MAX),
        _ => None,
    }
}

/// Whether an ioctl asks for flags or sets them.
pub fn is_of_flags(command: u32) -> bool {
    argument_bytes(command).is_some()
}

impl Agent {
    /// Such an ioctl on the store's own file or directory, as the caller; what it gives back. `ENOTTY`: another one, or none of those that
    /// the store knows. A file that is to take no writes any more is staged out first: the error of that if it cannot be.
    pub fn flags(&self, caller: &Caller, node: &Node, command: u32, input: &[u8]) -> io::Result<Vec<u8>> {
        let errno = |errno| Err(io::Error::from_raw_os_error(errno));
        let Some(bytes) = argument_bytes(command) else { return errno(libc::ENOTTY) };
        let sets = matches!(command, SET_FLAGS | SET_EXTENDED);
        let mut argument = [0u8; ARGUMENT_BYTES_MAX];
        if sets {
            let Some(input) = input.get(..bytes) else { return errno(libc::EINVAL) };
            argument[..bytes].copy_from_slice(input);
            let flags = u32::from_ne_bytes([argument[0], argument[1], argument[2], argument[3]]);
            if NO_WRITES.iter().any(|(of, bits)| *of == command && flags & bits != 0) {
                self.settle_below(node)?;
            }
        }
        let file = self.open_for_flags(node)?;
        let mut ask = || {
            // SAFETY: the descriptor is open, and these commands read or write no more than the longest argument.
            let done = unsafe { libc::ioctl(file.as_raw_fd(), command as _, argument.as_mut_ptr()) };
            if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        if sets {
            let _steady = self.steady(node)?;
            self.impersonator.act(caller, Judge::Node(node, 0), || self.change_below(StoreCall::Change, &mut ask))?;
            return Ok(Vec::new());
        }
        self.below(StoreCall::Attributes, ask)?;
        Ok(argument[..bytes].to_vec())
    }

    fn open_for_flags(&self, node: &Node) -> io::Result<OwnedFd> {
        let kind = if node.is_directory() { OFlags::DIRECTORY } else { OFlags::NONBLOCK };
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | kind;
        let name = self.descriptor_name(node);
        Ok(self.below(StoreCall::Open, || fs::openat(&self.descriptors, name, flags, Mode::empty()))?)
    }

    /// What is dirty of a file is in the global store when this returns.
    fn settle_below(&self, node: &Node) -> io::Result<()> {
        if !node.is_regular() || !self.cache.is_dirty(node.identity()) {
            return Ok(());
        }
        self.settle(node)?;
        self.cache
            .drain_file(node.identity(), &|| false)
            .map_err(|stuck| io::Error::from_raw_os_error(if stuck.errno > 0 { stuck.errno } else { libc::EIO }))
    }
}
