//! Threads that put, read and remove while others sync and compact.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use segments::{ObjectKey, SegmentSettings, SegmentStore};
use testkit::Random;

const SETTINGS: SegmentSettings = SegmentSettings { segment_bytes: 256 << 10, compact_below_percent: 50 };
const WRITERS: u64 = 4;
/// Keys that all threads put.
const SHARED: u64 = 8;

fn key(number: u64) -> ObjectKey {
    ObjectKey(u128::from(number).to_be_bytes())
}

/// Bytes that tell which key they were put under.
fn content(number: u64, random: &mut Random) -> Vec<u8> {
    let seed = random.next();
    let mut bytes = [number.to_le_bytes(), seed.to_le_bytes()].concat();
    let len = seed % 3000;
    bytes.extend(Random(seed).bytes(len as usize));
    bytes
}

fn is_of(number: u64, bytes: &[u8]) -> bool {
    let seed = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    bytes[..8] == number.to_le_bytes() && bytes[16..] == Random(seed).bytes((seed % 3000) as usize)
}

/// One writer: its own keys against a map, shared keys against what they say of themselves.
fn write(store: &SegmentStore, thread: u64) -> HashMap<u64, Vec<u8>> {
    let mut random = Random(thread);
    let mut model = HashMap::new();
    for _ in 0..2500 {
        let own = 1000 * (thread + 1) + random.below(60);
        match random.below(10) {
            0..4 => {
                let bytes = content(own, &mut random);
                store.put(key(own), &bytes).unwrap();
                model.insert(own, bytes);
            }
            4..6 => assert_eq!(store.remove(&key(own)), model.remove(&own).is_some()),
            6 => {
                let shared = random.below(SHARED);
                store.put(key(shared), &content(shared, &mut random)).unwrap();
            }
            7 => drop(store.remove(&key(random.below(SHARED)))),
            8 => {
                let shared = random.below(SHARED);
                let found = store.get(&key(shared)).map(|object| object.read_verified().unwrap());
                assert!(found.is_none_or(|found| is_of(shared, &found)));
            }
            _ => {
                let found = store.get(&key(own)).map(|object| object.read_verified().unwrap());
                assert_eq!(found.as_ref(), model.get(&own));
            }
        }
    }
    model
}

#[test]
fn threads_that_put_read_remove_sync_and_compact_disturb_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let store = SegmentStore::open(directory.path(), SETTINGS).unwrap();
    let ended = AtomicBool::new(false);
    let model: HashMap<u64, Vec<u8>> = std::thread::scope(|scope| {
        let compact = |store: &SegmentStore| drop(store.compact_step().unwrap());
        for work in [compact, |store: &SegmentStore| store.sync().unwrap()] {
            let (store, ended) = (&store, &ended);
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    work(store);
                    std::thread::yield_now();
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || write(store, thread))
            })
            .collect();
        // Joins before the first failure is told: the others would go on for ever.
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::Release);
        written.into_iter().flat_map(|written| written.unwrap()).collect()
    });
    let check = |store: &SegmentStore| {
        for (number, bytes) in &model {
            assert_eq!(&store.get(&key(*number)).unwrap().read_verified().unwrap(), bytes);
        }
    };
    check(&store);
    let shared: Vec<_> =
        (0..SHARED).map(|number| store.get(&key(number)).map(|found| found.read_verified().unwrap())).collect();
    drop(store);
    let store = SegmentStore::open(directory.path(), SETTINGS).unwrap();
    check(&store);
    // The version that was seen last is the one that comes back.
    for (number, seen) in shared.iter().enumerate().filter(|(_, seen)| seen.is_some()) {
        assert_eq!(&store.get(&key(number as u64)).map(|found| found.read_verified().unwrap()), seen);
    }
}

#[test]
fn a_hundred_thousand_objects_are_there_in_a_moment_by_their_footers() {
    let directory = tempfile::tempdir().unwrap();
    let settings = SegmentSettings { segment_bytes: 4 << 20, ..SegmentSettings::default() };
    let store = SegmentStore::open(directory.path(), settings).unwrap();
    for number in 0..100_000_u64 {
        store.put(key(number), &number.to_le_bytes().repeat(8)).unwrap();
    }
    let usage = store.usage();
    assert_eq!(usage.objects, 100_000);
    let bytes_each = usage.index_bytes / usage.objects;
    assert!((36..48).contains(&bytes_each), "{bytes_each} bytes of memory an object");
    store.close().unwrap();
    drop(store);
    let begin = Instant::now();
    let store = SegmentStore::open(directory.path(), settings).unwrap();
    let took = begin.elapsed();
    assert_eq!((store.opening().scanned, store.usage().objects), (0, 100_000));
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
    assert_eq!(store.get(&key(77_777)).unwrap().read_verified().unwrap(), 77_777_u64.to_le_bytes().repeat(8));
}

#[test]
fn an_object_is_taken_from_a_file_from_its_begin_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = SegmentStore::open(&directory.path().join("segments"), SETTINGS).unwrap();
    let path = directory.path().join("file");
    for (number, len) in [70_000_u64, 0, 5, 4096].into_iter().enumerate() {
        let bytes = Random(len).bytes(len as usize);
        std::fs::write(&path, &bytes).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        store.put_file(key(number as u64), file.as_fd(), len).unwrap();
        assert_eq!(store.get(&key(number as u64)).unwrap().read_verified().unwrap(), bytes);
        // A file that is shorter leaves the former object.
        let error = store.put_file(key(number as u64), file.as_fd(), len + 1).unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::NODATA.raw_os_error());
        assert_eq!(store.get(&key(number as u64)).unwrap().len(), len);
    }
    let file = std::fs::File::open(&path).unwrap();
    let error = store.put_file(key(1), file.as_fd(), 2 << 20).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::FBIG.raw_os_error());
}
