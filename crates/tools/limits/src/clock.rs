//! The clock shared by all processes of a machine.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the nanoseconds of CLOCK_MONOTONIC, comparable between processes of one machine until it reboots.
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Returns the nanoseconds of processor time that this process has used.
pub fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Waits for an instant of [`now_ns`], with an error of a few microseconds if it is in the future.
pub fn wait_until(at_ns: u64) {
    loop {
        let left = at_ns.saturating_sub(now_ns());
        match left {
            0 => return,
            // Spin for the last part, because timer slack would spread the start.
            left if left < 100_000 => std::hint::spin_loop(),
            left => std::thread::sleep(Duration::from_nanos(left - 80_000)),
        }
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.max(0) as u64 * 1_000_000_000 + time.tv_nsec.max(0) as u64
}
