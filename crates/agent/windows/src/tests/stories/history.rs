//! History of a story's writes, and the check of values found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A write of a register, from its request to its acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Written {
    id: u64,
    /// Value written; 0 after a truncation and before the first write.
    value: u64,
    asked: u64,
    acknowledged: u64,
    /// Time from which on this value must not be found, because a later value was found.
    over: u64,
}

/// State of a register before the first write.
const ORIGIN: Written = Written { id: 0, value: 0, asked: 0, acknowledged: 0, over: u64::MAX };

/// Writes by register. The lock belongs to the test and is not part of the explored orders.
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

    /// Notes the start of a write. Returns its number.
    pub fn ask(&self, registers: &[u64], value: u64) -> u64 {
        let id = self.tick();
        let written = Written { id, value, asked: id, acknowledged: u64::MAX, over: u64::MAX };
        let mut all = self.registers.lock().unwrap();
        registers.iter().for_each(|at| all.entry(*at).or_insert_with(|| vec![ORIGIN]).push(written));
        id
    }

    /// Notes that a write was acknowledged, or was refused and not done.
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

    /// Checks a value found in a register by a read that began at `began`.
    pub fn check(&self, at: u64, found: u64, began: u64, how: &str) {
        let ended = self.tick();
        let mut all = self.registers.lock().unwrap();
        let known = all.entry(at).or_insert_with(|| vec![ORIGIN]);
        let could_be = |one: &Written| {
            let over = |other: &&Written| other.asked > one.acknowledged && other.acknowledged < began;
            one.value == found && one.over > began && !known.iter().any(|other| over(&other))
        };
        assert!(known.iter().any(could_be), "{how}: {found} at {at}, looked at since {began}, of {known:?}");
        // Values acknowledged before the read came before the value found, which is in place by the end of the read.
        let before = |one: &&mut Written| one.value != found && one.acknowledged < began;
        known.iter_mut().filter(before).for_each(|one| one.over = one.over.min(ended));
    }
}
