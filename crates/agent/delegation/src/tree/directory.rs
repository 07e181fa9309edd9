//! Names of one directory: a table to find them, and their order for readings.

use hashbrown::HashTable;

use super::slots::NONE;

/// First cookie of an entry; smaller offsets are those of `.` and `..`.
const FIRST_COOKIE: u64 = 3;
/// Removed positions that are not worth a pass over all.
const REMOVED_MIN: usize = 32;

/// Names of a directory, by the slots of their links.
pub(super) struct Directory {
    pub table: HashTable<u32>,
    pub positions: Positions,
    next_cookie: u64,
    pub subdirectories: u32,
}

impl Default for Directory {
    fn default() -> Directory {
        Directory {
            table: HashTable::new(),
            positions: Positions::default(),
            next_cookie: FIRST_COOKIE,
            subdirectories: 0,
        }
    }
}

impl Directory {
    /// Takes the cookie of a new name.
    pub fn take_cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie - 1
    }
}

/// Slots in the order of their cookies. New ones come last.
#[derive(Default)]
pub(super) struct Positions {
    cookies: Vec<u64>,
    /// [`NONE`] at a removed position.
    slots: Vec<u32>,
    removed: usize,
}

impl Positions {
    /// Adds a slot, whose cookie is larger than all others.
    pub fn push(&mut self, cookie: u64, slot: u32) {
        if self.slots.len() == self.slots.capacity() {
            // Grows by a quarter: a large directory has little room to spare.
            let more = (self.slots.len() / 4).max(4);
            self.cookies.reserve_exact(more);
            self.slots.reserve_exact(more);
        }
        self.cookies.push(cookie);
        self.slots.push(slot);
    }

    fn find(&self, cookie: u64) -> usize {
        self.cookies.binary_search(&cookie).expect("the cookie of a name that exists")
    }

    /// Gives a cookie to another slot.
    pub fn replace(&mut self, cookie: u64, slot: u32) {
        let at = self.find(cookie);
        self.slots[at] = slot;
    }

    pub fn remove(&mut self, cookie: u64) {
        let at = self.find(cookie);
        self.slots[at] = NONE;
        self.removed += 1;
        while self.slots.last() == Some(&NONE) {
            self.slots.pop();
            self.cookies.pop();
            self.removed -= 1;
        }
        if self.removed > REMOVED_MIN && self.removed > self.slots.len() / 2 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut kept = self.slots.iter().map(|slot| *slot != NONE);
        self.cookies.retain(|_| kept.next() == Some(true));
        self.slots.retain(|slot| *slot != NONE);
        self.removed = 0;
        self.cookies.shrink_to(self.cookies.len() * 2);
        self.slots.shrink_to(self.slots.len() * 2);
    }

    /// Returns cookies and slots of the names after an offset.
    pub fn after(&self, offset: u64) -> impl Iterator<Item = (u64, u32)> {
        let from = self.cookies.partition_point(|cookie| *cookie <= offset);
        let found = self.cookies[from..].iter().zip(&self.slots[from..]);
        found.filter(|(_, slot)| **slot != NONE).map(|(cookie, slot)| (*cookie, *slot))
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.slots.len() - self.removed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testkit::Random;

    use super::*;

    #[test]
    fn positions_agree_with_an_ordered_map_under_random_changes() {
        let (mut random, mut positions, mut model) = (Random(7), Positions::default(), BTreeMap::new());
        for cookie in 3..5000_u64 {
            positions.push(cookie, cookie as u32 * 2);
            model.insert(cookie, cookie as u32 * 2);
            let phase = if cookie / 500 % 2 == 0 { 1 } else { 3 };
            for _ in 0..random.below(phase) {
                let victims: Vec<u64> = model.keys().copied().collect();
                if victims.is_empty() {
                    break;
                }
                let victim = victims[random.below(victims.len() as u64) as usize];
                positions.remove(victim);
                model.remove(&victim);
            }
            if let Some((cookie, slot)) = model.iter_mut().next() {
                *slot += 1;
                positions.replace(*cookie, *slot);
            }
            let from = random.below(cookie);
            if cookie % 16 == 0 {
                let expected: Vec<_> = model.range(from + 1..).map(|(cookie, slot)| (*cookie, *slot)).collect();
                assert_eq!(positions.after(from).collect::<Vec<_>>(), expected);
            }
            assert_eq!(positions.len(), model.len());
        }
    }
}
