//! When segments go, and what stays with those who read them.

use testkit::Random;

use super::*;

/// Fills segments until there are so many. Returns the keys.
fn fill(store: &SegmentStore, segments: u64, from: u64) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    while store.usage().segments < segments {
        keys.push(key(from + keys.len() as u64));
        store.put(keys[keys.len() - 1], &[keys.len() as u8; 3000]).unwrap();
    }
    keys
}

#[test]
fn a_segment_goes_with_its_last_live_object_and_readers_keep_it() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    let keys = fill(&store, 3, 0);
    let held = store.get(&keys[0]).unwrap();
    assert_eq!(medium.files().len(), 3);
    for key in &keys[..keys.len() - 1] {
        assert!(store.remove(key));
        assert!(!store.remove(key));
    }
    // The last one's segment is being filled.
    assert_eq!((store.usage().segments, medium.files().len(), store.usage().objects), (1, 1, 1));
    assert_eq!(held.read_verified().unwrap(), [1; 3000]);
    let mut part = [0; 10];
    assert_eq!(
        (held.len(), held.read_at(&mut part, 2995).unwrap(), held.read_at(&mut part, 3000).unwrap()),
        (3000, 5, 0)
    );
    assert_eq!(part[..5], [1; 5]);
}

#[test]
fn retain_drops_what_the_owner_does_not_know_and_its_segments() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    let keys = fill(&store, 4, 0);
    store.close().unwrap();
    drop(store);
    let store = open(&medium);
    assert_eq!((store.opening().by_footer, store.opening().scanned), (4, 0));
    let last = keys[keys.len() - 1];
    store.retain(|key| *key == last);
    assert_eq!((store.usage().segments, store.usage().objects), (1, 1));
    assert!(store.get(&keys[0]).is_none() && store.get(&last).is_some());
}

#[test]
fn a_reader_keeps_its_version_through_an_overwrite_and_a_compaction() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    let keys = fill(&store, 3, 0);
    let held: Vec<_> = keys.iter().map(|key| store.get(key).unwrap()).collect();
    keys.iter().for_each(|key| store.put(*key, b"newer").unwrap());
    store.sync().unwrap();
    compact(&store);
    for (number, object) in held.iter().enumerate() {
        assert_eq!(object.read_verified().unwrap(), [number as u8 + 1; 3000]);
    }
    keys.iter().for_each(|key| assert_eq!(get(&store, key), Some(b"newer".to_vec())));
}

#[test]
fn compaction_rewrites_segments_of_few_live_objects_and_no_others() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    let keys = fill(&store, 9, 0);
    let steps = compact(&store);
    assert_eq!(steps.len(), 8, "full segments are sealed: {steps:?}");
    assert!(steps.iter().all(|step| matches!(step, CompactionStep::Sealed { .. })));
    // A third is left of each segment.
    let (kept, removed): (Vec<_>, Vec<_>) = keys.iter().enumerate().partition(|(number, _)| number % 3 == 0);
    removed.iter().for_each(|(_, key)| _ = store.remove(key));
    let before = store.usage();
    let steps = compact(&store);
    let rewritten = steps.iter().filter(|step| matches!(step, CompactionStep::Rewritten { freed_bytes: 1.., .. }));
    assert_eq!(rewritten.count(), 8, "{steps:?}");
    let after = store.usage();
    assert!(
        after.media_bytes < before.media_bytes / 2 && after.live_bytes == before.live_bytes,
        "{before:?} {after:?}"
    );
    for (number, key) in kept {
        assert_eq!(get(&store, key), Some(vec![number as u8 + 1; 3000]));
    }
}

#[test]
fn a_damaged_object_keeps_its_segment_until_it_is_removed() {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    let keys = fill(&store, 2, 0);
    compact(&store);
    let (name, mut bytes) = medium.files().into_iter().next().unwrap();
    drop(store);
    // One byte of the third object.
    bytes[4096 + 2 * 3048 + 1000] ^= 1;
    medium.set(&name, bytes);
    let store = open(&medium);
    assert_eq!(store.opening().by_footer, 1);
    keys[5..].iter().for_each(|key| _ = store.remove(key));
    (3..5).for_each(|number| _ = store.remove(&keys[number]));
    let steps = compact(&store);
    let reported: Vec<_> = steps
        .iter()
        .filter_map(|step| if let CompactionStep::Rewritten { damaged, .. } = step { Some(damaged) } else { None })
        .flatten()
        .collect();
    let [object] = &reported[..] else { panic!("{steps:?}") };
    assert_eq!((object.key, object.offset), (keys[2], 4096 + 2 * 3048));
    assert!(object.path.ends_with(&name), "{object:?}");
    assert_eq!(store.usage().damaged_objects, 1);
    let error = store.get(&keys[2]).unwrap().read_verified().unwrap_err();
    assert!(error.to_string().contains(&keys[2].to_string()) && error.to_string().contains(&name), "{error}");
    assert_eq!(get(&store, &keys[0]), Some(vec![1; 3000]));
    store.sync().unwrap();
    assert!(medium.files().contains_key(&name));
    store.remove(&keys[2]);
    assert!(!medium.files().contains_key(&name));
    assert_eq!(store.usage().damaged_objects, 0);
}

#[test]
fn lengths_are_bounded_and_the_longest_object_is_whole() {
    let medium = SimulatedMedium::new();
    let settings = SegmentSettings { segment_bytes: 4 << 20, ..SETTINGS };
    let store = SegmentStore::open_on(Box::new(medium.clone()), settings).unwrap();
    let longest = Random(1).bytes(1 << 20);
    store.put(key(1), &longest).unwrap();
    store.put(key(2), &[]).unwrap();
    assert_eq!(store.put(key(1), &[0; (1 << 20) + 1]).unwrap_err().errno(), rustix::io::Errno::FBIG.raw_os_error());
    assert_eq!((get(&store, &key(1)), get(&store, &key(2))), (Some(longest), Some(Vec::new())));
    // The longest object that a small segment takes, and one byte more.
    let store = open(&SimulatedMedium::new());
    let error = store.put(key(1), &[0; 32 << 10]).unwrap_err();
    let crate::SegmentError::TooLarge { most, .. } = error else { panic!("{error}") };
    store.put(key(1), &vec![7; most as usize]).unwrap();
    assert!(store.put(key(1), &vec![7; most as usize + 1]).is_err());
    assert_eq!(get(&store, &key(1)), Some(vec![7; most as usize]));
    for segment_bytes in [0, (16 << 10) - 1, (1 << 30) + 1] {
        let settings = SegmentSettings { segment_bytes, ..SETTINGS };
        assert!(SegmentStore::open_on(Box::new(SimulatedMedium::new()), settings).is_err());
    }
}

#[test]
fn openings_go_on_in_the_newest_segment() {
    let medium = SimulatedMedium::new();
    for round in 0..30 {
        let store = open(&medium);
        store.put(key(round), &[round as u8; 700]).unwrap();
        if round % 2 == 0 {
            store.close().unwrap();
            // Nothing is there to be done.
            assert_eq!(store.compact_step().unwrap(), CompactionStep::Nothing);
        }
        assert_eq!(store.usage().segments, 1 + round / 38, "round {round}");
    }
    let store = open(&medium);
    (0..30).for_each(|round| assert_eq!(get(&store, &key(round)), Some(vec![round as u8; 700])));
}
