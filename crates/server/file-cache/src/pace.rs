//! How fast stage-outs go beside programs that write.
//!
//! Both need processors, memory and the device, and the program goes first: while one writes, all stage-outs rest together for a
//! part of each [`CYCLE`]. Together, because one that goes on has the device to itself and takes what the others leave. Nobody rests
//! while a program waits for a stage-out, nor while the burst buffer is nearly full: the program needs the room more. Nor where the store
//! is so slow that a stage-out mostly waits for it: resting would cost the drain and give the program nothing.
//!
//! What the kernel writes past us is seen by the times of the replicas that it may write, looked at once a cycle. So a file that is
//! only kept open for writing holds nobody up; nor does what is stored through a mapping.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use types::Version;

use crate::cache::{Counters, Inner};
use crate::limits::{CYCLE, UNFELT_BLOCKS, WORK, WRITERS_LOOKED_MAX};

/// Who writes, and who waits for a stage-out.
#[derive(Default)]
pub(crate) struct Pace {
    /// Programs that wait for a stage-out.
    waiting: AtomicU32,
    /// Looks at blocks in one cycle, and which.
    looks: Mutex<(u128, u32)>,
    /// When we saw last that a program wrote, in milliseconds of the cache's clock.
    wrote_ms: AtomicU64,
    writers: Mutex<Writers>,
}

#[derive(Default)]
struct Writers {
    /// Replicas that the kernel may write past us, and through how many open files.
    open: HashMap<Version, u32>,
    /// The cycle of the last look, and whether it found that somebody writes.
    looked: Option<(u128, bool)>,
}

/// A program waits.
pub(crate) struct Hurry<'a>(&'a Pace);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    /// A program waits for a stage-out until the answer is dropped.
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Hurry(self)
    }

    /// Counts a look at a block: whether all stage-outs together did so little in this cycle that no program feels it.
    fn is_unfelt(&self, cycle: u128) -> bool {
        let mut looks = self.looks.lock();
        *looks = (cycle, if looks.0 == cycle { looks.1.saturating_add(1) } else { 1 });
        looks.1 <= UNFELT_BLOCKS
    }

    /// We write for a program.
    pub(crate) fn wrote(&self, now: Duration) {
        self.wrote_ms.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    /// The kernel may write a replica past us.
    pub(crate) fn opened(&self, version: Version) {
        *self.writers.lock().open.entry(version).or_default() += 1;
    }

    /// One of those through whom it may is closed; it may have written until now.
    pub(crate) fn closed(&self, version: Version, now: Duration) {
        let mut writers = self.writers.lock();
        if let Some(handles) = writers.open.get_mut(&version) {
            *handles -= 1;
            if *handles == 0 {
                writers.open.remove(&version);
            }
        }
        self.wrote(now);
    }
}

fn cycle_of(now: Duration) -> u128 {
    now.as_nanos() / CYCLE.as_nanos()
}

/// How long to rest at a moment, so that who works whenever it need not has [`WORK`] of each [`CYCLE`].
fn rest_at(now: Duration) -> Duration {
    let into = Duration::from_nanos((now.as_nanos() % CYCLE.as_nanos()) as u64);
    if into < WORK { Duration::ZERO } else { CYCLE - into }
}

impl Inner {
    /// Between two parts of a stage-out: rests, if it is time to and a program writes. The file's gate is not held.
    pub(crate) fn give_way(&self) {
        let now = self.now();
        let rest = rest_at(now);
        let unfelt = self.pace.is_unfelt(cycle_of(now));
        if unfelt || rest.is_zero() || self.pace.waiting.load(Ordering::Relaxed) > 0 || self.is_short_of_room() {
            return;
        }
        if self.is_written(now) {
            Counters::add(&self.counters.out_rests, 1);
            // The end of the cache ends it.
            self.queue.rest(rest);
        }
    }

    /// Whether a program has written in the last cycle. Looks once a cycle.
    fn is_written(&self, now: Duration) -> bool {
        let since = now.as_millis() as u64 - self.pace.wrote_ms.load(Ordering::Relaxed).min(now.as_millis() as u64);
        if u128::from(since) < CYCLE.as_millis() {
            return true;
        }
        let cycle = cycle_of(now);
        let mut writers = self.pace.writers.lock();
        if let Some((_, written)) = writers.looked.filter(|(then, _)| *then == cycle) {
            return written;
        }
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let is_recent = |version: &Version| {
            self.replicas.stat(*version).is_ok_and(|stat| {
                let mtime = Duration::new(stat.st_mtime.try_into().unwrap_or(0), stat.st_mtime_nsec as u32);
                clock.saturating_sub(mtime) < CYCLE
            })
        };
        let many = writers.open.len() > WRITERS_LOOKED_MAX;
        let written = many || writers.open.keys().any(is_recent);
        writers.looked = Some((cycle, written));
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_with_its_cycle_and_the_rest_of_it_is_work() {
        let step = CYCLE / 100;
        let (mut now, mut worked) = (Duration::ZERO, Duration::ZERO);
        while now < CYCLE * 10 {
            let rest = rest_at(now);
            assert!(rest <= CYCLE - WORK);
            worked += if rest.is_zero() { step } else { Duration::ZERO };
            now += if rest.is_zero() { step } else { rest };
        }
        assert_eq!((worked, now), (WORK * 10, CYCLE * 10));
    }
}
