//! Negotiation between kernel and file system at INIT.

use crate::abi::{InitCompatIn, InitOut, KERNEL_MAJOR, init_flags};
use crate::limits;

/// Features that the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelConfig {
    /// Protocol minor, at least [`limits::MINOR_MIN`].
    pub minor: u32,
    /// Offered features, as bits of [`crate::init_flags`].
    pub flags: u64,
    /// Bytes of read-ahead that the kernel would do.
    pub max_readahead: u32,
    /// Whether backing files can be registered. Only the first attempt shows whether the process may (`CAP_SYS_ADMIN`).
    pub can_passthrough: bool,
}

/// Features that the file system wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitReply {
    /// Wanted features. The session removes those that the kernel does not offer and adds its own. These are
    /// `INIT_EXT`, `MAX_PAGES`, `BIG_WRITES`, `SETXATTR_EXT`, `ABORT_ERROR`, and `PASSTHROUGH` with a stack depth.
    pub flags: u64,
    /// Maximum bytes of a write request, 4096 to [`limits::WRITE_MAX`]; other values are clamped.
    pub max_write: u32,
    /// 1 + the stacking depth of the file systems that hold backing files, at most 2. 0: no passthrough.
    pub max_stack_depth: u32,
    /// Maximum concurrent asynchronous requests (read-ahead, direct I/O, write-back). 0: the kernel's default of 12.
    pub max_background: u16,
    /// Granularity of time stamps, nanoseconds: 1 to 1e9.
    pub time_gran: u32,
}

impl Default for InitReply {
    /// Returns no optional features, the largest requests and a granularity of one nanosecond.
    fn default() -> InitReply {
        InitReply { flags: 0, max_write: limits::WRITE_MAX, max_stack_depth: 0, max_background: 0, time_gran: 1 }
    }
}

/// Part of the agreement that decoder and dispatcher need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Agreed {
    /// All agreed features.
    pub flags: u64,
    /// Maximum bytes of a write's data, for which a read buffer needs space.
    pub max_write: u32,
}

impl Agreed {
    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Decodes the kernel's offer from the fixed part of INIT and the bytes after it.
pub(crate) fn offer(fixed: &InitCompatIn, rest: &[u8]) -> KernelConfig {
    let mut flags = u64::from(fixed.flags);
    if flags & init_flags::INIT_EXT != 0
        && let Some(upper) = rest.first_chunk::<4>()
    {
        flags |= u64::from(u32::from_ne_bytes(*upper)) << 32;
    }
    KernelConfig {
        minor: fixed.minor,
        flags,
        max_readahead: fixed.max_readahead,
        can_passthrough: flags & init_flags::PASSTHROUGH != 0,
    }
}

/// Masks the wanted features by the offered ones. Returns the agreement and the reply.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(flags: u64) -> KernelConfig {
        KernelConfig { minor: 45, flags, max_readahead: 1 << 17, can_passthrough: flags & init_flags::PASSTHROUGH != 0 }
    }

    #[test]
    fn only_what_the_kernel_offers_is_agreed_and_the_upper_flags_travel_apart() {
        use init_flags::*;
        let wanted = InitReply { flags: POSIX_LOCKS | DIRECT_IO_ALLOW_MMAP, max_stack_depth: 1, ..Default::default() };
        let (agreed, out) = agree(&kernel(POSIX_LOCKS | INIT_EXT | PASSTHROUGH), &wanted);
        assert_eq!(agreed.flags, POSIX_LOCKS | INIT_EXT | PASSTHROUGH);
        assert_eq!(u64::from(out.flags), POSIX_LOCKS | INIT_EXT);
        assert_eq!(u64::from(out.flags2), PASSTHROUGH >> 32);
        assert_eq!((out.max_stack_depth, out.max_write, out.max_pages), (1, 1 << 20, 256));
    }

    #[test]
    fn passthrough_gives_way_to_the_write_back_cache() {
        use init_flags::*;
        let wanted = InitReply { flags: WRITEBACK_CACHE, max_stack_depth: 1, ..Default::default() };
        let (agreed, out) = agree(&kernel(WRITEBACK_CACHE | PASSTHROUGH), &wanted);
        assert!(!agreed.has(PASSTHROUGH) && out.max_stack_depth == 0);
    }

    #[test]
    fn the_upper_flags_are_read_only_when_they_are_announced() {
        let fixed = InitCompatIn { major: 7, minor: 45, max_readahead: 0, flags: 1 };
        assert_eq!(offer(&fixed, &[0xff; 48]).flags, 1);
        let fixed = InitCompatIn { flags: init_flags::INIT_EXT as u32, ..fixed };
        assert!(offer(&fixed, &(init_flags::PASSTHROUGH >> 32).to_ne_bytes()).can_passthrough);
        assert!(!offer(&fixed, &[]).can_passthrough);
    }
}
