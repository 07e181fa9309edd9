//! Crashes of the machine at random moments: everything synced is there, everything else is whole or absent.

use std::collections::HashMap;

use testkit::Random;

use super::*;

/// Versions of one key that a crash may leave.
#[derive(Default, Clone)]
struct Allowed {
    now: Option<Vec<u8>>,
    versions: Vec<Vec<u8>>,
    /// Everything that was ever put.
    ever: Vec<Vec<u8>>,
    /// Whether one of the versions must be there.
    must: bool,
}

impl Allowed {
    fn put(&mut self, bytes: Vec<u8>) {
        self.now = Some(bytes.clone());
        self.ever.push(bytes.clone());
        self.versions.push(bytes);
    }

    fn remove(&mut self) {
        // A removal is not durable, and an earlier version may outlive a later one.
        (self.now, self.must, self.versions) = (None, false, self.ever.clone());
    }

    fn synced(&mut self) {
        if let Some(now) = &self.now {
            (self.versions, self.must) = (vec![now.clone()], true);
        }
    }

    /// Adds what the step from `self` to `after` may have done by any moment of it.
    fn or(&mut self, after: &Allowed) {
        self.versions.extend(after.versions.iter().cloned());
        self.must &= after.must || after.now.is_some();
    }

    fn found(&mut self, found: Option<Vec<u8>>, context: &str) {
        assert!(found.is_some() || !self.must, "{context}: a synced object is gone");
        let known = found.as_ref().is_none_or(|found| self.versions.contains(found));
        assert!(known, "{context}: {} bytes that were never put, or are older than synced ones", found.unwrap().len());
        if found.is_some() {
            (self.versions, self.must) = (found.iter().cloned().collect(), true);
        }
        self.now = found;
    }
}

type Oracle = HashMap<ObjectKey, Allowed>;

/// Does one random step and notes it.
fn step(store: &SegmentStore, oracle: &mut Oracle, keys: u64, random: &mut Random) {
    let which = key(random.below(keys));
    match random.below(100) {
        0..70 => {
            let bytes = value(random);
            store.put(which, &bytes).unwrap();
            oracle.entry(which).or_default().put(bytes);
        }
        70..88 => {
            store.remove(&which);
            oracle.entry(which).or_default().remove();
        }
        88..92 => {
            store.sync().unwrap();
            oracle.values_mut().for_each(Allowed::synced);
        }
        92..98 => {
            store.compact_step().unwrap();
        }
        _ if random.below(5) == 0 => {
            store.close().unwrap();
            oracle.values_mut().for_each(Allowed::synced);
        }
        _ => {}
    }
}

fn check(store: &SegmentStore, oracle: &mut Oracle, context: &str) {
    for (key, allowed) in oracle {
        allowed.found(get(store, key), context);
    }
}

/// Checks after the death of the process alone: what was put last is there, and what was removed may be.
fn check_alive(store: &SegmentStore, oracle: &mut Oracle, context: &str) {
    for (key, allowed) in oracle {
        let found = get(store, key);
        assert!(allowed.now.is_none() || found == allowed.now, "{context}: an object is not the last that was put");
        assert!(found.as_ref().is_none_or(|found| allowed.ever.contains(found)), "{context}");
        allowed.now = found;
    }
}

#[test]
fn a_crash_of_the_machine_keeps_what_was_synced_and_nothing_half() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let keys = 5 + random.below(400);
        let mut medium = if seed % 4 == 0 { SimulatedMedium::without_allocation() } else { SimulatedMedium::new() };
        let mut oracle = Oracle::new();
        for round in 0..8 {
            let context = format!("seed {seed}, round {round}");
            let mut store = open(&medium);
            check(&store, &mut oracle, &context);
            for _ in 0..random.below(400) {
                match random.below(40) {
                    // What a crash at this moment would leave.
                    0 => check(&open(&medium.crash(&mut random)), &mut oracle.clone(), &context),
                    1..5 => medium.look_after(random.below(30), random.next()),
                    // The process dies, and the machine does not.
                    5 if random.below(3) == 0 => {
                        drop(store);
                        store = open(&medium);
                        check_alive(&store, &mut oracle, &context);
                    }
                    _ => {}
                }
                let before = medium.is_looked_for().then(|| oracle.clone());
                step(&store, &mut oracle, keys, &mut random);
                if let (Some(looked), Some(mut before)) = (medium.look(), before) {
                    for (key, after) in &oracle {
                        before.entry(*key).or_default().or(after);
                    }
                    check(&open(&looked), &mut before, &context);
                }
            }
            medium = medium.crash(&mut random);
        }
    }
}

#[test]
fn an_older_object_that_was_synced_is_there_if_a_crash_loses_the_newer_one() {
    let mut random = Random(1);
    for round in 0..200 {
        let medium = SimulatedMedium::new();
        let store = open(&medium);
        store.put(key(1), b"former").unwrap();
        store.sync().unwrap();
        // The former object's segment has nothing alive left, and is full.
        store.put(key(1), b"newer").unwrap();
        for number in 10..14 {
            store.put(key(number), &random.bytes(9000)).unwrap();
        }
        if round % 2 == 0 {
            (10..14).for_each(|number| _ = store.remove(&key(number)));
        }
        let found = get(&open(&medium.crash(&mut random)), &key(1));
        assert!(found == Some(b"former".to_vec()) || found == Some(b"newer".to_vec()), "round {round}: {found:?}");
        store.sync().unwrap();
        assert_eq!(get(&open(&medium.crash(&mut random)), &key(1)), Some(b"newer".to_vec()));
    }
}

#[test]
fn an_object_that_a_dead_process_superseded_is_there_until_the_newer_one_is_durable() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    (1..4).for_each(|number| store.put(key(number), &[1; 9000]).unwrap());
    store.close().unwrap();
    store.put(key(1), &[2; 9000]).unwrap();
    drop(store);
    // The process died, and the machine dies before the next sync.
    let store = open(&medium);
    store.retain(|which| *which == key(1));
    assert_eq!((get(&store, &key(1)), store.usage().segments), (Some(vec![2; 9000]), 2));
    assert_eq!(get(&open(&medium.worst_crash()), &key(1)), Some(vec![1; 9000]));
    store.sync().unwrap();
    assert_eq!((get(&open(&medium.worst_crash()), &key(1)), store.usage().segments), (Some(vec![2; 9000]), 1));
}
