//! Every operation of the global store and every commit of the catalogue fails once, in turn.

mod support;

use std::sync::Arc;

use catalogue::{Catalogue, Durability};
use config::{KeepAfter, Policy};
use data_store::{OpenHow, Residency};
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, World, read};

/// The contents that a file may hold: the last one that a call acknowledged, and those of calls that failed since.
struct Expected {
    name: &'static str,
    may: Vec<Vec<u8>>,
}

impl Expected {
    fn new(name: &'static str, content: Vec<u8>) -> Expected {
        Expected { name, may: vec![content] }
    }

    fn now(&mut self, content: Vec<u8>, done: std::io::Result<()>) {
        if done.is_ok() {
            self.may.clear();
        }
        self.may.push(content);
    }
}

fn patch(world: &World, name: &str, data: &[u8], at: u64) -> std::io::Result<()> {
    let handle = world.cache.open_file(world.anchor(name), world.how(true))?;
    handle.write(data, at).map(|_| ())
}

fn replace(world: &World, name: &str, data: &[u8]) -> std::io::Result<()> {
    let handle = world.cache.open_file(world.anchor(name), OpenHow { truncate: true, ..world.how(true) })?;
    handle.write(data, 0).map(|_| ())
}

/// Runs a story in which anything may fail. Returns the content that must exist afterwards.
fn story(world: &World) -> Vec<Expected> {
    let drain = || drop(world.cache.drain_all());
    world.store.put("large", &vec![1; 3 * MIB + 5]);
    world.store.put("small", b"small");
    world.store.put("cut", &vec![2; 2 * MIB]);
    let mut large = Expected::new("large", vec![1; 3 * MIB + 5]);
    let mut small = Expected::new("small", b"small".to_vec());
    let mut cut = Expected::new("cut", vec![2; 2 * MIB]);
    let mut new = Expected::new("new", Vec::new());

    world.store.create("new");
    let how = OpenHow { created: true, ..world.how(true) };
    let done = world.cache.open_file(world.anchor("new"), how);
    let done = done.and_then(|handle| handle.write(&[3; 1000], 0).map(|_| ()));
    new.now(vec![3; 1000], done);
    let mut content = vec![1; 3 * MIB + 5];
    content[2 * MIB] = 9;
    large.now(content, patch(world, "large", &[9], 2 * MIB as u64));
    drain();
    // From here on a failed truncation may have happened or not, and so may the write after it.
    let done = replace(world, "cut", b"short");
    cut.may.extend(done.is_err().then(Vec::new));
    cut.now(b"short".to_vec(), done);
    small.now(b"SMALL".to_vec(), patch(world, "small", b"SMALL", 0));
    if let Ok(handle) = world.cache.open_file(world.anchor("large"), world.how(false)) {
        let mut buffer = [0; 10];
        assert!(handle.read_at(&mut buffer, 0).map_or(true, |read| buffer[..read] == [1; 10][..read]));
    }
    drain();
    let _ = world.cache.evict(&world.identity("large"));
    let _ = world.cache.stage_in(&world.anchor("large"), &world.policy);
    vec![large, small, cut, new]
}

fn check(world: &World, expected: Vec<Expected>, label: &str) {
    for one in &expected {
        let found = read(&world.open(one.name, false), 4 * MIB);
        assert!(one.may.contains(&found), "{label}: {} reads {} bytes", one.name, found.len());
    }
    let stuck = world.cache.drain_all();
    assert!(stuck.is_empty(), "{label}: {stuck:?}");
    for one in &expected {
        assert!(one.may.contains(&world.store.read(one.name).unwrap()), "{label}: {} differs below", one.name);
    }
    world.cache.sweep().unwrap();
    assert_eq!(world.replicas() as u64, world.cache.counters().files, "{label}");
}

