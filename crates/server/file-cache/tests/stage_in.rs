//! Opening, stage-in, versions and space.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::HasErrno;

use config::{Cache, KeepAfter, Policy, StageOut};
use data_store::{NewTime, OpenHow, ReadNotice, Residency};
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, World, kernel_write, read, until};
use types::{ByteRange, Timestamp};

#[test]
fn a_small_file_is_whole_when_its_open_returns() {
    let world = World::new();
    world.store.put("f", b"hello");
    let handle = world.open("f", false);
    assert!(handle.backing().is_some());
    assert_eq!(read(&handle, 10), b"hello");
    assert_eq!(world.state("f"), Residency::Clean);
}

#[test] // S8
fn a_reader_of_a_large_file_waits_for_its_blocks_alone() {
    let world = World::new();
    world.store.put("f", &vec![7; 200 * MIB]);
    let handle = world.open("f", false);
    assert!(handle.backing().is_none());
    let mut buffer = [0; 100];
    handle.read_at(&mut buffer, 150 * MIB as u64).unwrap();
    assert_eq!(buffer, [7; 100]);
    let mut absent = 0;
    handle.read_ahead(ByteRange::new(0, 1), None, &mut |size, _, _, find| {
        absent = find(ByteRange::new(0, size)).iter().map(ByteRange::len).sum();
        ReadNotice::default()
    });
    assert_eq!(absent, 199 * MIB as u64);
    assert_eq!(world.state("f"), Residency::Fetching);
}

#[test]
fn a_large_file_becomes_whole_in_the_background() {
    let world = World::with(|settings| settings.background = true);
    world.store.put("f", &vec![7; 5 * MIB]);
    let handle = world.open("f", false);
    assert_eq!(read(&handle, 10), [7; 10]);
    until("the stage-in", || world.state("f") == Residency::Clean);
    assert!(world.open("f", false).backing().is_some());
    world.cache.shutdown();
}

#[test]
fn an_open_of_a_changed_file_gets_the_new_version_and_old_handles_keep_theirs() {
    let world = World::new();
    world.store.put("f", b"old");
    let old = world.open("f", false);
    world.store.put("f", b"newer");
    let new = world.open("f", false);
    assert!(old.data() != new.data());
    assert!(!old.data().is_current);
    assert_eq!(read(&old, 10), b"old");
    assert_eq!(read(&new, 10), b"newer");
    assert_eq!(world.replicas(), 2);
    drop(old);
    assert_eq!(world.replicas(), 1);
}

#[test] // S24
fn a_clean_file_is_trusted_for_as_long_as_the_policy_says() {
    let world = World::new();
    let policy = Arc::new(Policy { revalidate: std::time::Duration::from_secs(5), ..Policy::default() });
    let open = || world.cache.open_file(world.anchor("f"), OpenHow { policy: Arc::clone(&policy), ..world.how(false) });
    world.store.put("f", b"old");
    drop(open().unwrap());
    world.store.put("f", b"newer");
    assert_eq!(read(&open().unwrap(), 10), b"old");
    world.advance(6);
    assert_eq!(read(&open().unwrap(), 10), b"newer");
}

#[test] // S24
fn a_file_that_changes_while_it_is_copied_is_served_from_the_global_store() {
    let world = World::new();
    world.store.put("f", &vec![1; 3 * MIB]);
    let store = world.store.clone();
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Read(_)) {
            store.write("f", b"x", 0).unwrap();
        }
    })));
    let handle = world.open("f", false);
    assert_eq!(read(&handle, 3 * MIB).len(), 3 * MIB);
    assert_eq!(world.replicas(), 0);
    let refused = world.cache.stage_in(&world.anchor("f"), &world.policy);
    assert_eq!(refused.unwrap_err().errno(), Some(libc::EBUSY));
    drop(handle);
    world.store.set_hook(None);
    world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
    assert_eq!(world.state("f"), Residency::Clean);
}

#[test]
fn a_failed_read_below_is_told_and_the_next_one_tries_again() {
    let world = World::new();
    world.store.put("f", &vec![1; 3 * MIB]);
    let handle = world.open("f", false);
    world.store.fail(Fault { matching: |o| matches!(o, StoreOperation::Read(_)), ..Fault::default() });
    let mut buffer = [0; 10];
    assert_eq!(handle.read_at(&mut buffer, 0).unwrap_err().errno(), Some(libc::EIO));
    assert_eq!(handle.read_at(&mut buffer, 0).unwrap(), 10);
}

