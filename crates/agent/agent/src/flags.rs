//! Flags of files and directories (`chattr`, `lsattr`, project quotas), kept by the global store.

use std::io;

use namespace::Caller;

use crate::agent::Agent;
use crate::node::Node;

/// `FS_IOC_GETFLAGS` as the kernel sends it to 32-bit and 64-bit programs alike. The argument has 32 bits in both
/// cases.
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`
const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`
const SET_EXTENDED: u32 = 0x401c_5820;

/// Bytes of `struct fsxattr`, the longer of the two arguments.
const ARGUMENT_BYTES_MAX: usize = 28;

/// `FS_IMMUTABLE_FL | FS_APPEND_FL`, and both as `FS_XFLAG_*`.
const NO_WRITES: [(u32, u32); 2] = [(SET_FLAGS, 0x30), (SET_EXTENDED, 0x18)];

/// Returns the argument's size in bytes of an ioctl that reads or sets flags; `None` for another ioctl.
fn argument_bytes(command: u32) -> Option<usize> {
    match command {
        GET_FLAGS | SET_FLAGS => Some(4),
        GET_EXTENDED | SET_EXTENDED => Some(ARGUMENT_BYTES_MAX),
        _ => None,
    }
}

/// Whether an ioctl reads or sets flags.
pub fn is_of_flags(command: u32) -> bool {
    argument_bytes(command).is_some()
}

impl Agent {
    /// Runs such an ioctl on the store's own file or directory, as the caller. Returns the output. A file that becomes
    /// immutable or append-only is staged out first. Errors: `ENOTTY` for another ioctl or one that the store does not
    /// know; those of the stage-out.
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
        self.names.flags(caller, node.inode(), command, &mut argument[..bytes])?;
        Ok(if sets { Vec::new() } else { argument[..bytes].to_vec() })
    }

    /// Stages out the file if it is dirty, and waits.
    fn settle_below(&self, node: &Node) -> io::Result<()> {
        if !node.is_regular() || !self.data.state(node.identity()).dirty {
            return Ok(());
        }
        self.apply_window(node)?;
        self.data
            .drain_file(node.identity(), &|| false)
            .map_err(|stuck| io::Error::from_raw_os_error(if stuck.errno > 0 { stuck.errno } else { libc::EIO }))
    }
}
