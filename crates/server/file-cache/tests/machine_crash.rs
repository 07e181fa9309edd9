//! Crashes of the machine after the replicas reached the medium and before the catalogue's last commits did. Data that
//! programs synced through mappings is then known only from the replicas' identity attributes.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use data_store::{NewTime, Residency};
use file_cache::FileCache;
use models::global::StoreOperation;
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, Mapping, World, kernel_write, read};
use types::Identity;

const IDENTITY_ATTRIBUTE: &str = "user.forebay.identity";

fn identity_attribute_of(replica: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(replica, IDENTITY_ATTRIBUTE, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn set_identity_attribute(replica: &Path, value: &[u8]) {
    rustix::fs::setxattr(replica, IDENTITY_ATTRIBUTE, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// Puts everything that the catalogue was told so far on the medium.
fn make_durable(world: &World) {
    use catalogue::{Catalogue, Durability};
    world.catalogue.commit(Vec::new(), Durability::Machine).unwrap();
}

#[test] // S15
fn what_msync_wrote_into_a_new_file_survives_a_crash_of_the_machine() {
    let mut world = World::new();
    let handle = world.create("f");
    kernel_write(&handle, b"first", 0);
    let mapping = Mapping::of(&handle);
    mapping.store(b'F');
    mapping.sync();
    world.machine_crash();
    world.cache.sweep().unwrap();
    assert_eq!(world.state("f"), Residency::Queued);
    assert_eq!(read(&world.open("f", false), 10), b"First");
    // A crash leaves no descriptors, neither of programs nor of the agent.
    drop((mapping, handle));
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"First");
}

#[test] // S15
fn what_msync_wrote_into_a_clean_file_survives_a_crash_of_the_machine() {
    for size in [4096, 3 * MIB] {
        let mut world = World::new();
        world.store.put("f", &vec![1; size]);
        world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
        make_durable(&world);
        let handle = world.open("f", true);
        let mapping = Mapping::of(&handle);
        mapping.store(9);
        mapping.sync();
        world.machine_crash();
        world.cache.sweep().unwrap();
        assert_eq!(read(&world.open("f", false), 10)[..2], [9, 1], "{size}");
        drop(mapping);
        world.drain();
        assert_eq!(world.store.read("f").unwrap()[..2], [9, 1], "{size}");
    }
}

#[test] // S15
fn a_time_set_before_the_crash_is_no_conflict_after_it() {
    let mut world = World::new();
    world.store.put("f", b"old");
    let handle = world.open("f", true);
    kernel_write(&handle, b"new", 0);
    let time = types::Timestamp { seconds: 5, nanos: 0 };
    world.cache.date(&world.anchor("f"), Some(NewTime::At(time)), &mut || world.store.set_mtime("f", time)).unwrap();
    world.machine_crash();
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"new");
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, time);
}

#[test] // S15
fn the_time_of_a_stage_out_is_on_the_medium_before_the_file_is_called_clean() {
    for (files, size, shared) in [(1, 5, false), (3, 5, false), (1, 3 * MIB, false), (3, 5, true)] {
        let mut world = World::new();
        world.store.set_shared(shared);
        let names: Vec<String> = (0..files).map(|n| format!("f{n}")).collect();
        names.iter().for_each(|name| world.write_new(name, &vec![1; size]));
        world.drain();
        for name in &names {
            let handle = world.open(name, true);
            kernel_write(&handle, b"second", 0);
            handle.fsync().unwrap();
        }
        world.store.crash();
        world.machine_crash();
        world.drain();
        for name in &names {
            assert_eq!(&world.store.read(name).unwrap()[..6], b"second", "{files} files of {size}, shared: {shared}");
        }
    }
}

/// The burst buffer's medium has the intent and not the later changes; that of the global store has the time.
fn set_a_time_that_only_the_global_store_keeps(world: &mut World, work: impl FnOnce(&World)) {
    make_durable(world);
    let identity_attribute = identity_attribute_of(&world.replica()).unwrap();
    let time = types::Timestamp { seconds: 5, nanos: 0 };
    world.cache.date(&world.anchor("f"), Some(NewTime::At(time)), &mut || world.store.set_mtime("f", time)).unwrap();
    work(world);
    set_identity_attribute(&world.replica(), &identity_attribute);
    world.machine_crash();
}

#[test] // S26
fn a_time_set_below_that_the_crash_took_from_us_is_no_conflict_where_the_bytes_tell() {
    // A new file: empty in the global store.
    let mut world = World::new();
    world.create("f").write(b"data", 0).unwrap();
    set_a_time_that_only_the_global_store_keeps(&mut world, |_| ());
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"data");
    // A file whose checksums are known, also when it was emptied since.
    for truncate in [false, true] {
        let mut world = World::new();
        world.store.put("f", &vec![1; 3 * MIB]);
        world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
        let how = data_store::OpenHow { truncate, ..world.how(true) };
        // An open reader keeps the truncation in the replica with the checksums.
        let _reader = world.open("f", false);
        world.cache.open_file(world.anchor("f"), how).unwrap().write(&[9], MIB as u64).unwrap();
        set_a_time_that_only_the_global_store_keeps(&mut world, |_| ());
        world.drain();
        let now = world.store.read("f").unwrap();
        assert_eq!((now.len(), now[MIB]), (if truncate { MIB + 1 } else { 3 * MIB }, 9));
    }
    // Both copies have the same bytes.
    let mut world = World::new();
    world.store.put("f", b"same");
    world.open("f", true).write(b"same", 0).unwrap();
    set_a_time_that_only_the_global_store_keeps(&mut world, |_| ());
    world.drain();
}

