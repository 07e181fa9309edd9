//! Write-back from the processor's caches to persistent memory.
//!
//! A line that was written back is on the medium after the next fence. The power supply of such machines lasts for the
//! queues of the memory controller (on x86, ADR; on AArch64, the point of persistence).

/// Instruction that writes a cache line back, chosen by the processor's features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// x86-64: keeps the line in the cache.
    Clwb,
    /// x86-64: drops the line; unordered.
    ClflushOpt,
    /// x86-64: drops the line; ordered and slow. All processors have it.
    Clflush,
    /// AArch64: cleans the line to the point of persistence.
    DcCvap,
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    use super::WriteBack;

    pub fn detect() -> Option<WriteBack> {
        let leaf = std::arch::x86_64::__cpuid(0).eax;
        let ebx = if leaf >= 7 { std::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
        Some(match ebx {
            bits if bits & (1 << 24) != 0 => WriteBack::Clwb,
            bits if bits & (1 << 23) != 0 => WriteBack::ClflushOpt,
            _ => WriteBack::Clflush,
        })
    }

    pub fn line_bytes() -> usize {
        64
    }

    /// # Safety
    /// `line` must be mapped, and the processor must have the instruction.
    pub unsafe fn line(how: WriteBack, line: usize) {
        // SAFETY: the caller's promise; no byte changes.
        unsafe {
            match how {
                WriteBack::Clwb => std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                WriteBack::ClflushOpt => {
                    std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                WriteBack::Clflush | WriteBack::DcCvap => std::arch::x86_64::_mm_clflush(line as *const u8),
            }
        }
    }

    pub fn fence() {
        // SAFETY: every x86-64 processor has it; it orders stores and changes nothing.
        unsafe { std::arch::x86_64::_mm_sfence() }
    }
}

#[cfg(target_arch = "aarch64")]
mod instructions {
    use super::WriteBack;

    /// Bit `HWCAP_DCPOP` of the kernel.
    const CLEANS_TO_PERSISTENCE: libc::c_ulong = 1 << 16;

    pub fn detect() -> Option<WriteBack> {
        // SAFETY: reads a word that the kernel gave the process.
        let has = unsafe { libc::getauxval(libc::AT_HWCAP) } & CLEANS_TO_PERSISTENCE != 0;
        has.then_some(WriteBack::DcCvap)
    }

    pub fn line_bytes() -> usize {
        let cache_type: u64;
        // SAFETY: Linux lets programs read this register, or reads it for them.
        unsafe { std::arch::asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
        4 << (cache_type >> 16 & 0xf)
    }

    /// # Safety
    /// `line` must be mapped, and the processor must have the instruction.
    pub unsafe fn line(_how: WriteBack, line: usize) {
        // SAFETY: the caller's promise; no byte changes. `dc cvap` by its encoding, which every assembler accepts.
        unsafe { std::arch::asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)) }
    }

    pub fn fence() {
        // SAFETY: waits and changes nothing.
        unsafe { std::arch::asm!("dsb sy", options(nostack, preserves_flags)) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod instructions {
    use super::WriteBack;

    pub fn detect() -> Option<WriteBack> {
        None
    }

    pub fn line_bytes() -> usize {
        64
    }

    /// # Safety
    /// No condition: no [`WriteBack`] exists on this architecture.
    pub unsafe fn line(_how: WriteBack, _line: usize) {}

    pub fn fence() {}
}

impl WriteBack {
    /// Returns the best instruction of this processor. `None` if none is known; persistent memory is then not offered.
    pub fn detect() -> Option<WriteBack> {
        instructions::detect()
    }

    /// Starts writing back the lines of `len` bytes at `start`, which must be mapped.
    pub(crate) fn lines(self, start: *const u8, len: usize) {
        let step = instructions::line_bytes();
        let (mut line, end) = (start as usize & !(step - 1), start as usize + len);
        while line < end {
            // SAFETY: the caller's bytes are mapped, so is the line around them, and `detect` found the instruction.
            unsafe { instructions::line(self, line) };
            line += step;
        }
    }

    /// Waits until the started lines are written back.
    pub(crate) fn fence(self) {
        instructions::fence();
    }
}
