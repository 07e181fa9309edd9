//! A hash table of 32 bytes an entry that grows by a fifth, not by doubling: a full entry costs little memory at any size.
//!
//! Open addressing with linear probing. At most five sixths of the entries are used, and at least seven tenths while the
//! table grows. So an object takes 38 to 46 bytes. A lookup passes about three entries, one without success about twenty.

use super::place::ObjectPlace;
use crate::key::ObjectKey;

/// Entries of the smallest table that has any.
const ENTRIES_MIN: usize = 8;

#[derive(Clone, Copy)]
#[repr(C)]
struct IndexEntry {
    key: ObjectKey,
    place: ObjectPlace,
}

const _: () = assert!(size_of::<IndexEntry>() == 32);

const UNUSED: IndexEntry = IndexEntry { key: ObjectKey([0; 16]), place: ObjectPlace::NONE };

/// Map from key to place. The caller hashes keys, always by the same function.
#[derive(Default)]
pub(super) struct PlaceTable {
    entries: Box<[IndexEntry]>,
    used: usize,
}

impl PlaceTable {
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Bytes of memory of all entries, unused ones included.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Entry where a search for a key with this hash begins. The low bits of the hash are left to the choice of the shard.
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.entries.len() as u128) >> 64) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// Entry of the key, or the unused one where it belongs. The table must not be empty.
    fn find(&self, hash: u64, key: &ObjectKey) -> usize {
        let mut at = self.home(hash);
        while !self.entries[at].place.is_none() && self.entries[at].key != *key {
            at = self.after(at);
        }
        at
    }

    /// Returns where the key's object lies. O(1).
    pub(super) fn get(&self, hash: u64, key: &ObjectKey) -> Option<ObjectPlace> {
        if self.entries.is_empty() {
            return None;
        }
        Some(self.entries[self.find(hash, key)].place).filter(|place| !place.is_none())
    }

    /// Sets the place of a key and returns the former one. O(1) on average; O(n) if the table grows, with `hash_of` for each key.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: ObjectKey,
        place: ObjectPlace,
        hash_of: impl Fn(&ObjectKey) -> u64,
    ) -> Option<ObjectPlace> {
        if (self.used + 1) * 6 > self.entries.len() * 5 {
            let wanted = (self.entries.len() * 6 / 5 + 1).max(ENTRIES_MIN);
            self.resize(wanted, hash_of);
        }
        let at = self.find(hash, &key);
        let former = std::mem::replace(&mut self.entries[at], IndexEntry { key, place }).place;
        if former.is_none() {
            self.used += 1;
            return None;
        }
        Some(former)
    }

    /// Removes a key and returns its place. O(1) on average; O(n) if the table shrinks, which it does when half empty.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        key: &ObjectKey,
        hash_of: impl Fn(&ObjectKey) -> u64,
    ) -> Option<ObjectPlace> {
        let place = self.get(hash, key)?;
        let mut gap = self.find(hash, key);
        let mut at = self.after(gap);
        // Entries move back over the gap if a search for them would meet it.
        while !self.entries[at].place.is_none() {
            let home = self.home(hash_of(&self.entries[at].key));
            let entries = self.entries.len();
            let (from_home, from_gap) = ((at + entries - home) % entries, (at + entries - gap) % entries);
            if from_home >= from_gap {
                self.entries[gap] = self.entries[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.entries[gap] = UNUSED;
        self.used -= 1;
        if self.used * 2 < self.entries.len() && self.entries.len() > ENTRIES_MIN {
            self.resize((self.used * 10 / 7).max(ENTRIES_MIN), hash_of);
        }
        Some(place)
    }

    /// Calls `each` for every entry, in no order.
    pub(super) fn each(&self, mut each: impl FnMut(&ObjectKey, ObjectPlace)) {
        self.entries.iter().filter(|entry| !entry.place.is_none()).for_each(|entry| each(&entry.key, entry.place));
    }

    fn resize(&mut self, entries: usize, hash_of: impl Fn(&ObjectKey) -> u64) {
        let former = std::mem::replace(&mut self.entries, vec![UNUSED; entries].into_boxed_slice());
        for entry in former.iter().filter(|entry| !entry.place.is_none()) {
            let at = self.find(hash_of(&entry.key), &entry.key);
            self.entries[at] = *entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use testkit::Random;

    fn key(number: u64) -> ObjectKey {
        ObjectKey(u128::from(number).to_le_bytes())
    }

    /// Hashes of which many are equal or neighbours, so that long runs and the table's end are met.
    fn hash_of(key: &ObjectKey) -> u64 {
        let number = u128::from_le_bytes(key.0) as u64;
        if number.is_multiple_of(3) { u64::MAX - number % 5 } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    #[test]
    fn the_table_is_a_map_through_random_changes() {
        for seed in 0..8 {
            let mut random = Random(seed);
            let mut table = PlaceTable::default();
            let mut model = HashMap::new();
            for step in 1..6000 {
                // The number of keys swells and shrinks, so that the table does too.
                let number = random.below(if step / 1000 % 2 == 0 { 700 } else { 60 });
                let key = key(number);
                if random.below(5) < 3 {
                    let place = ObjectPlace::new(step, 1, 4096, 9);
                    assert_eq!(table.insert(hash_of(&key), key, place, hash_of), model.insert(key, place));
                } else {
                    assert_eq!(table.remove(hash_of(&key), &key, hash_of), model.remove(&key));
                }
                assert_eq!(table.get(hash_of(&key), &key), model.get(&key).copied());
                assert_eq!(table.len(), model.len());
            }
            let mut all = HashMap::new();
            table.each(|key, place| assert_eq!(all.insert(*key, place), None));
            assert_eq!(all, model);
            assert!(model.iter().all(|(key, place)| table.get(hash_of(key), key) == Some(*place)));
        }
    }

    #[test]
    fn an_object_takes_46_bytes_at_most_while_the_table_grows() {
        let mut table = PlaceTable::default();
        let hash_of = |key: &ObjectKey| (u128::from_le_bytes(key.0) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 1..50_000 {
            table.insert(hash_of(&key(number)), key(number), ObjectPlace::new(number, 0, 4096, 1), hash_of);
            let each = table.bytes() as f64 / table.len() as f64;
            assert!(number < 100 || (38.0..47.0).contains(&each), "{each} bytes with {number} objects");
        }
    }
}
