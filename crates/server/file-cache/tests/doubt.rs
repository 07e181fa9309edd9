//! Global copies that look as they were left: others may have changed them all the same.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use data_store::{OpenHow, Residency};
use global_store::now_of_files;
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, Handle, OpenDataExt};
use support::{MIB, World};
use types::Timestamp;

fn content(handle: &Handle) -> Vec<u8> {
    let mut bytes = vec![0; 4 * MIB];
    let read = handle.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(read);
    bytes
}

/// Opens the file, reads all of it, and closes.
fn read(world: &World) -> Vec<u8> {
    content(&world.open("f", false))
}

fn stuck(world: &World) -> Vec<String> {
    world.cache.drain_all().into_iter().map(|stuck| stuck.reason).collect()
}

/// Counts reads of the global store from now on.
fn reads_below(world: &World) -> Arc<AtomicU64> {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        counted.fetch_add(u64::from(matches!(operation, StoreOperation::Read(_))), Ordering::Relaxed);
    })));
    reads
}

fn wall() -> Timestamp {
    Timestamp::from_nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

const SIZES: [usize; 2] = [100, 2 * MIB + 100];

#[test] // S24
fn a_change_that_keeps_size_and_mtime_is_seen_by_the_next_open() {
    for size in SIZES {
        let world = World::new();
        world.store.put("f", &vec![1; size]);
        let old = world.open("f", false);
        assert_eq!(content(&old), vec![1; size]);
        world.store.replace_keeping_mtime("f", &vec![2; size]);
        assert_eq!(read(&world), vec![2; size]);
        assert_eq!(content(&old), vec![1; size], "who had it open keeps the version that it had");
        drop(old);
        let replicas = world.replicas();
        world.store.set_mode("f", 0o600).unwrap();
        assert_eq!(read(&world), vec![2; size]);
        assert_eq!((world.state("f"), world.replicas()), (Residency::Clean, replicas), "only its mode changed");
        let reads = reads_below(&world);
        assert_eq!(read(&world), vec![2; size]);
        assert_eq!(reads.load(Ordering::Relaxed), 0, "that was found out once");
    }
}

#[test] // S25
fn a_change_under_a_dirty_file_that_keeps_size_and_mtime_is_a_conflict() {
    for (size, truncate, staged_out) in
        SIZES.into_iter().flat_map(|size| [(size, false, false), (size, true, false), (size, false, true)])
    {
        let world = World::new();
        world.store.put("f", &vec![1; size]);
        if staged_out {
            world.open("f", true).write(&[9; 50], 0).unwrap();
            world.drain();
        }
        let how = OpenHow { truncate, ..world.how(true) };
        world.cache.open_file(world.anchor("f"), how).unwrap().write(&[3; 10], 0).unwrap();
        world.store.replace_keeping_mtime("f", &vec![2; size]);
        let reasons = stuck(&world);
        let case = format!("{size} bytes, truncated: {truncate}, staged out: {staged_out}");
        assert!(reasons.len() == 1 && reasons[0].contains("kept its size and its time"), "{case}: {reasons:?}");
        assert_eq!(world.state("f"), Residency::Conflict, "{case}");
        assert_eq!(world.store.read("f").unwrap(), vec![2; size], "{case}");
    }
}

#[test] // S26
fn a_change_of_mode_under_a_dirty_file_is_no_conflict_and_its_blocks_are_read_once() {
    for (size, truncate) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let world = World::new();
        world.store.put("f", &vec![1; size]);
        let how = OpenHow { truncate, ..world.how(true) };
        let writer = world.cache.open_file(world.anchor("f"), how).unwrap();
        writer.write(&[3; 10], 0).unwrap();
        world.store.set_mode("f", 0o600).unwrap();
        // The file is open, so the first stage-out does not end clean.
        assert_eq!(stuck(&world).len(), 1);
        drop(writer);
        world.drain();
        let expected = if truncate { vec![3; 10] } else { [vec![3; 10], vec![1; size - 10]].concat() };
        assert_eq!(world.store.read("f").unwrap(), expected, "{size} bytes, truncated: {truncate}");
        let reads = reads_below(&world);
        assert_eq!(read(&world), expected);
        assert_eq!(reads.load(Ordering::Relaxed), 0);
    }
}

#[test] // S26
fn our_own_changes_of_attributes_cost_no_look_at_the_bytes() {
    for shared in [false, true] {
        let world = World::new();
        world.store.set_shared(shared);
        world.store.put("f", &vec![1; 2 * MIB]);
        drop(world.open("f", false));
        world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
        let identity = world.identity("f");
        let attributes = || world.store.attributes("f").unwrap().fingerprint;
        let change = || {
            world.cache.saw(&identity, &attributes());
            let began = now_of_files();
            world.store.set_clock(wall(), 1);
            world.store.set_mode("f", 0o640).unwrap();
            world.cache.changed_attributes(&identity, began);
        };
        let reads = reads_below(&world);
        change();
        read(&world);
        assert_eq!(reads.load(Ordering::Relaxed), 0, "of a clean file; shared: {shared}");
        world.open("f", true).write(&[7], 0).unwrap();
        change();
        world
            .cache
            .date(&world.anchor("f"), None, &mut || {
                world.store.set_clock(wall(), 1);
                world.store.set_atime("f", Timestamp::default())
            })
            .unwrap();
        world.drain();
        assert_eq!(reads.load(Ordering::Relaxed), 0, "of a dirty one; shared: {shared}");
    }
}

