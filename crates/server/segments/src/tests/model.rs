//! Random changes against a map, on the simulated medium and on the system's files.

use std::collections::HashMap;

use testkit::Random;

use super::*;

type Model = HashMap<ObjectKey, Vec<u8>>;

fn agrees(store: &SegmentStore, model: &Model, keys: u64, context: &str) {
    for number in 0..keys {
        let key = key(number);
        let found = get(store, &key);
        assert_eq!(found.as_ref(), model.get(&key), "{context}, key {number}");
        assert_eq!(store.get(&key).map(|object| object.len() as usize), model.get(&key).map(Vec::len));
    }
    assert_eq!(store.usage().objects, model.len() as u64, "{context}");
}

/// Runs random steps. `reopen` takes the store and returns it opened again.
fn run(seed: u64, steps: u64, mut store: SegmentStore, reopen: &dyn Fn(SegmentStore) -> SegmentStore) {
    let mut random = Random(seed);
    let keys = 20 + random.below(200);
    let mut model = Model::new();
    for step in 0..steps {
        let context = format!("seed {seed}, step {step}");
        let which = key(random.below(keys));
        match random.below(100) {
            0..60 => {
                let bytes = value(&mut random);
                store.put(which, &bytes).unwrap();
                model.insert(which, bytes);
            }
            60..90 => assert_eq!(store.remove(&which), model.remove(&which).is_some(), "{context}"),
            90..94 => store.sync().unwrap(),
            94..98 => drop(store.compact_step().unwrap()),
            98 => {
                let found = store.get(&which);
                let mut part = [0; 100];
                let from = random.below(1000);
                let count = found.map_or(0, |found| found.read_at(&mut part, from).unwrap());
                let expected = model.get(&which).and_then(|bytes| bytes.get(from as usize..)).unwrap_or_default();
                assert_eq!(part[..count], expected[..expected.len().min(100)], "{context}");
            }
            _ if random.below(4) > 0 => {}
            _ => {
                if random.below(2) == 0 {
                    store.close().unwrap();
                }
                store = reopen(store);
                assert!(store.opening().damaged_objects == 0 && store.opening().unreadable.is_empty(), "{context}");
                // Removed ones may be back.
                store.retain(|key| model.contains_key(key));
                agrees(&store, &model, keys, &context);
            }
        }
    }
    agrees(&store, &model, keys, "at the end");
    compact(&store);
    agrees(&store, &model, keys, "after compaction");
    let usage = store.usage();
    assert!(usage.media_bytes <= usage.segments * SETTINGS.segment_bytes, "seed {seed}: {usage:?}");
    let least = 2 * usage.live_bytes + 4 * SETTINGS.segment_bytes;
    assert!(usage.media_bytes <= least + usage.media_bytes / 4, "seed {seed}: {usage:?}");
}

#[test]
fn the_store_is_a_map_through_syncs_compactions_and_openings() {
    for seed in 0..12 {
        let medium = if seed % 3 == 0 { SimulatedMedium::without_allocation() } else { SimulatedMedium::new() };
        run(seed, 2000, open(&medium), &|store| {
            drop(store);
            open(&medium)
        });
    }
}

#[test]
fn the_store_is_a_map_on_the_systems_files() {
    for seed in 100..103 {
        let directory = tempfile::tempdir().unwrap();
        let open = || SegmentStore::open(directory.path(), SETTINGS).unwrap();
        run(seed, 1500, open(), &|store| {
            assert!(SegmentStore::open(directory.path(), SETTINGS).is_err(), "a second store of one directory");
            drop(store);
            open()
        });
    }
}
