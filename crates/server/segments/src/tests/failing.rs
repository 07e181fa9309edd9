//! Each operation fails once, or goes on failing: the call tells it, nothing is lost, and the store can be used.

use std::collections::HashMap;

use rustix::io::Errno;
use testkit::Random;

use super::simulated::Operation::{self, Allocate, Create, Read, Remove, Sync, SyncNames, Truncate, Write};
use super::*;

const CHANGES: &[Operation] = &[Create, Allocate, Write, Truncate, Sync, SyncNames, Remove];

/// Objects that were acknowledged, and those that were before the last sync that succeeded.
#[derive(Default)]
struct Known {
    acknowledged: HashMap<ObjectKey, Vec<u8>>,
    synced: HashMap<ObjectKey, Vec<u8>>,
}

impl Known {
    /// Puts, syncs and compacts, whatever fails.
    fn work(&mut self, store: &SegmentStore, random: &mut Random) -> Vec<i32> {
        let mut errors = Vec::new();
        for round in 0..60 {
            let (which, bytes) = (key(random.below(30)), value(random));
            match store.put(which, &bytes) {
                Ok(()) => drop(self.acknowledged.insert(which, bytes)),
                Err(error) => errors.push(error.errno()),
            }
            // The former object is there after an error.
            assert_eq!(store.get(&which).is_some(), self.acknowledged.contains_key(&which));
            if round % 7 == 6 {
                match store.sync() {
                    Ok(()) => self.synced = self.acknowledged.clone(),
                    Err(error) => errors.push(error.errno()),
                }
            }
            if round % 5 == 4 {
                errors.extend(store.compact_step().err().map(|error| error.errno()));
            }
        }
        errors
    }

    fn check(&self, store: &SegmentStore, context: &str) {
        for (key, bytes) in &self.acknowledged {
            assert_eq!(get(store, key).as_ref(), Some(bytes), "{context}");
        }
        assert_eq!(store.usage().objects, self.acknowledged.len() as u64, "{context}");
    }
}

#[test]
fn a_failure_of_any_operation_loses_nothing_and_leaves_a_usable_store() {
    let mut met = 0;
    for (error, operations, fail) in [
        (Errno::IO, CHANGES, 1),
        (Errno::IO, CHANGES, 5),
        (Errno::NOSPC, &[Create, Allocate, Write], 1),
        (Errno::NOSPC, &[Create, Allocate, Write], 20),
    ] {
        for pass in 0..120 {
            let context = format!("{error:?}, {fail} after {pass}");
            let medium = if pass % 3 == 0 { SimulatedMedium::without_allocation() } else { SimulatedMedium::new() };
            let (store, mut random, mut known) = (open(&medium), Random(pass), Known::default());
            medium.plant(error, operations, pass, fail);
            let errors = known.work(&store, &mut random);
            assert!(errors.iter().all(|found| *found == error.raw_os_error()), "{context}: {errors:?}");
            known.check(&store, &context);
            // A crash now: what was synced after the failure is there, or something newer.
            let crashed = open(&medium.crash(&mut random));
            known.synced.keys().for_each(|key| assert!(get(&crashed, key).is_some(), "{context}"));
            met += u64::from(medium.heal());
            assert_eq!(known.work(&store, &mut random), [], "{context}");
            store.sync().unwrap();
            compact(&store);
            known.check(&store, &context);
            known.check(&open(&medium.copy()), &context);
            let crashed = open(&medium.crash(&mut random));
            known.check(&crashed, &format!("{context}, crashed"));
        }
    }
    assert!(met > 400, "{met} failures were met");
}

#[test]
fn a_sync_that_failed_is_not_believed_when_the_next_one_succeeds() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    store.put(key(1), b"bytes").unwrap();
    medium.plant(Errno::IO, &[Sync], 0, 1);
    assert_eq!(store.sync().unwrap_err().errno(), Errno::IO.raw_os_error());
    assert!(medium.heal());
    store.sync().unwrap();
    assert_eq!(get(&open(&medium.worst_crash()), &key(1)), Some(b"bytes".to_vec()));
    // The segment that failed goes once its copy is durable.
    store.sync().unwrap();
    assert_eq!(store.usage().segments, 1);
}

#[test]
fn a_full_burst_buffer_refuses_the_object_at_the_begin_of_a_segment() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    store.put(key(1), &[1; 100]).unwrap();
    medium.plant(Errno::NOSPC, &[Allocate], 0, u64::MAX);
    let mut puts = 0;
    let error = loop {
        match store.put(key(1), &[2; 9000]) {
            Ok(()) => puts += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((puts, error.errno()), (3, Errno::NOSPC.raw_os_error()));
    assert_eq!(get(&store, &key(1)), Some(vec![2; 9000]));
    assert_eq!((store.usage().segments, medium.files().len()), (1, 1), "the file that got no room is gone");
    assert!(medium.heal());
    store.put(key(1), &[3; 9000]).unwrap();
    assert_eq!(get(&store, &key(1)), Some(vec![3; 9000]));
}

#[test]
fn reads_that_fail_are_told_and_lose_no_object() {
    let mut met = 0;
    for pass in 0..40 {
        let medium = SimulatedMedium::new();
        let store = open(&medium);
        (0..60).for_each(|number| store.put(key(number), &[number as u8; 3000]).unwrap());
        (0..60).filter(|number| number % 3 > 0).for_each(|number| _ = store.remove(&key(number)));
        store.sync().unwrap();
        medium.plant(Errno::IO, &[Read], 0, 1);
        let error = store.get(&key(15)).unwrap().read_at(&mut [0; 8], 0).unwrap_err();
        assert_eq!(error.errno(), Errno::IO.raw_os_error());
        medium.plant(Errno::IO, &[Read], pass, 3);
        while !matches!(store.compact_step(), Ok(CompactionStep::Nothing)) {}
        met += u64::from(medium.heal());
        for number in (0..60).step_by(3) {
            assert_eq!(get(&store, &key(number)), Some(vec![number as u8; 3000]), "pass {pass}");
        }
    }
    assert!(met > 20, "{met}");
}
