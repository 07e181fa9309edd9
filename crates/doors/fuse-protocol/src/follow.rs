//! Placement of the only reader on its caller's processor, where waking the reader wakes no other processor. The caller
//! is not moved. A caller of real-time priority is not followed: while it computes, nothing else runs there, and nobody
//! would read the requests of other programs.
//!
//! A scheduler that wakes the caller finds its processor taken by the reader. If another processor is idle, the
//! scheduler moves the caller there, and each request wakes two processors. A reader of the policy `SCHED_IDLE` does
//! not count as taking a processor. So a reader that may give that policy up again is *modest*: it has the policy while
//! it follows.
//!
//! A modest reader would hardly run while other threads compute on that processor. The watch looks for requests that it
//! leaves waiting and *raises* it ([`raise`]). The watch stays on the same processor, or its own wake-ups would make
//! the scheduler separate the two again.

use std::sync::Arc;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::limits;
use crate::shift::Follow;

/// Placement of one thread.
pub(crate) struct Follower {
    /// Processors on which the session's threads may run. `None` if unknown: no thread follows then.
    allowed: Option<Arc<CpuSet>>,
    /// Processor to which this thread is pinned.
    pinned: Option<usize>,
    /// Whether the thread has the policy `SCHED_IDLE`.
    modest: bool,
}

/// Returns the processors on which the calling thread may run.
pub(crate) fn allowed() -> Option<Arc<CpuSet>> {
    sched_getaffinity(None).ok().map(Arc::new)
}

/// Returns whether threads can become modest and return, and whether that helps: another processor may be idle.
pub(crate) fn may_be_modest(allowed: Option<&CpuSet>) -> bool {
    let several = allowed.is_some_and(|allowed| allowed.count() > 1);
    // SAFETY: asks for the calling thread's policy; no pointer.
    let usual = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
    several && usual && can_return()
}

/// Tries it with a thread that ends then. A right in a user namespace lets a thread become modest, but not return.
fn can_return() -> bool {
    let tried = concurrency::spawn_joined("fuse-policy", || set_modest(0, true) && set_modest(0, false));
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// Gives a thread of this process the policy `SCHED_IDLE`, or takes it back. Returns whether that succeeded.
fn set_modest(thread: i32, modest: bool) -> bool {
    let policy = if modest { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives through the call, which only reads it.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const none) == 0 }
}

/// Gives a thread the usual policy, and lets it run on all of `allowed`. The thread may have ended.
pub(crate) fn raise(thread: i32, allowed: Option<&CpuSet>) {
    set_modest(thread, false);
    if let Some(allowed) = allowed {
        let _ = sched_setaffinity(Pid::from_raw(thread), allowed);
    }
}

impl Follower {
    /// Makes a follower for the calling thread and lets it run everywhere. The thread may have been started by one that
    /// follows.
    pub fn new(allowed: Option<Arc<CpuSet>>) -> Follower {
        let mut follower = Follower { allowed, pinned: None, modest: true };
        follower.be_modest(false);
        follower.spread();
        follower
    }

    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    /// Pins the calling thread and `watch` to the caller's processor, or releases them. If the system refuses, nothing
    /// changes: this is only for speed.
    pub fn follow(&mut self, whom: Follow, watch: i32) {
        match whom {
            Follow::AsBefore => {}
            Follow::Nobody => {
                self.release();
                self.move_watch(watch, None);
            }
            Follow::Caller { thread, modest } => {
                let Some(allowed) = &self.allowed else { return };
                let Some(processor) = processor_of(thread).filter(|processor| allowed.is_set(*processor)) else {
                    self.release();
                    return self.move_watch(watch, None);
                };
                let mut only = CpuSet::new();
                only.set(processor);
                // Repeat even if pinned already: the thread may have been raised.
                if sched_setaffinity(None, &only).is_ok() {
                    self.pinned = Some(processor);
                    self.move_watch(watch, Some(&only));
                    self.be_modest(modest);
                }
            }
        }
    }

