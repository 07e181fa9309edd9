//! Time of the node with the resolution of file systems: the kernel's clock tick, 1 to 10 ms. Reading it takes a few
//! nanoseconds.

/// Returns nanoseconds since 1970; 0 for earlier times. Makes no system call if the kernel's vDSO has the clock. Safe
/// in signal handlers.
#[cfg(not(test))]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which is there.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Returns a constant.
#[cfg(test)]
pub fn now_ns() -> u64 {
    1_795_737_600_123_456_789
}
