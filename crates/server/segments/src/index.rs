//! The index in memory: where the newest object of each key lies.
//!
//! [`INDEX_SHARDS`] tables, each under a lock of its own and grown on its own. Nothing is read or written under these locks,
//! except by the second attempt of a put ([`Shard::offer`]).

mod place;
mod table;

use std::hash::{DefaultHasher, Hasher};
use std::io;

use concurrency::{Mutex, MutexGuard};

use crate::key::ObjectKey;
use crate::limits::INDEX_SHARDS;
pub(crate) use place::ObjectPlace;
use table::PlaceTable;

/// Answer of the index to the place of a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The object is the newest of its key. The former newest one is dead.
    Newest(Option<ObjectPlace>),
    /// A newer object of the key is there. The offered one is dead.
    Older,
    /// There is no object of the key, and there may have been a newer one, which was removed. The offered one is dead.
    Unknown,
}

pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    /// Random, so that nobody can choose keys that meet in one place.
    seed: [u8; 16],
}

/// The part of an index that has some of the keys, locked.
#[derive(Default)]
pub(crate) struct Shard {
    table: PlaceTable,
    /// Highest sequence number of all objects that were removed.
    removed: u64,
}

impl Index {
    /// Returns an index without objects. Errors: there are no random numbers.
    pub(crate) fn new() -> io::Result<Index> {
        let mut seed = [0; 16];
        concurrency::random_bytes(&mut seed)?;
        let shards = (0..INDEX_SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        Ok(Index { shards, seed })
    }

    fn hash(&self, key: &ObjectKey) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.seed);
        hasher.write(&key.0);
        hasher.finish()
    }

    /// Locks the part that has the key.
    pub(crate) fn lock(&self, key: &ObjectKey) -> Locked<'_> {
        let hash = self.hash(key);
        let shard = self.shards[hash as usize & (INDEX_SHARDS - 1)].lock();
        Locked { index: self, shard, key: *key, hash }
    }

    /// Removes all objects whose keys `keep` refuses, and calls `removed` for each.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&ObjectKey) -> bool, mut removed: impl FnMut(ObjectPlace)) {
        for shard in &self.shards {
            let mut refused = Vec::new();
            let mut shard = shard.lock();
            shard.table.each(|key, _| {
                if !keep(key) {
                    refused.push(*key);
                }
            });
            for key in refused {
                if let Some(place) = shard.remove(self, self.hash(&key), &key) {
                    removed(place);
                }
            }
        }
    }

    /// Returns the objects in the segment at a place of the table of segments. O(all objects).
    pub(crate) fn places_in(&self, slot: u32) -> Vec<(ObjectKey, ObjectPlace)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            shard.lock().table.each(|key, place| {
                if place.slot() == slot {
                    found.push((*key, place));
                }
            });
        }
        found
    }

    /// Returns the number of objects and the bytes of memory of the index.
    pub(crate) fn size(&self) -> (u64, u64) {
        let fixed = self.shards.len() * size_of::<Mutex<Shard>>();
        self.shards.iter().fold((0, fixed as u64), |(objects, bytes), shard| {
            let shard = shard.lock();
            (objects + shard.table.len() as u64, bytes + shard.table.bytes() as u64)
        })
    }
}

impl Shard {
    fn remove(&mut self, index: &Index, hash: u64, key: &ObjectKey) -> Option<ObjectPlace> {
        let place = self.table.remove(hash, key, |key| index.hash(key))?;
        self.removed = self.removed.max(place.sequence());
        Some(place)
    }
}

/// A key whose entry nobody else reads or changes.
pub(crate) struct Locked<'a> {
    index: &'a Index,
    shard: MutexGuard<'a, Shard>,
    key: ObjectKey,
    hash: u64,
}

impl Locked<'_> {
    /// Returns where the key's newest object lies.
    pub(crate) fn get(&self) -> Option<ObjectPlace> {
        self.shard.table.get(self.hash, &self.key)
    }

    /// Enters a new object if it is the newest of the key.
    pub(crate) fn offer(&mut self, place: ObjectPlace) -> Offered {
        match self.get() {
            Some(present) if present.sequence() >= place.sequence() => return Offered::Older,
            None if self.shard.removed > place.sequence() => return Offered::Unknown,
            _ => {}
        }
        Offered::Newest(self.set(place))
    }

    /// Enters the copy of an object in place of its original. Returns false if the original is no longer the newest of the key.
    pub(crate) fn exchange(&mut self, original: ObjectPlace, copy: ObjectPlace) -> bool {
        let is_newest = self.get() == Some(original);
        if is_newest {
            self.set(copy);
        }
        is_newest
    }

    /// Removes the key's entry and returns it.
    pub(crate) fn remove(&mut self) -> Option<ObjectPlace> {
        self.shard.remove(self.index, self.hash, &self.key)
    }

    fn set(&mut self, place: ObjectPlace) -> Option<ObjectPlace> {
        self.shard.table.insert(self.hash, self.key, place, |key| self.index.hash(key))
    }
}