#[test] // S26
fn other_bytes_of_the_same_length_are_a_conflict_also_after_a_crash() {
    for (old, theirs) in [(vec![1; 3 * MIB], vec![2; 3 * MIB]), (b"old".to_vec(), b"who".to_vec())] {
        let mut world = World::new();
        world.store.put("f", &old);
        world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
        world.open("f", true).write(b"X", 0).unwrap();
        set_a_time_that_only_the_global_store_keeps(&mut world, |world| {
            world.store.put("f", &theirs);
        });
        let stuck = world.cache.drain_all();
        assert_eq!((stuck.len(), world.state("f")), (1, Residency::Conflict));
        assert_eq!(world.store.read("f").unwrap(), theirs);
    }
}

/// The burst buffer's medium has the name and the length of a staged-in replica, and neither its bytes nor the
/// truncation.
#[test] // S15
fn a_truncation_that_the_crash_took_leaves_no_bytes_that_nobody_wrote() {
    for size in [5000, 3 * MIB] {
        let mut world = World::new();
        world.store.put("f", &vec![1; size]);
        world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
        let staged = world.replica();
        let how = data_store::OpenHow { truncate: true, ..world.how(true) };
        drop(world.cache.open_file(world.anchor("f"), how).unwrap());
        make_durable(&world);
        world.cache.abandon();
        std::fs::write(&staged, vec![0; size]).unwrap();
        world.machine_crash();
        world.drain();
        let now = world.store.read("f").unwrap();
        assert!(now.is_empty() || now == vec![1; size], "{} bytes of nobody", now.len());
    }
}

#[test]
fn a_brand_that_outlived_its_stage_out_makes_no_clean_file_dirty() {
    let mut world = World::new();
    world.write_new("f", b"data");
    let identity_attribute = identity_attribute_of(&world.replica()).expect("a brand while it is dirty");
    world.drain();
    make_durable(&world);
    assert_eq!(identity_attribute_of(&world.replica()), None);
    set_identity_attribute(&world.replica(), &identity_attribute);
    world.machine_crash();
    assert_eq!(world.state("f"), Residency::Clean);
    assert_eq!(identity_attribute_of(&world.replica()), None);
    world.drain();
}

