//! Status of files that cannot be staged out, and counters.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use config::{Cache, Policy, StageOut};
use data_store::{OpenHow, Residency};
use file_cache::FileCache;
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, World};

/// Number of files, more than anchors are kept.
const MANY: usize = file_cache::limits::ANCHORS_KEPT + 100;

/// Returns how many files had to be searched when many were staged out, after their directory was renamed.
fn found_again(finds_by_identity: bool) -> u64 {
    let mut world = World::new();
    world.policy = Arc::new(Policy { stage_out: StageOut::Manual, ..Policy::default() });
    world.store.set_finds_by_identity(finds_by_identity);
    for number in 0..MANY {
        world.write_new(&format!("d/f{number}"), b"data");
    }
    for number in 0..MANY {
        world.store.rename(format!("d/f{number}"), format!("e/f{number}")).unwrap();
    }
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        counted.fetch_add(u64::from(matches!(operation, StoreOperation::Locate)), Ordering::Relaxed);
    })));
    world.drain();
    assert!((0..MANY).all(|number| world.store.read(format!("e/f{number}")).unwrap() == b"data"));
    count.load(Ordering::Relaxed)
}

#[test] // S19
fn anchors_are_spared_only_where_files_are_found_again_by_identity() {
    assert!(found_again(true) > 0);
    assert_eq!(found_again(false), 0);
}

#[test]
fn an_unknown_removal_is_an_orphan_where_files_are_not_found_by_identity() {
    let mut world = World::new();
    world.store.set_finds_by_identity(false);
    world.write_new("f", b"data");
    world.cache.removing(&world.identity("f"));
    // Renamed, not removed: the file must not be taken for gone.
    world.store.rename("f", "g").unwrap();
    world.crash();
    let stuck = world.cache.drain_all();
    assert!(stuck.len() == 1 && stuck[0].orphaned, "{stuck:?}");
    assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), b"data");
}

#[test] // S19
fn the_time_of_stage_outs_that_run_at_once_counts_once() {
    const EACH: Duration = Duration::from_millis(5);
    let world = World::with(|settings| settings.streams = 2);
    for name in ["a", "b"] {
        world.write_new(name, &vec![1; 2 * MIB]);
    }
    world.store.set_hook(Some(Arc::new(|operation, _| {
        let start = Instant::now();
        while matches!(operation, StoreOperation::Write(_)) && start.elapsed() < EACH {
            std::thread::yield_now();
        }
    })));
    let start = Instant::now();
    world.drain();
    let (wall, counted) = (start.elapsed(), Duration::from_micros(world.cache.counters().staged_out_us));
    assert!(counted >= EACH && counted <= wall, "{counted:?} of {wall:?}");
}

/// A program's scratch files cost the global store nothing while it runs, and are not lost when it ends.
#[test] // S19
fn scratch_is_staged_out_by_a_command_alone_and_at_the_end() {
    let world = World::with(|settings| settings.background = true);
    let scratch = Arc::new(Policy { cache: Cache::Scratch, ..Policy::default() });
    world.store.create("scratch");
    let how = OpenHow { created: true, policy: scratch, ..world.how(true) };
    world.cache.open_file(world.anchor("scratch"), how).unwrap().write(b"mine", 0).unwrap();
    world.write_new("other", b"data");
    support::until("the other file to be below", || world.state("other") == Residency::Clean);
    assert_eq!(world.state("scratch"), Residency::Queued);
    assert_eq!(world.store.read("scratch").unwrap(), b"");
    end(&world.cache);
    assert_eq!(world.store.read("scratch").unwrap(), b"mine");
}

fn end(cache: &FileCache) {
    assert!(cache.drain_all().is_empty());
    cache.shutdown();
}

#[test]
fn each_open_is_a_hit_a_miss_or_none_of_them() {
    let world = World::new();
    let counted = |open: &dyn Fn()| {
        let before = world.cache.activity();
        open();
        let after = world.cache.activity();
        (after.hits - before.hits, after.misses - before.misses)
    };
    let truncate = |name: &str| {
        let how = OpenHow { truncate: true, ..world.how(true) };
        drop(world.cache.open_file(world.anchor(name), how).unwrap());
    };
    world.store.put("small", b"old");
    world.store.put("large", &vec![1; 3 * MIB]);
    assert_eq!(counted(&|| drop(world.open("small", false))), (0, 1));
    assert_eq!(counted(&|| drop(world.open("small", false))), (1, 0));
    // The replica would have to be synced before: an empty one replaces it, and needs no data.
    assert_eq!(counted(&|| truncate("small")), (0, 0));
    assert_eq!(counted(&|| truncate("small")), (1, 0));
    // The file is complete before its writer gets it.
    assert_eq!(counted(&|| drop(world.open("large", true))), (0, 1));
    world.store.put("cut", &vec![1; 3 * MIB]);
    assert_eq!(counted(&|| truncate("cut")), (0, 0));
    assert_eq!(counted(&|| drop(world.create("new"))), (0, 0));
}

#[test]
fn what_is_being_staged_out_is_dirty_and_a_failure_has_its_file_and_its_cause() {
    let world = World::new();
    world.store.put("d/f", b"old");
    world.open("d/f", true).write(b"new", 0).unwrap();
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Write(_));
    world.store.fail(Fault { matching, ..Fault::default() });
    assert!(!world.drain_quietly());
    let status = world.cache.counters();
    assert_eq!((status.dirty, status.draining, status.errors), (1, 1, 1));
    let (path, reason) = status.failure.unwrap();
    assert_eq!(path, "d/f");
    assert!(reason.contains("Input/output error"), "{reason}");
}

#[test]
fn the_time_of_stage_ins_that_run_at_once_counts_once() {
    const EACH: Duration = Duration::from_millis(20);
    let world = World::new();
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| drop(world.store.put(*name, b"data")));
    world.store.set_hook(Some(Arc::new(|operation, _| {
        let start = Instant::now();
        while matches!(operation, StoreOperation::Read(_)) && start.elapsed() < EACH {
            std::thread::yield_now();
        }
    })));
    let start = Instant::now();
    std::thread::scope(|scope| {
        names.iter().for_each(|name| drop(scope.spawn(|| drop(world.open(name, false)))));
    });
    let (wall, counted) = (start.elapsed(), Duration::from_micros(world.cache.counters().staged_in_us));
    assert!(counted >= EACH && counted <= wall, "{counted:?} of {wall:?}");
}
