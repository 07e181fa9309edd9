//! Hostile and damaged bytes: nothing panics, nothing that was not put is found, and what is whole is found.

use std::collections::HashMap;

use testkit::Random;

use super::*;
use crate::layout::{DATA_START, ENTRY_BYTES, ObjectEntry, SegmentHeader, TRAILER_BYTES};

/// A store's files with some objects, and the objects.
fn filled(random: &mut Random, sealed: bool) -> (SimulatedMedium, HashMap<ObjectKey, Vec<u8>>) {
    let medium = SimulatedMedium::new();
    let store = open(&medium);
    let mut objects = HashMap::new();
    for number in 0..24 {
        let bytes = value(random);
        store.put(key(number), &bytes).unwrap();
        objects.insert(key(number), bytes);
    }
    if sealed {
        store.close().unwrap();
    }
    (medium, objects)
}

/// Opens and uses a store that may be damaged. Returns how many objects were read back.
fn survives(medium: &SimulatedMedium, objects: &HashMap<ObjectKey, Vec<u8>>, context: &str) -> usize {
    let store = open(medium);
    let mut whole = 0;
    for (key, bytes) in objects {
        match store.get(key).map(|object| object.read_verified()) {
            Some(Ok(found)) => {
                assert_eq!(&found, bytes, "{context}");
                whole += 1;
            }
            Some(Err(crate::SegmentError::Damaged(_) | crate::SegmentError::Io { .. })) | None => {}
            Some(Err(error)) => panic!("{context}: {error}"),
        }
    }
    assert!(store.usage().objects as usize <= objects.len(), "{context}");
    store.put(key(1000), b"after").unwrap();
    store.sync().unwrap();
    compact(&store);
    assert_eq!(get(&store, &key(1000)), Some(b"after".to_vec()), "{context}");
    drop(store);
    assert_eq!(get(&open(medium), &key(1000)), Some(b"after".to_vec()), "{context}");
    whole
}

#[test]
fn one_wrong_byte_anywhere_costs_one_object_at_most() {
    for sealed in [false, true] {
        let mut random = Random(5);
        let (medium, objects) = filled(&mut random, sealed);
        assert_eq!(survives(&medium.copy(), &objects, "as it was"), objects.len());
        for (name, bytes) in medium.files() {
            let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            for at in (0..end).filter(|at| *at < 64 || *at >= 4000).step_by(7) {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << random.below(8);
                let copy = medium.copy();
                copy.set(&name, wrong);
                let whole = survives(&copy, &objects, &format!("sealed {sealed}, byte {at} of {name}"));
                assert!(whole >= objects.len() - 1, "sealed {sealed}, byte {at} of {name}: {whole}");
            }
        }
    }
}

#[test]
fn a_length_or_a_region_that_is_lost_costs_what_lay_there() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (medium, objects) = filled(&mut random, seed % 2 == 0);
        for (name, mut bytes) in medium.files() {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            match random.below(4) {
                0 => bytes.truncate(at),
                1 => {
                    let end = bytes.len().min(at + random.below(5000) as usize);
                    bytes[at..end].fill(0);
                }
                2 => {
                    let junk = random.bytes(5000);
                    let end = bytes.len().min(at + junk.len());
                    bytes[at..end].copy_from_slice(&junk[..end - at]);
                }
                _ => bytes.extend(random.bytes(300)),
            }
            medium.set(&name, bytes);
        }
        survives(&medium, &objects, &format!("seed {seed}"));
    }
}

#[test]
fn random_files_are_no_segments_and_are_set_aside() {
    let mut random = Random(9);
    for length in [0, 1, 47, 4095, 4096, 5000, 40_000] {
        let medium = SimulatedMedium::new();
        medium.set("0000000000000007.segment", random.bytes(length));
        medium.set("0000000000000008.segment", vec![0; length]);
        medium.set("other", random.bytes(length));
        let store = open(&medium);
        let aside = usize::from(length > 0);
        assert_eq!(store.opening().unreadable.len(), aside, "{length}");
        store.put(key(1), b"bytes").unwrap();
        let names: Vec<_> = medium.files().into_keys().collect();
        assert!(names.contains(&"0000000000000009.segment".to_owned()) && names.len() == 2 + aside, "{names:?}");
    }
}