    /// Lets the thread run everywhere again.
    pub fn release(&mut self) {
        self.be_modest(false);
        if self.pinned.take().is_some() {
            self.spread();
        }
    }

    fn be_modest(&mut self, modest: bool) {
        if (modest || self.modest) && set_modest(0, modest) {
            self.modest = modest;
        }
    }

    fn move_watch(&self, watch: i32, to: Option<&CpuSet>) {
        if let (Some(watch), Some(to)) = (Pid::from_raw(watch), to.or(self.allowed.as_deref())) {
            let _ = sched_setaffinity(Some(watch), to);
        }
    }

    fn spread(&mut self) {
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}

/// Returns the processor on which a thread last ran. `None` if the thread cannot be seen from here, or must not be
/// followed.
fn processor_of(thread: u32) -> Option<usize> {
    with_stat(&format!("/proc/{thread}/stat"), processor_in)
}

/// Returns whether a thread of this process could run if it had a processor.
pub(crate) fn is_ready(thread: i32) -> bool {
    let path = format!("/proc/self/task/{thread}/stat");
    with_stat(&path, |stat| (fields_of(stat)?.next()? == b"R").then_some(())).is_some()
}

/// Reads the `stat` line of a thread.
fn with_stat<T>(path: &str, of: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let mut line = [0; limits::PROC_STAT_BYTES];
    let stat = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let read = rustix::io::read(&stat, &mut line).ok()?;
    of(&line[..read])
}

/// Returns the fields of that line from the third on. The second is a name of any bytes in parentheses.
fn fields_of(stat: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    Some(stat[after_name..].split(|byte| *byte == b' ').filter(|field| !field.is_empty()))
}

/// Returns the 39th field of that line, unless the 41st is a real-time policy.
fn processor_in(stat: &[u8]) -> Option<usize> {
    let mut fields = fields_of(stat)?;
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
    fn a_thread_that_computes_is_ready_and_one_that_waits_is_not() {
        let myself = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(is_ready(myself));
        let watch = move || std::iter::repeat_with(|| is_ready(myself)).take(1_000_000).any(|ready| !ready);
        let asleep = std::thread::spawn(watch).join().unwrap();
        assert!(asleep && !is_ready(i32::MAX));
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
        let modest = may_be_modest(Some(&everywhere));
        follower.follow(Follow::Caller { thread: caller, modest }, 0);
        assert!(follower.is_pinned());
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        assert_eq!(policy() == libc::SCHED_IDLE, modest);
        // A thread started by a follower does not follow.
        let inherited = everywhere.clone();
        let started = std::thread::spawn(move || {
            let _follower = Follower::new(Some(inherited));
            (sched_getaffinity(None).unwrap(), policy())
        });
        assert_eq!(started.join().unwrap(), (*everywhere, libc::SCHED_OTHER));
        follower.follow(Follow::Nobody, 0);
        assert_eq!((sched_getaffinity(None).unwrap(), policy()), (*everywhere, libc::SCHED_OTHER));
    }

    #[test]
    fn a_modest_reader_is_raised_by_another_thread() {
        let everywhere = allowed().unwrap();
        let mut follower = Follower::new(Some(everywhere.clone()));
        let caller = rustix::thread::gettid().as_raw_nonzero().get();
        let modest = may_be_modest(Some(&everywhere));
        follower.follow(Follow::Caller { thread: caller.cast_unsigned(), modest }, 0);
        let inherited = everywhere.clone();
        std::thread::spawn(move || raise(caller, Some(&inherited))).join().unwrap();
        assert_eq!((sched_getaffinity(None).unwrap(), policy()), (*everywhere, libc::SCHED_OTHER));
    }

    fn policy() -> i32 {
        // SAFETY: asks for the calling thread's policy; no pointer.
        unsafe { libc::sched_getscheduler(0) }
    }
}