#[test] // S17
fn no_failure_of_one_operation_below_loses_an_acknowledged_byte() {
    for torn in [false, true] {
        for after in 0.. {
            let world = World::new();
            world.store.set_shared(after % 2 == 1);
            world.store.fail(Fault { after, torn, ..Fault::default() });
            let expected = story(&world);
            let reached = world.store.operations() > after;
            world.store.heal();
            check(&world, expected, &format!("operation {after}, torn {torn}"));
            if !reached {
                assert!(after > 55, "the story does too little");
                break;
            }
        }
    }
}

#[test] // S17
fn no_failure_of_one_commit_loses_an_acknowledged_byte() {
    for after in 0.. {
        let mut world = World::new();
        world.catalogue.fail_commits(after, 1);
        let expected = story(&world);
        let reached = world.catalogue.commits() > after;
        world.catalogue.fail_commits(u64::MAX, 0);
        if after % 2 == 0 {
            world.crash();
        }
        check(&world, expected, &format!("commit {after}"));
        if !reached {
            assert!(after > 8, "the story does too little");
            break;
        }
    }
}

/// The commit that makes a file clean fails, but the next start finds it done. Nothing written since may depend on the
/// record before it.
#[test]
fn what_is_written_after_a_clean_record_that_failed_late_is_not_lost() {
    for machine in [false, true] {
        let mut world = World::new();
        world.store.set_shared(true);
        world.write_new("f", b"first");
        world.catalogue.fail_commits_late(1, 2);
        assert_eq!(world.cache.drain_all().len(), 1);
        world.catalogue.commit(Vec::new(), Durability::Machine).unwrap();
        let handle = world.open("f", true);
        assert!(world.anchor("f").mark().unwrap().is_some(), "a dirty file without a mark");
        handle.write(b"later", 0).unwrap();
        if machine {
            handle.fsync().unwrap();
            drop(handle);
            world.machine_crash();
        } else {
            drop(handle);
            world.crash();
        }
        assert_eq!(read(&world.open("f", false), 10), b"later", "machine {machine}");
        world.drain();
        assert_eq!(world.store.read("f").unwrap(), b"later", "machine {machine}");
    }
}

/// The commit of an intent fails, but the next start finds it done. The replica must exist then, or its data would be
/// reported lost.
#[test] // S17
fn an_intent_that_failed_late_is_not_told_as_lost_data() {
    for truncate in [false, true] {
        for failures in [1, 2] {
            let mut world = World::new();
            drop(if truncate { world.store.put("f", b"old") } else { world.store.create("f") });
            world.catalogue.fail_commits_late(0, failures);
            let how = OpenHow { created: !truncate, truncate, ..world.how(true) };
            assert!(world.cache.open_file(world.anchor("f"), how).is_err());
            assert_eq!(world.state("f"), Residency::Absent);
            world.crash();
            let stuck = world.cache.counters().stuck;
            assert!(stuck.is_empty(), "{stuck:?}");
            let before = read(&world.open("f", false), 10);
            assert_eq!(before, if truncate { &b"old"[..] } else { b"" }, "what was refused did not happen");
            world.drain();
            world.cache.sweep().unwrap();
            assert_eq!(world.store.read("f").unwrap(), before);
            assert_eq!(world.replicas() as u64, world.cache.counters().files);
        }
    }
}

#[test] // S17
fn a_catalogue_that_takes_no_changes_is_shown_and_tried_again_by_itself() {
    let world = World::new();
    world.write_new("f", b"before");
    // The commits of the open: that of its intent, and that of the withdrawal.
    world.catalogue.fail_commits(0, 2 + 2);
    world.store.create("g");
    let how = OpenHow { created: true, ..world.how(true) };
    assert!(world.cache.open_file(world.anchor("g"), how.clone()).is_err());
    let shown = world.cache.counters().stuck;
    assert!(shown.iter().any(|stuck| stuck.path.contains("catalogue") && stuck.identity.is_empty()), "{shown:?}");
    assert_eq!(read(&world.open("f", false), 10), b"before", "what is there is read");
    for _ in 0..2 {
        world.cache.housekeep();
        assert_eq!(world.cache.counters().stuck.len(), 1, "a try that failed");
    }
    world.cache.housekeep();
    assert_eq!(world.replicas(), 1, "that of the refused open is gone");
    assert!(world.cache.counters().stuck.is_empty());
    world.cache.open_file(world.anchor("g"), how).unwrap();
}

