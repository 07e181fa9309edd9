//! Table of running requests, and the interrupts of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use concurrency::Mutex;

use crate::NodeId;
use crate::limits::INTERRUPT_SHARDS;

/// Callback that runs at most once, when a request is interrupted.
pub(crate) type OnInterrupt = Box<dyn FnOnce() + Send>;

/// Request that runs or waits for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub unique: u64,
    pub node: NodeId,
    /// Thread id of the caller. 0 if the kernel asks by itself, or if the caller cannot be seen from here.
    pub caller: u32,
    /// Whether the request asks for attributes.
    pub attributes: bool,
    /// Whether the request asks for capabilities.
    pub capabilities: bool,
}

struct Running {
    interrupted: bool,
    on_interrupt: Option<OnInterrupt>,
    arrived: Arrived,
    /// Number of times that [`Interrupts::late`] has seen it.
    seen: u32,
}

/// Table of running requests, from their arrival to their answer.
#[derive(Default)]
pub(crate) struct Interrupts {
    /// Whether the session has ended: all later requests count as interrupted.
    closed: AtomicBool,
    shards: [Mutex<HashMap<u64, Running>>; INTERRUPT_SHARDS],
}

impl Interrupts {
    fn shard(&self, unique: u64) -> &Mutex<HashMap<u64, Running>> {
        // Bit 0 marks interrupts, so request numbers are even.
        &self.shards[(unique >> 1) as usize % INTERRUPT_SHARDS]
    }

    /// Adds a request that has arrived.
    pub fn begin(&self, arrived: Arrived) {
        let unique = arrived.unique;
        let mut shard = self.shard(unique).lock();
        // Read under the lock: `close` sets it before looking at the shard.
        let interrupted = self.closed.load(Ordering::SeqCst);
        shard.insert(unique, Running { interrupted, on_interrupt: None, arrived, seen: 0 });
    }

    /// Removes a request that was answered.
    pub fn end(&self, unique: u64) {
        let running = self.shard(unique).lock().remove(&unique);
        // The callback's own drop may take locks, so never drop it under this lock.
        drop(running);
    }

    pub fn interrupted(&self, unique: u64) -> bool {
        self.shard(unique).lock().get(&unique).is_some_and(|running| running.interrupted)
    }

    /// Keeps `call` for the interrupt, or runs it now if that has come. Drops it when the request is answered.
    pub fn on_interrupt(&self, unique: u64, call: OnInterrupt) {
        let mut shard = self.shard(unique).lock();
        match shard.get_mut(&unique) {
            Some(running) if !running.interrupted => {
                let former = running.on_interrupt.replace(call);
                drop(shard);
                drop(former);
            }
            Some(_) => {
                drop(shard);
                call();
            }
            None => {}
        }
    }

    /// Keeps `call` for the interrupt. Returns false, without keeping it, if the interrupt has come. Never runs `call`
    /// itself.
    pub fn keep(&self, unique: u64, call: OnInterrupt) -> bool {
        match self.shard(unique).lock().get_mut(&unique) {
            Some(running) if !running.interrupted => {
                running.on_interrupt = Some(call);
                true
            }
            _ => false,
        }
    }

    /// Interrupts a request. Returns false if it does not run here: not yet, or not any more.
    pub fn interrupt(&self, unique: u64) -> bool {
        let mut shard = self.shard(unique).lock();
        let Some(running) = shard.get_mut(&unique) else { return false };
        running.interrupted = true;
        let call = running.on_interrupt.take();
        drop(shard);
        if let Some(call) = call {
            call();
        }
        true
    }

    /// Collects the requests that were there at the last look already. For each, adds whether it is interrupted and how
    /// many looks ago it came. Returns whether there are any requests at all.
    pub fn late(&self, late: &mut Vec<(Arrived, bool, u32)>) -> bool {
        let mut any = false;
        for shard in &self.shards {
            for running in shard.lock().values_mut() {
                any = true;
                if running.seen > 0 {
                    late.push((running.arrived, running.interrupted, running.seen));
                }
                running.seen = running.seen.saturating_add(1);
            }
        }
        any
    }

    /// Returns whether a request has not been answered yet.
    pub fn is_running(&self, unique: u64) -> bool {
        self.shard(unique).lock().contains_key(&unique)
    }

    /// Returns whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Interrupts all requests, present and future, because the session has ended. Nobody else would wake those that
    /// wait.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for shard in &self.shards {
            let running: Vec<u64> = shard.lock().keys().copied().collect();
            for unique in running {
                self.interrupt(unique);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn arrived(unique: u64) -> Arrived {
        Arrived { unique, node: 1, caller: 0, attributes: false, capabilities: false }
    }

    #[test] // S51
    fn a_request_is_late_from_the_second_look_on() {
        let interrupts = Interrupts::default();
        let looks = || {
            let mut late = Vec::new();
            let any = interrupts.late(&mut late);
            (any, late)
        };
        assert_eq!(looks(), (false, vec![]));
        interrupts.begin(arrived(2));
        assert_eq!(looks(), (true, vec![]));
        interrupts.begin(arrived(4));
        interrupts.interrupt(2);
        assert_eq!(looks(), (true, vec![(arrived(2), true, 1)]));
        interrupts.end(2);
        assert_eq!(looks(), (true, vec![(arrived(4), false, 1)]));
    }

    #[test]
    fn an_interrupt_marks_a_running_request_and_runs_its_callback_once() {
        let (interrupts, runs) = (Interrupts::default(), Arc::new(AtomicU32::new(0)));
        interrupts.begin(arrived(2));
        let counter = Arc::clone(&runs);
        interrupts.on_interrupt(2, Box::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
        assert!(!interrupts.interrupted(2));
        assert!(interrupts.interrupt(2) && interrupts.interrupt(2));
        assert!(interrupts.interrupted(2));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_callback_that_comes_after_the_interrupt_runs_at_once() {
        let (interrupts, runs) = (Interrupts::default(), Arc::new(AtomicU32::new(0)));
        interrupts.begin(arrived(4));
        interrupts.close();
        let counter = Arc::clone(&runs);
        interrupts.on_interrupt(4, Box::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_request_that_is_not_running_cannot_be_interrupted() {
        let interrupts = Interrupts::default();
        assert!(!interrupts.interrupt(6));
        interrupts.begin(arrived(6));
        interrupts.end(6);
        assert!(!interrupts.interrupt(6) && !interrupts.interrupted(6));
    }
}
