//! From the processor's caches to persistent memory.

/// The instruction that writes a cache line back, chosen by what the processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// Keeps the line in the cache.
    Clwb,
    /// Drops the line; unordered.
    ClflushOpt,
    /// Drops the line; ordered and slow. Every x86-64 has it.
    Clflush,
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl WriteBack {
    /// The best of this processor; `None` where we know none, and persistent memory is then not offered.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<WriteBack> {
        let leaf = std::arch::x86_64::__cpuid(0).eax;
        let ebx = if leaf >= 7 { std::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
        Some(match ebx {
            bits if bits & (1 << 24) != 0 => WriteBack::Clwb,
            bits if bits & (1 << 23) != 0 => WriteBack::ClflushOpt,
            _ => WriteBack::Clflush,
        })
    }

    /// The best of this processor; `None` where we know none, and persistent memory is then not offered.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<WriteBack> {
        None
    }

    /// Starts writing back the lines of `len` bytes at `start`, which must be mapped.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn lines(self, start: *const u8, len: usize) {
        let mut line = start as usize & !(LINE - 1);
        let end = start as usize + len;
        while line < end {
            // SAFETY: the caller's bytes are mapped, so is the line around them; the instructions change no byte, and
            // `detect` found the one that is used.
            unsafe {
                match self {
                    WriteBack::Clwb => std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    WriteBack::ClflushOpt => {
                        std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    WriteBack::Clflush => std::arch::x86_64::_mm_clflush(line as *const u8),
                }
            }
            line += LINE;
        }
    }

    /// Waits for the lines that were started.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn fence(self) {
        // SAFETY: every x86-64 has it; it orders stores and changes none.
        unsafe { std::arch::x86_64::_mm_sfence() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn lines(self, _start: *const u8, _len: usize) {
        let _ = LINE;
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn fence(self) {}
}