#[test] // S15
fn a_replica_that_came_back_after_its_eviction_is_garbage() {
    let mut world = World::new();
    world.write_new("f", b"data");
    let (replica, identity_attribute) = (world.replica(), identity_attribute_of(&world.replica()).unwrap());
    let kept = world.dir.path().join("kept");
    std::fs::hard_link(&replica, &kept).unwrap();
    world.drain();
    world.cache.evict(&world.identity("f")).unwrap();
    make_durable(&world);
    assert_eq!(identity_attribute_of(&kept), None);
    // The medium had neither the removal of its name nor that of its identity attribute.
    std::fs::rename(&kept, &replica).unwrap();
    set_identity_attribute(&replica, &identity_attribute);
    world.machine_crash();
    world.cache.sweep().unwrap();
    assert_eq!((world.state("f"), world.replicas()), (Residency::Absent, 0));
    assert_eq!(read(&world.open("f", false), 10), b"data");
}

#[test]
fn an_older_replica_does_not_replace_what_is_recorded() {
    let mut world = World::new();
    world.write_new("f", b"older");
    let (old, identity_attribute) = (world.replica(), identity_attribute_of(&world.replica()).unwrap());
    let kept = world.dir.path().join("kept");
    std::fs::hard_link(&old, &kept).unwrap();
    world.drain();
    world.cache.evict(&world.identity("f")).unwrap();
    world.open("f", true).write(b"newer", 0).unwrap();
    make_durable(&world);
    std::fs::rename(&kept, &old).unwrap();
    set_identity_attribute(&old, &identity_attribute);
    world.machine_crash();
    world.cache.sweep().unwrap();
    assert_eq!(read(&world.open("f", false), 10), b"newer");
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"newer");
    assert_eq!(world.replicas(), 1);
}

/// A burst buffer on btrfs: the sync of another's record does not make a new file durable.
#[test] // S15
fn an_intent_whose_replica_never_reached_the_medium_is_no_lost_data() {
    for truncate in [false, true] {
        let mut world = World::new();
        world.store.set_shared(true);
        drop(if truncate { world.store.put("f", b"old") } else { world.store.create("f") });
        let how = data_store::OpenHow { created: !truncate, truncate, ..world.how(true) };
        world.cache.open_file(world.anchor("f"), how).unwrap().write(b"never synced", 0).unwrap();
        make_durable(&world);
        std::fs::remove_file(world.replica()).unwrap();
        world.machine_crash();
        assert_eq!(world.state("f"), Residency::Absent, "truncate {truncate}");
        assert!(world.cache.counters().stuck.is_empty() && world.catalogue.is_empty(), "truncate {truncate}");
        assert!(world.anchor("f").mark().unwrap().is_none(), "a mark that nobody takes away");
        let expected: &[u8] = if truncate { b"old" } else { b"" };
        assert_eq!(read(&world.open("f", true), 10), expected, "truncate {truncate}");
        world.drain();
        assert_eq!(world.store.read("f").unwrap(), expected);
    }
}

/// Synced data must be present. Nor does a crash of the machine explain a replica that is lost while the machine runs.
#[test] // S15
fn a_missing_replica_is_told_as_lost_if_anything_in_it_was_synced_or_no_machine_crashed() {
    type Story = fn(&World);
    let by: [(&str, Story); 4] = [
        ("fsync", |world| world.create("f").fsync().unwrap()),
        ("O_SYNC", |world| {
            world.store.create("f");
            let how = data_store::OpenHow { created: true, sync: true, ..world.how(true) };
            drop(world.cache.open_file(world.anchor("f"), how).unwrap());
        }),
        ("O_SYNC later", |world| {
            world.write_new("f", b"data");
            drop(
                world
                    .cache
                    .open_file(world.anchor("f"), data_store::OpenHow { sync: true, ..world.how(true) })
                    .unwrap(),
            );
        }),
        ("nothing", |world| world.write_new("f", b"data")),
    ];
    for (what, story) in by {
        let mut world = World::new();
        story(&world);
        make_durable(&world);
        std::fs::remove_file(world.replica()).unwrap();
        if what == "nothing" {
            world.crash()
        } else {
            world.machine_crash()
        }
        let stuck = world.cache.counters().stuck;
        assert_eq!(stuck.len(), 1, "{what}: {stuck:?}");
        world.crash();
        assert_eq!(world.cache.counters().stuck.len(), 1, "{what}: told once only");
    }
}

