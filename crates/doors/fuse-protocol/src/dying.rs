//! Whether the threads that send requests are dying, as `/proc` shows.

/// SIGKILL's bit in a kernel's signal set. A process that any signal ends finds this one pending.
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// Returns whether a thread of this machine has been killed. True for a thread that is gone or cannot be seen.
pub fn is_dying(thread: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let pending = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    [pending("SigPnd:"), pending("ShdPnd:")].into_iter().flatten().any(|set| set & SIGKILL_BIT != 0)
}

/// Kernel's flag of a thread that is ending (`PF_EXITING`).
const EXITING: u64 = 4;

/// Returns whether a thread of this machine is ending by a signal. Such a thread closes its files and can no longer
/// be interrupted: no signal is pending, and new ones are dropped.
pub fn was_killed(thread: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{thread}/stat")) else { return false };
    is_end_by_signal(&stat)
}

/// Evaluates a line of `/proc/PID/stat`. The flags are the 9th field; the exit status is the 52nd and last.
fn is_end_by_signal(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ends = field(9).is_some_and(|flags| flags & EXITING != 0);
    ends && field(52).is_some_and(|status| status & 0x7f != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_lives_is_not_dying_and_one_that_is_gone_is() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(u32::MAX));
        assert!(!was_killed(std::process::id()) && !was_killed(u32::MAX));
    }

    #[test]
    fn a_thread_that_ends_by_a_signal_is_told_from_one_that_returns_and_one_that_is_stopped() {
        let stat = |flags: u32, status: u32| {
            let between = "0 ".repeat(42);
            format!("7 (a) name) R 1 7 7 0 -1 {flags} {between}{status}\n")
        };
        assert_eq!(stat(0, 0).rsplit_once(')').unwrap().1.split_ascii_whitespace().count(), 50);
        assert!(is_end_by_signal(&stat(0x40_0104, 15)) && is_end_by_signal(&stat(4, 0x86)));
        assert!(!is_end_by_signal(&stat(4, 0)) && !is_end_by_signal(&stat(4, 3 << 8)), "it returned");
        assert!(!is_end_by_signal(&stat(0x40_0100, 19)) && !is_end_by_signal("nonsense"));
    }
}