#[test] // S21
fn what_failed_is_told_with_the_side_that_is_to_be_mended() {
    let world = World::new();
    world.write_new("f", b"data");
    let told = || {
        let drained = world.cache.drain_all();
        let shown = world.cache.counters().stuck;
        let shown = shown.iter().find(|stuck| stuck.path == "f").unwrap();
        assert_eq!(drained[0].reason, shown.reason);
        format!("{}; {}", shown.reason, shown.remedy)
    };
    let writes = |operation: &StoreOperation| matches!(operation, StoreOperation::Write(_));
    world.store.fail(Fault { errno: libc::ENOSPC, matching: writes, ..Fault::default() });
    let full = told();
    assert!(full.starts_with("the global store: No space left on device"), "{full}");
    assert!(full.contains("make room in the global store"), "{full}");
    // The first reason does not hide the present one.
    world.catalogue.fail_commits(0, 1);
    let refused = told();
    assert!(refused.starts_with("the burst buffer: Input/output error"), "{refused}");
    // Also after the copy.
    world.store.fail(Fault { errno: libc::ENOSPC, matching: writes, ..Fault::default() });
    assert!(told().starts_with("the global store"));
    world.catalogue.fail_commits(1, 1);
    let refused = told();
    assert!(refused.starts_with("the burst buffer: Input/output error"), "{refused}");
    world.drain();
    assert!(world.cache.counters().stuck.is_empty());
    // Also if both copies were written: one that cannot be compared, or recorded.
    world.open("f", true).write(b"ours", 0).unwrap();
    world.store.write("f", b"theirs, longer", 0).unwrap();
    let (replica, elsewhere) = (world.replica(), world.dir.path().join("elsewhere"));
    std::fs::rename(&replica, &elsewhere).unwrap();
    let refused = told();
    assert!(refused.starts_with("the burst buffer: No such file"), "{refused}");
    std::fs::rename(&elsewhere, &replica).unwrap();
    world.catalogue.fail_commits(0, 1);
    let refused = told();
    assert!(refused.starts_with("the burst buffer: Input/output error"), "{refused}");
}

#[test] // S17
fn a_store_that_is_gone_for_a_while_costs_nothing() {
    let mut world = World::new();
    world.write_new("f", &vec![1; 2 * MIB]);
    world.store.fail(Fault { times: u64::MAX, ..Fault::default() });
    assert_eq!(world.cache.drain_all().len(), 1);
    world.crash();
    assert_eq!(world.cache.drain_all().len(), 1);
    let stuck = &world.cache.counters().stuck[0];
    assert!(!stuck.reason.is_empty() && !stuck.remedy.is_empty());
    world.store.heal();
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), vec![1; 2 * MIB]);
}

#[test] // S8
fn threads_that_open_write_truncate_and_drain_at_once_agree_in_the_end() {
    let world = World::with(|settings| {
        settings.background = true;
        settings.streams = 3;
    });
    let world = &world;
    for number in 0..6 {
        world.store.put(format!("f{number}"), &vec![0; 2 * MIB + number]);
    }
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut seed = thread + 1;
                for round in 0..60_u8 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let name = format!("f{}", (seed >> 33) % 6);
                    // Each thread has its own byte of each block: the last value written must stay.
                    let at = (seed >> 40) % (2 * MIB as u64) / 4 * 4 + thread % 4;
                    let handle = world.open(&name, (seed >> 50) % 3 > 0);
                    let mut byte = [0];
                    match (seed >> 45) % 6 {
                        0 => drop(world.cache.drain_file(&world.identity(&name))),
                        1 => drop(world.cache.evict(&world.identity(&name))),
                        2 => drop(world.cache.stage_in(&world.anchor(&name), &world.policy)),
                        _ => {}
                    }
                    if handle.write(&[round], at).is_ok() {
                        assert_eq!(handle.read_at(&mut byte, at).unwrap(), 1);
                        assert_eq!(byte, [round], "{name} at {at}");
                    }
                }
            });
        }
    });
    world.drain();
    for number in 0..6 {
        let name = format!("f{number}");
        let through_cache = read(&world.open(&name, false), 3 * MIB);
        assert!(through_cache == world.store.read(&name).unwrap(), "{name}");
    }
    world.cache.shutdown();
}

