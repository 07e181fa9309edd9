//! What kernel and file system agree on before anything else.

use crate::abi::{InitCompatIn, InitOut, KERNEL_MAJOR, init_flags};
use crate::limits;

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelConfig {
    /// Protocol minor, at least [`limits::MINOR_MIN`].
    pub minor: u32,
    /// Offered features, [`crate::init_flags`].
    pub flags: u64,
    /// Bytes of read-ahead that the kernel would do.
    pub max_readahead: u32,
    /// Whether backing files can be registered; that the process may (`CAP_SYS_ADMIN`) shows at the first try.
    pub can_passthrough: bool,
}

/// What the file system wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitReply {
    /// Wanted features; the session leaves out what the kernel does not offer and adds its own
    /// (`INIT_EXT`, `MAX_PAGES`, `BIG_WRITES`, `SETXATTR_EXT`, `ABORT_ERROR`; `PASSTHROUGH` with a stack depth).
    pub flags: u64,
    /// Most bytes of a write request, 4096 to [`limits::WRITE_MAX`]; larger values are cut.
    pub max_write: u32,
    /// 1 + the stacking depth of the file systems that hold backing files, at most 2; 0: no passthrough.
    pub max_stack_depth: u32,
    /// Most asynchronous requests (read-ahead, direct I/O, write-back) under way; 0: the kernel's default of 12.
    pub max_background: u16,
    /// Granularity of time stamps, nanoseconds: 1 to 1e9.
    pub time_gran: u32,
}

/// What the decoder and dispatcher must remember of the agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Agreed {
    /// All agreed features.
    pub flags: u64,
    /// Bytes that a read buffer needs.
    pub max_write: u32,
}

impl Agreed {
    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Reads the body of INIT; `None` when it is too short.
pub(crate) fn offer(fixed: &InitCompatIn, rest: &[u8]) -> KernelConfig {
    let mut flags = u64::from(fixed.flags);
    if flags & init_flags::INIT_EXT != 0 && let Some(upper) = rest.first_chunk::<4>() {
        flags |= u64::from(u32::from_ne_bytes(*upper)) << 32;
    }
    KernelConfig {
        minor: fixed.minor,
        flags,
        max_readahead: fixed.max_readahead,
        can_passthrough: flags & init_flags::PASSTHROUGH != 0,
    }
}

/// Masks what is wanted by what is offered.
pub(crate) fn agree(kernel: &KernelConfig, wanted: &InitReply) -> (Agreed, InitOut) {
    use init_flags::*;
    let mut flags = wanted.flags & !PASSTHROUGH;
    flags |= INIT_EXT | MAX_PAGES | BIG_WRITES | SETXATTR_EXT | ABORT_ERROR;
    // The kernel refuses passthrough together with its write-back cache.
    let stack_depth = if flags & WRITEBACK_CACHE == 0 { wanted.max_stack_depth.min(2) } else { 0 };
    if stack_depth > 0 {
        flags |= PASSTHROUGH;
    }
    flags &= kernel.flags;
    let max_write = wanted.max_write.clamp(4096, limits::WRITE_MAX);
    let out = InitOut {
        major: KERNEL_MAJOR,
        minor: limits::MINOR,
        max_readahead: kernel.max_readahead,
        flags: flags as u32,
        max_background: wanted.max_background,
        congestion_threshold: (u32::from(wanted.max_background) * 3 / 4) as u16,
        max_write,
        time_gran: wanted.time_gran.clamp(1, 1_000_000_000),
        max_pages: limits::PAGES_MAX,
        flags2: (flags >> 32) as u32,
        max_stack_depth: if flags & PASSTHROUGH != 0 { stack_depth } else { 0 },
        ..InitOut::default()
    };
    (Agreed { flags, max_write }, out)
}
