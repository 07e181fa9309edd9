//! Which bytes a stage-out compares, and when, in a file that stays open.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use config::{Policy, StageOut};
use data_store::{AcknowledgedBytes, OpenHow, Residency, WindowStore, WindowUsage};
use global_store::now_of_files;
use models::global::StoreOperation;
use models::{DataStoreExt, Handle, OpenDataExt};
use support::{MIB, Mapping, World, kernel_write, until};
use types::ByteRange;

fn appender(world: &World, path: &str) -> Handle {
    let how = OpenHow { appends: true, ..world.how(true) };
    world.cache.open_file(world.anchor(path), how).unwrap()
}

#[test] // S66
fn of_a_file_that_was_appended_to_what_was_there_before_is_not_looked_at() {
    let world = World::new();
    world.store.put("f", &vec![7; 8 * MIB]);
    for line in 0..3 {
        let handle = appender(&world, "f");
        // No program can make this change through the handle, and a comparison would find it.
        kernel_write(&handle, b"x", 3 * MIB as u64);
        let end = (8 * MIB + 5 * line) as u64;
        kernel_write(&handle, b"line\n", end);
        drop(handle);
        world.store.clear_journal();
        world.drain();
        assert_eq!(world.writes(), [StoreOperation::Write(ByteRange::new(8 * MIB as u64, end + 5))]);
        assert_eq!(world.state("f"), Residency::Clean);
    }
    assert_eq!(world.store.read("f").unwrap()[3 * MIB], 7);
    drop(world.open("f", true));
    world.drain();
    assert_eq!(world.store.read("f").unwrap()[3 * MIB], b'x', "who may write anywhere has all looked at");
}

/// One kind of change: its name, and the function that makes it.
type Change = (&'static str, fn(&World, &Handle));

#[test] // S66
fn what_is_changed_elsewhere_of_a_file_that_is_open_for_appending_is_found() {
    let changes: [Change; 5] = [
        ("cut", |_, handle| handle.set_len(MIB as u64 + 5).unwrap()),
        ("written", |_, handle| _ = handle.write(b"x", 5).unwrap()),
        ("acknowledged", |world, _| {
            let opened = world.cache.open_for_windows(world.anchor("f"), &world.policy, WindowUsage::Serve(false));
            let parts = [(5, AcknowledgedBytes::Copied(b"x"))];
            opened.unwrap().target.write(&parts, now_of_files()).unwrap();
        }),
        ("hole", |_, handle| {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            handle.fallocate(mode as u32, 4096, 8192).unwrap();
        }),
        ("another", |world, _| kernel_write(&world.open("f", true), b"x", 5)),
    ];
    for (name, change) in changes {
        let world = World::new();
        world.store.put("f", &vec![7; 3 * MIB]);
        let handle = appender(&world, "f");
        handle.append(b"line\n").unwrap();
        // The handle stays open, and the next stage-out begins where this one ended.
        let _ = world.cache.drain_file(&world.identity("f"));
        change(&world, &handle);
        handle.append(b"more\n").unwrap();
        let here = support::read(&world.open("f", false), 4 * MIB);
        drop(handle);
        world.drain();
        assert!(world.store.read("f").unwrap() == here, "{name}");
    }
}

#[test] // S66
fn what_a_writer_that_stays_open_appends_is_copied_from_where_the_last_stage_out_ended() {
    let world = World::new();
    world.store.put("f", &vec![7; 3 * MIB]);
    let handle = appender(&world, "f");
    for step in 0..3 {
        let end = (3 + step) * MIB as u64;
        kernel_write(&handle, &vec![step as u8; MIB], end);
        world.store.clear_journal();
        let _ = world.cache.drain_file(&world.identity("f"));
        assert_eq!(world.writes(), [StoreOperation::Write(ByteRange::at(end, MIB as u64))]);
    }
    drop(handle);
    world.store.clear_journal();
    world.drain();
    assert_eq!((world.writes(), world.state("f")), (vec![], Residency::Clean));
}

#[test] // S67
fn a_file_that_stays_open_is_staged_out_as_it_grows_under_size() {
    let world = World::with(|settings| {
        settings.background = true;
        settings.clock = None;
    });
    let policy = Arc::new(Policy { stage_out: StageOut::Size(2 * MIB as u64), ..Policy::default() });
    world.store.create("f");
    let how = OpenHow { created: true, policy, ..world.how(true) };
    let handle = world.cache.open_file(world.anchor("f"), how).unwrap();
    let mut written = Vec::new();
    for step in 0..3 {
        let more = vec![step + 1; 3 * MIB];
        kernel_write(&handle, &more, written.len() as u64);
        written.extend(more);
        until("it is below while it is open", || world.store.read("f").unwrap() == written);
    }
    let rewritten: u64 =
        world.writes().iter().map(|w| if let StoreOperation::Write(r) = w { r.len() } else { 0 }).sum();
    assert_eq!(rewritten, written.len() as u64, "each byte once");
    kernel_write(&handle, b"over", 5);
    written[5..9].copy_from_slice(b"over");
    drop(handle);
    until("it is clean", || world.drain_quietly() && world.state("f") == Residency::Clean);
    assert!(world.store.read("f").unwrap() == written);
}

/// The kernel marks a file as failed if its pages were in use when a direct write wanted to discard them.
#[test] // S17
fn a_direct_write_beside_stores_into_a_mapping_loses_nothing_and_is_no_conflict() {
    let world = World::new();
    world.store.put("f", &vec![7; 2 * MIB]);
    let handle = world.open("f", true);
    let (mapping, stop) = (Mapping::of(&handle), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stores = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                mapping.store(9)
            }
        });
        for _ in 0..100 {
            support::direct_write(&handle, 8, 0);
        }
        stop.store(true, Ordering::Relaxed);
        stores.join().unwrap();
    });
    mapping.store(10);
    drop(mapping);
    // Reported as in a plain directory, at most once.
    let _ = handle.fsync();
    handle.fsync().unwrap();
    drop(handle);
    world.drain();
    assert_eq!(world.state("f"), Residency::Clean);
    let below = world.store.read("f").unwrap();
    assert_eq!((below[0], below[1], below[4096]), (10, 8, 7));
}