#[test] // S24
fn our_own_change_of_attributes_hides_no_change_of_others() {
    for dirty in [false, true] {
        let world = World::new();
        world.store.put("f", b"version=1.0.1");
        drop(world.open("f", dirty).write(b"V", 0));
        world.store.replace_keeping_mtime("f", b"version=1.0.2");
        let identity = world.identity("f");
        // A look precedes each change: the kernel's, or ours.
        world.cache.saw(&identity, &world.store.attributes("f").unwrap().fingerprint);
        let began = now_of_files();
        world.store.set_clock(wall(), 1);
        world.store.set_mode("f", 0o640).unwrap();
        world.cache.changed_attributes(&identity, began);
        if dirty {
            assert_eq!(stuck(&world).len(), 1);
            assert_eq!(world.store.read("f").unwrap(), b"version=1.0.2");
        } else {
            assert_eq!(read(&world), b"version=1.0.2");
        }
    }
}

#[test] // S25
fn a_stage_out_asks_past_what_the_stores_client_remembers() {
    let world = World::new();
    world.store.put("f", b"old");
    world.store.remember_attributes();
    world.open("f", true).write(b"new", 0).unwrap();
    world.store.put("f", b"another node's");
    assert_eq!(stuck(&world).len(), 1);
    assert_eq!(world.store.read("f").unwrap(), b"another node's");
}

#[test] // S24
fn what_was_looked_at_too_early_to_tell_a_later_change_is_looked_at_again() {
    let world = World::new();
    world.store.set_clock(wall(), 0);
    world.store.put("f", b"one");
    assert_eq!(read(&world), b"one");
    world.store.put("f", b"two");
    assert_eq!(read(&world), b"two", "size and all times are those that they were");
    world.open("f", true).write(b"wow", 0).unwrap();
    // This holds however long the stage-out takes.
    let soon = wall();
    world.store.set_clock(Timestamp { seconds: soon.seconds + 60, ..soon }, 0);
    world.drain();
    world.store.replace_keeping_mtime("f", b"mom");
    assert_eq!(read(&world), b"mom", "size and all times are those that the stage-out left");
}

/// Records of the former version did not follow ctime.
#[test] // S26
fn of_a_dirty_file_that_a_former_version_left_ctime_alone_is_no_conflict() {
    use catalogue::{Catalogue, Change, Durability};
    let mut world = World::new();
    world.store.put("f", b"old");
    world.open("f", true).write(b"new", 0).unwrap();
    let identity = world.identity("f");
    let mut record = world.catalogue.get(&identity).unwrap().unwrap();
    (record.sum, record.base.attributes) = (None, 0);
    world.catalogue.commit(vec![Change::Put(identity, record)], Durability::Machine).unwrap();
    world.store.set_mode("f", 0o600).unwrap();
    world.crash();
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"new");
}

#[test] // S57
fn a_store_that_cannot_keep_a_time_or_refuses_it_makes_no_conflict() {
    let far = Timestamp { seconds: 4_102_444_800, nanos: 7 };
    let refuses = |operation: &StoreOperation| matches!(operation, StoreOperation::SetMtime(_));
    for (case, errno) in [("clamps", 0), ("refuses", libc::EPERM), ("cannot", libc::EOPNOTSUPP)] {
        for staged_out in [false, true] {
            let world = World::new();
            let latest = Timestamp { seconds: i64::from(i32::MAX), nanos: 0 };
            world.store.set_latest(latest);
            if errno != 0 {
                world.store.fail(Fault { errno, matching: refuses, times: u64::MAX, ..Fault::default() });
            }
            world.write_new("f", b"one");
            if staged_out {
                world.drain();
                world.open("f", true).write(b"two", 0).unwrap();
            }
            // As `touch -d 2100-01-01` of the file with the content of the burst buffer.
            let replica = std::fs::File::options().write(true).open(world.replica()).unwrap();
            let times = std::fs::FileTimes::new();
            let modified = UNIX_EPOCH + std::time::Duration::new(far.seconds as u64, far.nanos);
            replica.set_times(times.set_modified(modified)).unwrap();
            drop(replica);
            world.drain();
            assert_eq!(world.state("f"), Residency::Clean, "{case}");
            let kept = world.store.attributes("f").unwrap().fingerprint.mtime;
            if errno == 0 {
                assert_eq!(kept, latest);
            }
            world.open("f", true).write(b"end", 0).unwrap();
            world.drain();
            assert_eq!(world.state("f"), Residency::Clean, "{case}, once more");
            assert_eq!(read(&world), b"end");
        }
    }
}

#[test] // S57
fn a_write_of_others_while_a_store_is_told_a_time_that_it_cannot_keep_is_a_conflict() {
    let world = World::new();
    let latest = Timestamp { seconds: i64::from(i32::MAX), nanos: 0 };
    world.store.set_latest(latest);
    world.write_new("f", b"one");
    let (store, once) = (world.store.clone(), std::sync::atomic::AtomicBool::new(false));
    world.store.set_after(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::SetMtime(_)) && !once.swap(true, Ordering::SeqCst) {
            store.set_clock(wall(), 1_000_000);
            store.put("f", b"two");
        }
    })));
    assert_eq!(stuck(&world).len(), 1);
    assert_eq!(world.store.read("f").unwrap(), b"two");
}