#[test] // S10
fn truncation_at_open_needs_no_old_bytes_and_all_handles_see_it() {
    let world = World::new();
    world.store.put("f", &vec![1; 3 * MIB]);
    let reader = world.open("f", false);
    assert_eq!(read(&reader, 4), [1; 4]);
    let before = world.cache.counters().staged_in_bytes;
    let writer = world.cache.open_file(world.anchor("f"), OpenHow { truncate: true, ..world.how(true) }).unwrap();
    kernel_write(&writer, b"new", 0);
    assert_eq!(read(&reader, 10), b"new");
    assert_eq!(world.cache.counters().staged_in_bytes, before);
    drop((reader, writer));
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"new");
}

#[test]
fn a_large_absent_file_is_written_in_the_global_store() {
    let world = World::new();
    world.store.put("f", &vec![1; 65 * MIB]);
    let handle = world.open("f", true);
    assert!(handle.backing().is_none());
    handle.write(b"x", 0).unwrap();
    assert_eq!(world.store.read("f").unwrap()[0], b'x');
    assert_eq!(read(&world.open("f", false), 1), b"x");
    assert!(!world.cache.is_dirty(&world.identity("f")));
}

#[test]
fn clean_files_expire_and_pinned_open_and_dirty_ones_do_not() {
    let world = World::new();
    for name in ["plain", "pinned", "open", "dirty"] {
        world.store.put(name, b"data");
        drop(world.open(name, false));
    }
    world.cache.pin(&world.identity("pinned"), true).unwrap();
    let open = world.open("open", false);
    drop(world.open("dirty", true));
    world.advance(4000);
    world.cache.housekeep();
    assert_eq!(world.state("plain"), Residency::Absent);
    assert_eq!(world.state("pinned"), Residency::Clean);
    assert_eq!(world.state("open"), Residency::Clean);
    assert_eq!(world.state("dirty"), Residency::Queued);
    drop(open);
    assert_eq!(world.cache.evict(&world.identity("pinned")).unwrap_err().errno(), Some(libc::EPERM));
    world.advance(4000);
    world.cache.housekeep();
    assert_eq!(world.state("open"), Residency::Absent);
}

#[test] // S30
fn the_residence_time_counts_from_the_last_use_and_not_from_the_time_of_the_file() {
    let world = World::new();
    let long_ago = Timestamp { seconds: 1, nanos: 0 };
    world.store.put("read", b"data");
    world.store.set_mtime("read", long_ago).unwrap();
    drop(world.open("read", false));
    world.write_new("written", b"data");
    let set = &mut || world.store.set_mtime("written", long_ago);
    world.cache.date(&world.anchor("written"), Some(NewTime::At(long_ago)), set).unwrap();
    world.drain();
    let kept = |expected: Residency| {
        world.cache.housekeep();
        for name in ["read", "written"] {
            assert_eq!(world.store.attributes(name).unwrap().fingerprint.mtime, long_ago, "{name}");
            assert_eq!(world.state(name), expected, "{name}");
        }
    };
    kept(Residency::Clean);
    world.advance(3599);
    kept(Residency::Clean);
    world.advance(2);
    kept(Residency::Absent);
}

#[test] // S30
fn keep_after_delete_drops_the_replica_once_clean_and_not_pinned() {
    let mut world = World::new();
    world.policy = Arc::new(Policy { keep_after: KeepAfter::Delete, ..Policy::default() });
    for pinned in [false, true] {
        world.write_new("f", b"data");
        if pinned {
            world.cache.pin(&world.identity("f"), true).unwrap();
            world.drain();
            assert_eq!(world.state("f"), Residency::Clean);
            world.cache.pin(&world.identity("f"), false).unwrap();
        } else {
            world.drain();
        }
        assert_eq!(world.state("f"), Residency::Absent, "pinned before: {pinned}");
        assert_eq!(world.replicas(), 0);
    }
}

#[test] // S30
fn a_full_burst_buffer_evicts_the_longest_unused_and_never_dirt() {
    let world = World::new();
    for name in ["a", "b"] {
        world.store.put(name, &[1; 5000]);
        drop(world.open(name, false));
    }
    world.write_new("dirty", b"data");
    world.free.store(0, Ordering::Relaxed);
    world.advance(2);
    world.cache.housekeep();
    assert_eq!(world.state("a"), Residency::Absent);
    assert_eq!(world.state("b"), Residency::Absent);
    assert_eq!(world.state("dirty"), Residency::Queued);
}