/// Unsaved data is shown to a person before anybody drops it, also data written by another version.
#[test]
fn a_sweep_leaves_what_calls_itself_dirty() {
    for unknown in [false, true] {
        let mut world = World::new();
        world.write_new("f", b"data");
        if unknown {
            set_identity_attribute(&world.replica(), b"\xffsomething else");
        }
        world.cache.abandon();
        world.catalogue.crash();
        world.cache = FileCache::open(world.settings.clone()).unwrap();
        assert_eq!((world.cache.sweep().unwrap(), world.replicas()), (0, 1), "unknown {unknown}");
        let report = world.cache.check(false, true).unwrap();
        assert_eq!((report.found, report.mended, world.replicas()), (1, 0, 1), "unknown {unknown}");
    }
}

#[test]
fn a_search_for_unsaved_data_that_was_cut_short_is_repeated() {
    let world = World::with(|settings| settings.catalogue = None);
    world.write_new("a", b"data of a");
    world.write_new("b", b"data of b");
    let World { dir, store, settings, cache, .. } = world;
    cache.abandon();
    drop(cache);
    std::fs::remove_dir_all(dir.path().join("catalogue")).unwrap();
    let asked = AtomicU64::new(0);
    store.set_hook(Some(Arc::new(move |operation, _| {
        let second = matches!(operation, StoreOperation::Locate) && asked.fetch_add(1, Ordering::Relaxed) == 1;
        assert!(!second, "the process dies here");
    })));
    let died = catch_unwind(AssertUnwindSafe(|| FileCache::open(settings.clone()).map(|_| ())));
    assert!(died.is_err(), "the search did not come to the second replica");
    store.set_hook(None);
    let cache = FileCache::open(settings).unwrap();
    assert!(cache.drain_all().is_empty());
    assert_eq!((store.read("a").unwrap(), store.read("b").unwrap()), (b"data of a".to_vec(), b"data of b".to_vec()));
}

#[test] // S15
fn a_synced_file_that_was_removed_before_the_crash_is_no_orphan_after_it() {
    let (mut world, identity) = with_a_synced_file();
    world.cache.removing(&identity);
    // The removal is on the store's medium; the crash comes before the agent hears of it.
    world.store.unlink("f").unwrap();
    world.machine_crash();
    world.drain();
    assert_eq!(world.cache.residency(&identity), Residency::Absent);
    world.cache.shutdown();
    assert_eq!(world.replicas(), 0);
}

/// Makes a world with one synced file, `f`.
fn with_a_synced_file() -> (World, Identity) {
    let world = World::new();
    let handle = world.create("f");
    handle.write(b"data", 0).unwrap();
    handle.fsync().unwrap();
    drop(handle);
    let identity = world.identity("f");
    (world, identity)
}

#[test] // S15
fn a_file_that_was_staged_out_and_removed_just_before_the_crash_is_no_orphan_after_it() {
    let (mut world, identity) = with_a_synced_file();
    world.drain();
    world.cache.removing(&identity);
    world.store.unlink("f").unwrap();
    world.machine_crash();
    world.drain();
    assert_ne!(world.cache.residency(&identity), Residency::Queued);
}