/// The system reports a failed write-back once, and takes the bytes for written from then on.
#[test] // S17
fn what_a_failed_sync_may_have_lost_is_written_again() {
    for files in [1, 3] {
        let world = World::new();
        for number in 0..files {
            world.write_new(&format!("f{number}"), &vec![7; 1000]);
        }
        let matching =
            |operation: &StoreOperation| matches!(operation, StoreOperation::Sync | StoreOperation::SyncStore);
        world.store.fail(Fault { matching, ..Fault::default() });
        assert_eq!(world.cache.drain_all().len(), files);
        assert_eq!(world.store.read("f0").unwrap(), [7; 1000], "it reads back");
        let before = world.writes().len();
        world.drain();
        assert_eq!(world.writes().len() - before, files);
        world.open("f0", true).write(&[7], 0).unwrap();
        let before = world.writes().len();
        world.drain();
        assert_eq!(world.writes().len(), before, "that is over once it is clean");
    }
}

/// The sync of the batch may report the loss of this file's bytes.
#[test] // S17
fn what_was_written_of_a_file_that_left_its_batch_is_written_again() {
    let world = World::new();
    (0..3).for_each(|number| world.write_new(&format!("f{number}"), &vec![7; 1000]));
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::SetMtime(_));
    world.store.fail(Fault { matching, ..Fault::default() });
    assert_eq!(world.cache.drain_all().len(), 1);
    let before = world.writes().len();
    world.drain();
    assert_eq!(world.writes().len() - before, 1);
}

#[test] // S17
fn what_failed_on_its_way_to_the_medium_during_the_copy_is_written_again() {
    let world = World::new();
    let data = vec![7; 40 << 20];
    world.write_new("f", &data);
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::LeaveBehind(_));
    world.store.fail(Fault { matching, ..Fault::default() });
    assert_eq!(world.cache.drain_all().len(), 1);
    let before = world.writes().len();
    assert!(before < 40, "it ended at once: {before} MiB were written");
    world.drain();
    assert_eq!(world.writes().len() - before, 40, "all of it, though what was written reads back");
    assert_eq!(world.store.read("f").unwrap(), data);
}

#[test] // S30
fn a_clean_replica_that_could_not_be_dropped_when_its_time_was_over_is_tried_again() {
    let world = World::new();
    for (name, fails) in [("f", true), ("g", false)] {
        world.store.put(name, b"data");
        drop(world.open(name, false));
        world.advance(3601);
        if fails {
            world.catalogue.fail_commits(0, 1);
        } else {
            // Somebody removed the replica: only the record is left to be dropped.
            std::fs::remove_file(world.replica()).unwrap();
        }
        world.cache.housekeep();
        assert_eq!(world.state(name), if fails { Residency::Clean } else { Residency::Absent }, "{name}");
        world.advance(61);
        world.cache.housekeep();
        assert_eq!(world.state(name), Residency::Absent, "{name}: it would stay until room is needed");
    }
}

#[test] // S30
fn a_replica_that_is_to_go_once_clean_and_could_not_is_tried_again() {
    let mut world = World::new();
    world.policy = Arc::new(Policy { keep_after: KeepAfter::Delete, ..Policy::default() });
    world.write_new("f", b"data");
    // The stage-out has two commits, and then its replica is dropped.
    world.catalogue.fail_commits(2, 1);
    world.drain();
    assert_eq!(world.state("f"), Residency::Clean);
    world.advance(2);
    world.cache.housekeep();
    assert_eq!(world.state("f"), Residency::Absent);
    assert_eq!(world.replicas(), 0);
}