#[test] // S30
fn new_files_go_through_when_less_than_the_reserve_is_free() {
    let world = World::new();
    world.free.store(1 << 30, Ordering::Relaxed);
    let handle = world.create("f");
    assert!(handle.backing().is_none());
    handle.write(b"data", 0).unwrap();
    assert_eq!(world.store.read("f").unwrap(), b"data");
    assert_eq!(world.cache.counters().through, 1);
}

#[test] // S34
fn policies_say_what_is_accelerated() {
    let mut world = World::new();
    world.store.put("f", b"data");
    let mut backed = |cache, write| {
        world.policy = Arc::new(Policy { cache, ..Policy::default() });
        let backed = world.open("f", write).backing().is_some();
        world.drain();
        world.cache.evict(&world.identity("f")).unwrap();
        backed
    };
    assert!(backed(Cache::Both, false) && backed(Cache::Both, true));
    assert!(!backed(Cache::WriteCache, false) && backed(Cache::WriteCache, true));
    assert!(backed(Cache::Preload, false) && !backed(Cache::Preload, true));
    assert!(!backed(Cache::Through, false) && !backed(Cache::Through, true));
}

#[test] // S29
fn quiesced_writes_go_to_the_global_store() {
    let world = World::new();
    world.cache.quiesce(true);
    world.create("f").write(b"data", 0).unwrap();
    assert_eq!(world.store.read("f").unwrap(), b"data");
    world.cache.quiesce(false);
    world.open("f", true).write(b"DATA", 0).unwrap();
    assert_eq!(world.store.read("f").unwrap(), b"data");
}

#[test] // S19, S67
fn the_background_stages_out_when_the_policy_says() {
    let mut world = World::with(|settings| settings.background = true);
    world.write_new("close", b"data");
    // A stage-out that found the file in use, for example by a child that another test has just forked, is tried again
    // after some time.
    let is_clean = |world: &World, name: &str| {
        world.advance(1);
        world.state(name) == Residency::Clean
    };
    until("the stage-out at close", || is_clean(&world, "close"));
    // Longer than the time that passes while the test polls.
    let wait = std::time::Duration::from_secs(1_000_000);
    world.policy = Arc::new(Policy { stage_out: StageOut::Idle(wait), ..Policy::default() });
    world.write_new("idle", b"data");
    world.policy = Arc::new(Policy { stage_out: StageOut::Manual, ..Policy::default() });
    world.write_new("manual", b"data");
    world.policy = Arc::new(Policy { stage_out: StageOut::Size(10), ..Policy::default() });
    world.write_new("first", b"123456");
    assert_eq!(world.state("first"), Residency::Queued);
    world.write_new("second", b"123456");
    until("the stage-out by size", || is_clean(&world, "first") && is_clean(&world, "second"));
    assert_eq!(world.state("idle"), Residency::Queued);
    world.advance(1_000_001);
    until("the stage-out when idle", || is_clean(&world, "idle"));
    assert_eq!(world.state("manual"), Residency::Queued);
    world.cache.shutdown();
}

#[test] // S15
fn a_replica_from_before_a_crash_of_the_machine_is_checked_before_it_is_used() {
    let mut world = World::new();
    world.store.put("f", &vec![1; 3 * MIB]);
    world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
    world.store.put("g", &vec![2; 3 * MIB]);
    world.cache.stage_in(&world.anchor("g"), &world.policy).unwrap();
    world.cache.abandon();
    let page = world.dir.path().join("superblock");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = std::fs::read_to_string(&page).unwrap().replace(boot.trim(), "another boot");
    std::fs::write(&page, text).unwrap();
    let damaged = world.dir.path().join("replicas/01/0000000000000001");
    let file = std::fs::OpenOptions::new().write(true).open(damaged).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], MIB as u64).unwrap();
    drop(file);
    world.crash();
    assert!(world.open("f", false).backing().is_none(), "the damaged replica was used");
    assert!(world.open("g", false).backing().is_some(), "the sound replica was not used");
}

