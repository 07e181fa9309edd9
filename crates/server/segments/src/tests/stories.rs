//! Stories of a few threads, each in thousands of orders: `cargo test -p segments --features shuttle --lib stories`.
//!
//! `FOREBAY_ORDERS` says how many orders of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn explore(story: impl Fn() + Send + Sync + 'static) {
    let orders = std::env::var("FOREBAY_ORDERS").ok().and_then(|orders| orders.parse().ok()).unwrap_or(2000);
    concurrency::explore(orders, story);
}

/// Runs all in threads of their own and waits for them.
fn together(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let begun = threads.into_iter().map(|thread| concurrency::spawn_joined("story", thread).unwrap());
    begun.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_was_put_before_a_sync_is_durable_after_it_whoever_runs_it() {
    explore(|| {
        let medium = SimulatedMedium::new();
        let store = Arc::new(open(&medium));
        let threads = (0..3).map(|number| {
            let (store, medium) = (store.clone(), medium.clone());
            Box::new(move || {
                for round in 0..2 {
                    store.put(key(number), &[round; 10]).unwrap();
                    store.sync().unwrap();
                    let found = get(&open(&medium.worst_crash()), &key(number));
                    assert_eq!(found, Some(vec![round; 10]));
                }
            }) as Box<dyn FnOnce() + Send>
        });
        together(threads.collect());
    });
}

#[test]
fn callers_that_come_while_a_sync_runs_share_the_next() {
    let fewest = Arc::new(AtomicU64::new(u64::MAX));
    let least = fewest.clone();
    explore(move || {
        let store = Arc::new(open(&SimulatedMedium::new()));
        let threads = (0..4).map(|_| {
            let store = store.clone();
            Box::new(move || store.sync().unwrap()) as Box<dyn FnOnce() + Send>
        });
        together(threads.collect());
        let turns = store.group.next() - 1;
        assert!((2..=4).contains(&turns), "{turns} turns for four callers");
        least.fetch_min(turns, Ordering::Relaxed);
    });
    assert_eq!(fewest.load(Ordering::Relaxed), 2, "one runs, and three share the next");
}

#[test]
fn what_was_seen_last_comes_back_whatever_puts_and_removals_met() {
    explore(|| {
        let medium = SimulatedMedium::new();
        let store = Arc::new(open(&medium));
        let put = |bytes: &'static [u8], removes: bool| {
            let store = store.clone();
            Box::new(move || {
                store.put(key(1), bytes).unwrap();
                if removes {
                    store.remove(&key(1));
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![put(b"one", false), put(b"two", true), put(b"three", false)]);
        let seen = get(&store, &key(1));
        assert!(seen.is_none() || seen == get(&open(&medium.copy()), &key(1)), "{seen:?}");
    });
}

#[test]
fn a_compaction_moves_objects_under_readers_and_writers_and_a_crash() {
    explore(|| {
        let medium = SimulatedMedium::new();
        let store = Arc::new(open(&medium));
        (0..5).for_each(|number| store.put(key(number), &[number as u8; 9000]).unwrap());
        store.sync().unwrap();
        // One live object of three is left in a full segment.
        store.remove(&key(0));
        store.remove(&key(2));
        let (compacting, reading, crashing) = (store.clone(), store.clone(), medium.clone());
        together(vec![
            Box::new(move || drop(compacting.compact_step().unwrap())),
            Box::new({
                let store = store.clone();
                move || {
                    store.put(key(1), b"newer").unwrap();
                    store.remove(&key(3));
                }
            }),
            Box::new(move || {
                for _ in 0..2 {
                    let found = get(&reading, &key(1)).unwrap();
                    assert!(found == [1; 9000] || found == b"newer");
                    let crashed = open(&crashing.worst_crash());
                    let found = get(&crashed, &key(1)).unwrap();
                    assert!(found == [1; 9000] || found == b"newer");
                    assert_eq!(get(&crashed, &key(4)), Some(vec![4; 9000]));
                }
            }),
        ]);
        assert_eq!(get(&store, &key(1)), Some(b"newer".to_vec()));
        assert_eq!((store.get(&key(3)).is_none(), store.usage().objects), (true, 2));
        compact(&store);
        assert_eq!(store.usage().objects, 2);
    });
}
