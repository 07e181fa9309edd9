//! The time of the node, as file systems tell it: by the kernel's clock tick, 1 to 10 ms, which takes a few nanoseconds to read.

/// Nanoseconds since 1970; 0 before. Makes no system call where the kernel's vDSO knows the clock, and is safe in handlers of signals.
#[cfg(not(test))]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec, and one is there.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Always the same.
#[cfg(test)]
pub fn now_ns() -> u64 {
    1_795_737_600_123_456_789
}