#[test]
fn bytes_of_another_life_of_the_file_are_no_objects() {
    let mut random = Random(11);
    let (medium, _) = filled(&mut random, true);
    let (_, former) = medium.files().into_iter().next().unwrap();
    let next = SegmentHeader { id: 77, first_sequence: 1 };
    let mut bytes = next.encode();
    bytes.extend_from_slice(&former[DATA_START as usize..]);
    let medium = SimulatedMedium::new();
    medium.set("0000000000000000.segment", bytes);
    let store = open(&medium);
    assert_eq!((store.usage().objects, store.opening().by_footer, store.opening().scanned), (0, 0, 1));
    assert!(store.opening().torn_bytes > 0);
}

#[test]
fn an_object_that_holds_a_segment_brings_nothing_back() {
    let (medium, objects) = filled(&mut Random(12), false);
    let (name, mut bytes) = medium.files().into_iter().next().unwrap();
    let SegmentHeader { id, .. } = match SegmentHeader::decode(&bytes) {
        crate::layout::Headed::Header(header) => header,
        other => panic!("{other:?}"),
    };
    // An object whose bytes are headers with a wrong checksum, at each place where one could begin.
    let store = open(&medium);
    let mut forged = ObjectEntry::header(id, &key(1), 1 << 40, b"forged").to_vec();
    forged[35] ^= 1;
    store.put(key(500), &forged.repeat(100)).unwrap();
    let place = medium.files()[&name].len();
    drop(store);
    bytes = medium.files().remove(&name).unwrap();
    assert_eq!(place, bytes.len());
    // The header of that object is lost.
    let at = bytes.windows(forged.len()).rposition(|window| window == forged).unwrap();
    bytes[at - 99 * forged.len() - 48] ^= 1;
    medium.set(&name, bytes);
    let store = open(&medium);
    assert!(store.get(&key(500)).is_none() && store.opening().torn_bytes > 4000);
    assert_eq!(get(&store, &key(1)), objects.get(&key(1)).cloned());
}

#[test]
fn another_format_is_refused_and_not_guessed() {
    let medium = SimulatedMedium::new();
    let mut bytes = SegmentHeader { id: 1, first_sequence: 1 }.encode();
    bytes[8] = 2;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes[..32]);
    bytes[32..40].copy_from_slice(&sum.to_le_bytes());
    medium.set("0000000000000000.segment", bytes);
    let refused = SegmentStore::open_on(Box::new(medium), SETTINGS).err().unwrap();
    assert!(matches!(refused, crate::SegmentError::Format { found: 2, known: 1, .. }), "{refused}");
}

#[test]
fn a_footer_changes_nothing_that_is_found() {
    for seed in 0..30 {
        let mut random = Random(seed);
        let medium = SimulatedMedium::new();
        let store = open(&medium);
        for _ in 0..300 {
            let which = key(random.below(60));
            if random.below(3) == 0 {
                drop(store.get(&which))
            } else {
                store.put(which, &value(&mut random)).unwrap()
            }
            if random.below(4) == 0 {
                store.remove(&which);
            }
        }
        store.close().unwrap();
        drop(store);
        let with = medium.copy();
        let without = medium.copy();
        for (name, mut bytes) in medium.files() {
            let trailer = bytes.len() - TRAILER_BYTES;
            let end = u64::from_le_bytes(bytes[trailer + 24..trailer + 32].try_into().unwrap()) as usize;
            assert!(end + ENTRY_BYTES <= trailer);
            match random.below(3) {
                0 => bytes.truncate(end),
                1 => bytes[trailer + 20] ^= 1,
                _ => bytes[end + 3] ^= 1,
            }
            without.set(&name, bytes);
        }
        let (with, without) = (open(&with), open(&without));
        assert_eq!((with.opening().scanned, without.opening().by_footer), (0, 0));
        assert!(with.opening().by_footer > 1 && without.opening().damaged_objects == 0);
        for number in 0..60 {
            assert_eq!(get(&with, &key(number)), get(&without, &key(number)), "seed {seed}, key {number}");
        }
        assert_eq!(with.usage().live_bytes, without.usage().live_bytes);
        // The next opening finds footers again.
        compact(&without);
        without.close().unwrap();
    }
}
