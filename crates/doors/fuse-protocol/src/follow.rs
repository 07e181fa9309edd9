//! Keeping the only reader on its caller's processor, where waking it wakes no other processor. The caller is left where
//! it is. A caller of real-time priority is not followed: while it computes nobody else runs there, and then nobody would
//! read the requests of others.

use std::sync::Arc;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::limits;
use crate::shift::Follow;

/// One thread's place.
pub(crate) struct Follower {
    /// Where the session's threads may run; `None` if that is unknown: then nobody follows.
    allowed: Option<Arc<CpuSet>>,
    /// The one processor where this thread stays.
    pinned: Option<usize>,
}

/// Where the calling thread may run.
pub(crate) fn allowed() -> Option<Arc<CpuSet>> {
    sched_getaffinity(None).ok().map(Arc::new)
}

impl Follower {
    /// For the calling thread, which may have been started by one that follows: it may run everywhere again.
    pub fn new(allowed: Option<Arc<CpuSet>>) -> Follower {
        let mut follower = Follower { allowed, pinned: None };
        follower.spread();
        follower
    }

    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Moves the calling thread, or lets it go. Where the system refuses, it stays as it was: this is for speed alone.
    pub fn follow(&mut self, whom: Follow) {
        match whom {
            Follow::AsBefore => {}
            Follow::Nobody => self.release(),
            Follow::Caller(caller) => {
                let Some(allowed) = &self.allowed else { return };
                let Some(processor) = processor_of(caller).filter(|processor| allowed.is_set(*processor)) else {
                    return self.release();
                };
                if self.pinned == Some(processor) {
                    return;
                }
                let mut only = CpuSet::new();
                only.set(processor);
                if sched_setaffinity(None, &only).is_ok() {
                    self.pinned = Some(processor);
                }
            }
        }
    }

    /// The thread may run everywhere again.
    pub fn release(&mut self) {
        if self.pinned.take().is_some() {
            self.spread();
        }
    }

    fn spread(&mut self) {
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}

/// The processor on which a thread last ran; `None` if it is not seen from here, or not to be followed.
fn processor_of(thread: u32) -> Option<usize> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let mut line = [0; limits::PROC_STAT_BYTES];
    let stat = openat(CWD, format!("/proc/{thread}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let read = rustix::io::read(&stat, &mut line).ok()?;
    processor_in(&line[..read])
}

/// The 39th field of `/proc/PID/stat`, unless the 41st names a real-time policy. The second is a name of any bytes in
/// parentheses.
fn processor_in(stat: &[u8]) -> Option<usize> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat[after_name..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let processor = number(fields.nth(36)?)?;
    let policy = i32::try_from(number(fields.nth(1)?)?).ok()?;
    let real_time = matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE);
    (!real_time).then_some(processor)
}

fn number(field: &[u8]) -> Option<usize> {
    std::str::from_utf8(field).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let line = format!("17 (a ) name) {}\n", fields.join(" "));
        assert_eq!(processor_in(line.as_bytes()), Some(39));
        assert_eq!(processor_in(b"17 (short) S 1 2"), None);
        assert_eq!(processor_in(b""), None);
    }

    #[test]
    fn a_caller_of_real_time_priority_is_not_followed() {
        let stat = |policy: i32| {
            let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
            let line = format!("17 (name) {}\n", fields.join(" ")).replace(" 41 ", &format!(" {policy} "));
            processor_in(line.as_bytes())
        };
        for (policy, followed) in [(0, true), (1, false), (2, false), (3, true), (5, true), (6, false)] {
            assert_eq!(stat(policy).is_some(), followed, "policy {policy}");
        }
    }

    #[test]
    fn a_reader_follows_its_caller_and_is_let_go_again() {
        let everywhere = allowed().unwrap();
        let mut follower = Follower::new(Some(everywhere.clone()));
        let caller = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        follower.follow(Follow::Caller(caller));
        assert!(follower.is_pinned());
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        // A thread that is started by one that follows does not.
        let inherited = everywhere.clone();
        let started = std::thread::spawn(move || {
            let _follower = Follower::new(Some(inherited));
            sched_getaffinity(None).unwrap()
        });
        assert_eq!(started.join().unwrap(), *everywhere);
        follower.follow(Follow::Nobody);
        assert_eq!(sched_getaffinity(None).unwrap(), *everywhere);
    }
}
