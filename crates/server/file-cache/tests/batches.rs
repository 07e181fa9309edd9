//! Batches: small files closed one after the other are staged out together. Waits for a stage-out can be interrupted.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use types::HasErrno;

use config::Policy;
use data_store::{DataStore, DrainProgress, OpenHow, Residency};
use file_cache::limits::CONCLUDED_FILES;
use global_store::GlobalStore;
use global_store::posix::{PosixStore, StoreOptions};
use models::global::StoreOperation;
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, World, until, without_room};
use testkit::TempTree;

#[test]
fn small_files_closed_during_a_batch_make_the_next_one() {
    let world = World::with(|settings| {
        settings.background = true;
        settings.streams = 4;
    });
    let (entered, released) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (enters, leaves) = (Arc::clone(&entered), Arc::clone(&released));
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Sync) && !enters.swap(true, Ordering::AcqRel) {
            until("the others are closed", || leaves.load(Ordering::Acquire));
        }
    })));
    world.write_new("first", b"first");
    until("the first is being synced", || entered.load(Ordering::Acquire));
    for number in 0..100 {
        world.write_new(&format!("f{number}"), &[number; 1000]);
    }
    let syncs = || world.store.journal().iter().filter(|e| matches!(e.operation, StoreOperation::SyncStore)).count();
    assert_eq!(syncs(), 0, "nobody else takes them while the first is under way");
    released.store(true, Ordering::Release);
    until("all are staged out", || world.cache.counters().clean == 101);
    let alone = world.store.journal().iter().filter(|e| matches!(e.operation, StoreOperation::Sync)).count();
    // Another worker may hold one of them for the moment in which it sees that it is not its turn.
    assert!(syncs() + alone <= 8, "{} batches and {alone} files alone", syncs());
    assert!((0..100).all(|number| world.store.read(format!("f{number}")).unwrap() == [number; 1000]));
    world.cache.shutdown();
}

/// The mark is set with the file's gate held: a store may take a millisecond for it, or hang.
#[test] // S19
fn who_opens_a_file_of_a_batch_waits_for_a_few_others_of_it_and_not_for_all() {
    const FILES: usize = 200;
    let world = World::new();
    world.store.set_shared(true);
    (0..FILES).for_each(|number| world.write_new(&format!("f{number}"), b"data"));
    let (unmarking, opened) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
    let (cache, policy) = (world.cache.clone(), Arc::clone(&world.policy));
    let anchors: Vec<_> = (0..FILES).map(|number| world.anchor(&format!("f{number}"))).collect();
    let readers = Arc::new(Mutex::new(Vec::new()));
    let joins = Arc::clone(&readers);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if !matches!(operation, StoreOperation::SetMark(None)) || unmarking.swap(true, Ordering::AcqRel) {
            return;
        }
        for anchor in &anchors {
            let (cache, anchor, opened) = (cache.clone(), Arc::clone(anchor), Arc::clone(&opened));
            let policy = Arc::clone(&policy);
            joins.lock().unwrap().push(std::thread::spawn(move || {
                let how = OpenHow { read: true, policy, ..OpenHow::default() };
                drop(cache.open_file(anchor, how).unwrap());
                opened.fetch_add(1, Ordering::AcqRel);
            }));
        }
        until("most of the others are opened", || opened.load(Ordering::Acquire) >= FILES - CONCLUDED_FILES);
    })));
    world.drain();
    readers.lock().unwrap().drain(..).for_each(|reader| reader.join().unwrap());
    assert_eq!(world.cache.counters().clean, FILES as u64);
}

#[test]
fn a_stage_out_that_waits_for_its_rate_is_interrupted() {
    let world = World::new();
    let policy = Arc::new(Policy { rate_bytes_per_s: 1000, ..Policy::default() });
    world.store.create("f");
    let how = OpenHow { created: true, policy, ..world.how(true) };
    world.cache.open_file(world.anchor("f"), how).unwrap().write(&[1; 1 << 20], 0).unwrap();
    let interrupted = Arc::new(AtomicBool::new(false));
    let (cache, identity, asked) = (world.cache.clone(), world.identity("f"), Arc::clone(&interrupted));
    let drain =
        std::thread::spawn(move || cache.drain(Some(&identity), &mut |_| {}, &|| asked.load(Ordering::Acquire)));
    interrupted.store(true, Ordering::Release);
    until("the stage-out ends", || drain.is_finished());
    assert_eq!(drain.join().unwrap()[0].errno, libc::EINTR);
    assert_eq!(world.state("f"), Residency::Queued);
}

#[test]
fn a_drain_tells_how_far_it_is_within_a_large_file() {
    const BLOCKS: usize = 8;
    let world = World::new();
    world.write_new("large", &vec![7; BLOCKS * MIB]);
    let (writes, told) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let half = Arc::clone(&told);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Write(_)) && writes.fetch_add(1, Ordering::AcqRel) == BLOCKS / 2 {
            until("half of it is told", || half.load(Ordering::Acquire));
        }
    })));
    let mut progress = |now: DrainProgress| {
        if (now.files_left, now.bytes_left) == (1, (BLOCKS / 2 * MIB) as u64) {
            told.store(true, Ordering::Release);
        }
    };
    assert!(world.cache.drain(None, &mut progress, &|| false).is_empty());
    assert!(told.load(Ordering::Acquire));
}

#[test] // S17
fn two_batches_hear_each_that_what_they_wrote_could_not_be_written_back() {
    testkit::in_private_namespace(|| {
        let tree = TempTree::new();
        let Some(disk) = without_room(&tree) else { return };
        let root = rustix::fs::open(disk.place(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        store.sync().unwrap();
        let points = [store.sync_point().unwrap(), store.sync_point().unwrap()];
        let filled = std::fs::write(tree.path("small/filler"), vec![1; 24 << 20]);
        assert!(filled.is_err_and(|error| error.errno() == Some(libc::ENOSPC)));
        std::fs::write(disk.place().join("file"), vec![2; 8 << 20]).unwrap();
        for point in &points {
            assert!(point.sync().is_err(), "what was written is lost");
        }
        points.iter().for_each(|point| point.sync().expect("it was told"));
    });
}