#[test]
fn a_check_finds_what_is_wrong_and_mends_what_is_clean() {
    let mut world = World::new();
    for name in ["sound", "stale", "damaged", "missing"] {
        world.store.put(name, &vec![1; 2 * MIB]);
        world.cache.stage_in(&world.anchor(name), &world.policy).unwrap();
    }
    world.write_new("dirty", b"data");
    let report = world.cache.check(true, false).unwrap();
    assert_eq!((report.records, report.replicas, report.found), (5, 5, 0), "{report:?}");
    world.store.write("stale", b"x", 0).unwrap();
    std::fs::remove_file(world.dir.path().join("replicas/04/0000000000000004")).unwrap();
    std::fs::remove_file(world.dir.path().join("replicas/05/0000000000000005")).unwrap();
    let damaged = world.dir.path().join("replicas/03/0000000000000003");
    let file = std::fs::OpenOptions::new().write(true).open(damaged).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 10], 0).unwrap();
    drop(file);
    world.crash();
    std::fs::create_dir(world.dir.path().join("replicas/ff")).unwrap();
    std::fs::write(world.dir.path().join("replicas/ff/00000000000000ff"), b"garbage").unwrap();
    let report = world.cache.check(true, true).unwrap();
    assert_eq!((report.found, report.mended), (5, 4), "{report:?}");
    let report = world.cache.check(true, true).unwrap();
    assert_eq!(report.found, 1, "{report:?}");
    assert!(report.findings[0].contains("dirty: its unsaved data is not in the burst buffer"), "{report:?}");
    let stuck = world.cache.drain_all();
    assert_eq!(stuck.len(), 1, "lost data is told, not forgotten");
    assert!(world.cache.open_file(world.anchor("dirty"), world.how(false)).is_err());
    world.cache.resolve(&world.identity("dirty"), data_store::Keep::Global).unwrap();
    assert_eq!(read(&world.open("dirty", false), 10), b"");
}

#[test] // S24
fn readers_of_a_file_that_is_fetched_go_on_when_a_writer_is_refused() {
    let world = World::new();
    let content = vec![3; 70 * MIB];
    world.store.put("f", &content);
    for truncate in [false, true] {
        let reader = world.open("f", false);
        assert_eq!(read(&reader, 10), [3; 10]);
        assert_eq!(world.state("f"), Residency::Fetching);
        let matching: fn(&StoreOperation) -> bool = match truncate {
            false => |operation| matches!(operation, StoreOperation::Open(global_store::Access::Write)),
            true => |operation| matches!(operation, StoreOperation::Attributes),
        };
        world.store.fail(Fault { matching, errno: libc::EROFS, ..Fault::default() });
        let how = OpenHow { truncate, ..world.how(true) };
        let refused = world.cache.open_file(world.anchor("f"), how).err().expect("refused");
        assert_eq!(refused.errno(), Some(libc::EROFS));
        let mut byte = [0];
        assert_eq!(reader.read_at(&mut byte, 69 * MIB as u64).unwrap(), 1, "truncate {truncate}");
        assert_eq!(byte, [3]);
    }
}

#[test] // S17
fn a_reader_whose_copy_cannot_be_recorded_reads_on() {
    for size in [5, 3 * MIB] {
        let world = World::new();
        world.store.put("f", &vec![7; size]);
        world.catalogue.fail_commits(0, 1);
        let reader = world.open("f", false);
        assert_eq!(read(&reader, 4 * MIB), vec![7; size]);
        assert_eq!(world.state("f"), Residency::Absent);
        drop(reader);
        assert_eq!(world.replicas(), 0);
        // A caller that asks for the copy itself is told.
        world.catalogue.fail_commits(0, u64::MAX);
        let refused = world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::EIO), "{size}");
        assert!(world.cache.open_file(world.anchor("f"), world.how(true)).is_err(), "{size}");
    }
}

#[test] // S30
fn a_file_whose_checksums_find_no_room_is_opened_for_writing_all_the_same() {
    let world = World::new();
    world.store.put("before", b"data");
    drop(world.open("before", false));
    let last = world.replica().file_name().unwrap().to_str().unwrap().to_owned();
    let next = u64::from_str_radix(&last, 16).unwrap() + 1;
    let sums = world.dir.path().join(format!("sums/{:02x}", next & 0xff));
    std::fs::create_dir_all(&sums).unwrap();
    std::os::unix::fs::symlink("/dev/full", sums.join(format!("{next:0width$x}", width = last.len()))).unwrap();
    let content = vec![3; 3 * MIB];
    world.store.put("f", &content);
    let handle = world.open("f", true);
    assert_eq!(world.state("f"), Residency::Dirty);
    handle.write(b"new", MIB as u64).unwrap();
    drop(handle);
    world.drain();
    assert!(world.store.read("f").unwrap() == [&content[..MIB], b"new", &content[MIB + 3..]].concat());
    assert_eq!(world.writes().len(), 1, "what changed is found by reading what is below");
    assert!(world.cache.check(true, false).unwrap().findings.is_empty());
}
