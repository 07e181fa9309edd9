//! The clock that all processes of a machine share.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC: comparable between processes of one machine until it restarts.
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of processor time that this process has used.
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Waits for an instant of [`now_ns`], to within a few microseconds when it lies ahead.
pub fn wait_until(at_ns: u64) {
    loop {
        let left = at_ns.saturating_sub(now_ns());
        match left {
            0 => return,
            // The last stretch is spun: a timer's slack would spread the start.
            left if left < 100_000 => std::hint::spin_loop(),
            left => std::thread::sleep(Duration::from_nanos(left - 80_000)),
        }
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec.max(0) as u64
}
