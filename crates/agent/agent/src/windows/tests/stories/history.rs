//! What was written in a story, and what may be found then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A write of a register, from when it was asked for to when it was acknowledged.
#[derive(Debug, Clone, Copy)]
struct Written {
    id: u64,
    /// 0 after a truncation, as before the first write.
    value: u64,
    asked: u64,
    acknowledged: u64,
    /// Since when nobody may find it, as somebody found another one that must have come after it.
    over: u64,
}

/// What a register is before it is written.
const ORIGIN: Written = Written { id: 0, value: 0, asked: 0, acknowledged: 0, over: u64::MAX };

/// What was written, by register. No lock of it is waited for: it is the test's.
#[derive(Default)]
pub(super) struct History {
    clock: AtomicU64,
    values: AtomicU64,
    registers: std::sync::Mutex<BTreeMap<u64, Vec<Written>>>,
}

impl History {
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn fresh(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// It begins; its number.
    pub fn ask(&self, registers: &[u64], value: u64) -> u64 {
        let id = self.tick();
        let written = Written { id, value, asked: id, acknowledged: u64::MAX, over: u64::MAX };
        let mut all = self.registers.lock().unwrap();
        registers.iter().for_each(|at| all.entry(*at).or_insert_with(|| vec![ORIGIN]).push(written));
        id
    }

    /// It is acknowledged, or it was refused and is not done.
    pub fn end(&self, registers: &[u64], id: u64, done: bool) {
        let now = self.tick();
        let mut all = self.registers.lock().unwrap();
        for at in registers {
            let known = all.get_mut(at).unwrap();
            if done {
                known.iter_mut().filter(|one| one.id == id).for_each(|one| one.acknowledged = now);
            } else {
                known.retain(|one| one.id != id);
            }
        }
    }

    /// A register was found to be this by somebody who began to look then.
    pub fn check(&self, at: u64, found: u64, began: u64, how: &str) {
        let ended = self.tick();
        let mut all = self.registers.lock().unwrap();
        let known = all.entry(at).or_insert_with(|| vec![ORIGIN]);
        let could_be = |one: &Written| {
            let over = |other: &&Written| other.asked > one.acknowledged && other.acknowledged < began;
            one.value == found && one.over > began && !known.iter().any(|other| over(&other))
        };
        assert!(known.iter().any(could_be), "{how}: {found} at {at}, looked at since {began}, of {known:?}");
        // What was acknowledged before came before what was found, which is there since this end at the latest.
        let before = |one: &&mut Written| one.value != found && one.acknowledged < began;
        known.iter_mut().filter(before).for_each(|one| one.over = one.over.min(ended));
    }
}