#[test] // S15
fn a_file_that_was_staged_out_and_whose_removal_the_crash_took_back_is_whole() {
    let (mut world, identity) = with_a_synced_file();
    world.drain();
    world.cache.removing(&identity);
    // The store's medium never gets it.
    world.cache.unlinked(&identity);
    world.machine_crash();
    world.drain();
    assert_eq!(read(&world.open("f", false), 4), b"data");
}

/// The medium says that a stage-out of the file was begun, and no commit since has recorded its end.
#[test] // S15
fn what_was_copied_anew_while_its_file_was_open_is_no_lost_data_after_a_crash() {
    let mut world = World::new();
    world.write_new("f", b"ours");
    world.drain();
    let reader = world.open("f", false);
    world.store.write("f", b"theirs, longer", 0).unwrap();
    world.advance(60);
    assert_eq!(read(&world.open("f", false), 20), b"theirs, longer");
    assert_eq!(read(&reader, 20), b"ours");
    drop(reader);
    world.machine_crash();
    assert!(world.cache.counters().stuck.is_empty(), "{:?}", world.cache.counters().stuck);
    assert_eq!(read(&world.open("f", false), 20), b"theirs, longer");
}

/// The store loses the name of a new file that nobody synced. Its replica's data on the medium may have been synced
/// through a mapping, so it is kept. An empty replica is dropped silently.
#[test] // S15
fn a_new_file_that_the_crash_took_below_is_an_orphan_only_if_a_byte_of_it_was_kept() {
    for (data, recorded) in [("", false), ("", true), ("data", false), ("data", true)] {
        let mut world = World::new();
        world.store.set_forgets_names();
        let handle = world.create("f");
        handle.write(data.as_bytes(), 0).unwrap();
        if recorded {
            make_durable(&world);
        }
        drop(handle);
        world.store.crash();
        world.machine_crash();
        let stuck = world.cache.drain_all();
        let orphans = usize::from(!data.is_empty());
        assert_eq!(stuck.iter().filter(|stuck| stuck.orphaned).count(), orphans, "{data:?}, recorded: {recorded}");
        world.cache.sweep().unwrap();
        assert_eq!(world.replicas(), orphans, "{data:?}, recorded: {recorded}");
    }
}

#[test] // S15
fn what_was_synced_in_a_new_file_has_its_name_after_a_crash_however_it_was_made() {
    type Story = fn(&mut World);
    let by: [(&str, Story); 6] = [
        ("create", |world| world.create("f").fsync().unwrap()),
        ("O_CREAT | O_SYNC", |world| {
            world.store.create("f");
            let how = data_store::OpenHow { created: true, sync: true, ..world.how(true) };
            drop(world.cache.open_file(world.anchor("f"), how).unwrap());
        }),
        ("O_SYNC later", |world| {
            world.create("f");
            let how = data_store::OpenHow { sync: true, ..world.how(true) };
            drop(world.cache.open_file(world.anchor("f"), how).unwrap());
        }),
        ("mknod, or another node", |world| {
            world.store.create("f");
            world.open("f", true).fsync().unwrap();
        }),
        ("an agent that died", |world| {
            world.write_new("f", b"first");
            world.crash();
            world.open("f", true).fsync().unwrap();
        }),
        ("O_TMPFILE", |world| {
            let handle = world.create("none");
            let identity = world.identity("none");
            world.store.unlink("none").unwrap();
            handle.fsync().unwrap();
            world.store.name(identity, "f").unwrap();
            handle.fsync().unwrap();
        }),
    ];
    for (what, story) in by {
        let mut world = World::new();
        world.store.set_forgets_names();
        story(&mut world);
        let all = [StoreOperation::SyncStore, StoreOperation::SyncNames];
        assert!(!world.store.journal().iter().any(|event| all.contains(&event.operation)), "{what}: all synced");
        world.store.crash();
        assert!(world.store.identity("f").is_ok(), "{what}");
        world.machine_crash();
        world.drain();
    }
}
