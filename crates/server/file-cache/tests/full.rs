//! A burst buffer that is really full: a small tmpfs in a private mount namespace.

mod support;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::HasErrno;

use config::{Atime, Policy, StageOut};
use data_store::{LocalIndex, Residency, StoreObserver};
use global_store::calls::{RequestId, Store};
use models::global::StoreOperation::SyncNames;
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, World, kernel_file, read};
use testkit::{PATIENCE, TempTree, in_private_namespace, wait_until};

/// Makes a cache on a tmpfs of 16 MiB, without a reserve.
fn world(tree: &TempTree, ballast: u64) -> World {
    let root = tree.mount_tmpfs("bb", 16 << 20);
    let mut world = World::with(|settings| {
        settings.burst_buffer = root.join("forebay");
        settings.space = None;
        settings.ballast_bytes = ballast;
    });
    world.policy = Arc::new(Policy { reserve_thousandths: 0, stage_out: StageOut::Manual, ..Policy::default() });
    world
}

/// Makes clean replicas that nobody uses.
fn stage_in(world: &World, names: &[&str], bytes: usize) {
    for name in names {
        world.store.put(name, &vec![1; bytes]);
        world.cache.stage_in(&world.anchor(name), &world.policy).unwrap();
    }
}

#[test]
fn a_file_that_outgrows_the_burst_buffer_goes_on_in_the_global_store() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let handle = world.create("f");
        for number in 0..24_u8 {
            let result = handle.append(&vec![number; MIB]).unwrap();
            assert_eq!(result.offset, u64::from(number) * MIB as u64);
        }
        assert_eq!(world.cache.counters().spilled, 1);
        let found = world.store.read("f").unwrap();
        assert_eq!(found.len(), 24 * MIB);
        assert!((0..24).all(|number| found[number * MIB..(number + 1) * MIB].iter().all(|&byte| byte == number as u8)));
        assert_eq!(read(&handle, 24 * MIB), found);
        drop(handle);
        assert_eq!(world.state("f"), Residency::Absent);
        world.advance(1);
        let handle = world.create("next");
        assert!(handle.backing().is_some(), "the room is not free again");
    });
}

#[test] // S36
fn a_read_of_a_file_that_moves_to_the_global_store_counts() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let mut world = world(&tree, 0);
        world.policy = Arc::new(Policy { atime: Atime::Strict, ..Policy::clone(&world.policy) });
        let handle = world.create("f");
        handle.append(&vec![1; MIB]).unwrap();
        read(&handle, 1);
        let below = |world: &World| world.store.attributes("f").unwrap().atime;
        let last = world.cache.accessed(&world.identity("f"), below(&world));
        assert!(last > below(&world));
        for _ in 1..24 {
            handle.append(&vec![1; MIB]).unwrap();
        }
        assert_eq!(world.cache.counters().spilled, 1);
        assert_eq!(world.cache.accessed(&world.identity("f"), below(&world)), last);
        drop(handle);
        assert_eq!(below(&world), last);
    });
}

#[test]
fn clean_replicas_make_room_for_a_write() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        stage_in(&world, &["a", "b"], 5 * MIB);
        let handle = world.create("f");
        handle.write(&vec![2; 12 * MIB], 0).unwrap();
        let status = world.cache.counters();
        assert!(status.evicted > 0);
        assert_eq!(status.spilled, 0);
        assert_eq!(world.state("f"), Residency::Dirty);
    });
}

/// Returns bytes that tell where they belong.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

#[test] // S11
fn an_append_goes_on_behind_what_stands_of_it_when_there_is_room_again() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        stage_in(&world, &["a", "b"], 5 * MIB);
        let handle = world.create("f");
        handle.append(b"first").unwrap();
        let data = pattern(12 * MIB);
        let result = handle.append(&data).unwrap();
        assert_eq!((result.offset, result.written), (5, data.len()));
        assert_eq!((world.cache.counters().evicted > 0, world.cache.counters().spilled), (true, 0));
        // Also in the global store, where no room was left.
        let result = handle.append(&data).unwrap();
        assert_eq!(
            (result.offset, result.written, world.cache.counters().spilled),
            (5 + data.len() as u64, data.len(), 1)
        );
        assert!(read(&handle, 25 * MIB) == [b"first".as_slice(), &data, &data].concat());
    });
}

#[test] // S11
fn an_append_that_finds_no_more_room_says_how_much_stands_and_takes_nothing_back() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let handle = world.create("f");
        // A file without a name cannot move.
        let identity = world.identity("f");
        world.cache.removing(&identity);
        world.store.unlink("f").unwrap();
        world.cache.unlinked(&identity);
        handle.append(b"first").unwrap();
        let data = pattern(20 * MIB);
        let result = handle.append(&data).unwrap();
        assert_eq!(result.offset, 5);
        assert!((8 * MIB..16 * MIB).contains(&result.written), "{}", result.written);
        let refused = handle.append(&data).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ENOSPC));
        assert!(read(&handle, 20 * MIB) == [b"first", &data[..result.written]].concat());
    });
}

#[test] // S11
fn an_append_ends_where_others_have_grown_the_file_since_it_found_no_room() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        stage_in(&world, &["a"], 5 * MIB);
        let handle = world.create("f");
        let other = Mutex::new(Some(world.open("f", true)));
        world.cache.observe(StoreObserver::Removals(Box::new(move |_| {
            let other = other.lock().unwrap().take();
            other.iter().for_each(|other| other.set_len(20 << 20).unwrap());
        })));
        let data = pattern(14 * MIB);
        let result = handle.append(&data).unwrap();
        assert!((8 * MIB..14 * MIB).contains(&result.written), "{}", result.written);
        let found = read(&handle, 21 * MIB);
        assert_eq!((result.offset, found.len()), (0, 20 * MIB));
        assert!(found[..result.written] == data[..result.written]);
        assert!(found[result.written..].iter().all(|&byte| byte == 0), "over what another was told is written");
        assert_eq!(handle.append(b"next").unwrap().offset, 20 << 20);
    });
}

/// Writes, syncs and removes a file of 10 MiB. Until its next sync the global store may lose the removal.
fn remove_synced(world: &World) {
    let handle = world.create("removed");
    handle.write(&vec![1; 10 * MIB], 0).unwrap();
    handle.fsync().unwrap();
    drop(handle);
    let identity = world.identity("removed");
    world.cache.removing(&identity);
    world.store.unlink("removed").unwrap();
    world.cache.unlinked(&identity);
    assert_eq!((world.cache.counters().removed, world.cache.counters().spilled), (1, 0));
}

#[test] // S15
fn removed_files_that_are_kept_make_room_for_a_write_and_for_an_open() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        remove_synced(&world);
        let handle = world.create("f");
        handle.write(&vec![2; 12 * MIB], 0).unwrap();
        assert_eq!((world.cache.counters().removed, world.cache.counters().spilled), (0, 0));
        drop(handle);
        world.drain();
        world.cache.evict(&world.identity("f")).unwrap();
        remove_synced(&world);
        world.store.put("large", &vec![3; 8 * MIB]);
        world.advance(1);
        assert_eq!(read(&world.open("large", false), 1), [3], "who only reads goes to the global store");
        assert_eq!(world.cache.counters().removed, 1);
        let handle = world.open("large", true);
        assert_eq!((world.cache.counters().removed, handle.backing().is_some()), (0, true));
    });
}

#[test] // S15
fn a_store_that_hangs_keeps_nobody_from_the_room_of_removed_files_for_long() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let answers = Arc::new(Mutex::new(()));
        let hangs = answers.lock().unwrap();
        let awaited = Arc::clone(&answers);
        world.store.set_hook(Some(Arc::new(move |operation, _| {
            let _answered = (*operation == SyncNames).then(|| awaited.lock());
        })));
        // The second wait: the store does not answer, and data that a crash may bring back matters less than the room.
        for _ in 0..3 {
            remove_synced(&world);
            world.advance(2);
        }
        drop(hangs);
        // Some seconds after a wait in vain the next caller waits, whoever came in between.
        world.advance(2);
        let syncs = || world.store.journal().iter().filter(|entry| entry.operation == SyncNames).count();
        wait_until("the sync ends that hung", Duration::from_secs(30), || syncs() == 1);
        remove_synced(&world);
        assert_eq!(syncs(), 2);
    });
}

#[test] // S15
fn a_store_that_cannot_be_synced_keeps_nobody_from_the_room_of_removed_files() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let matching = |operation: &StoreOperation| *operation == SyncNames;
        world.store.fail(Fault { times: u64::MAX, matching, ..Fault::default() });
        (0..3).for_each(|_| remove_synced(&world));
    });
}

#[test] // S30
fn a_program_sees_no_space_only_if_the_global_store_has_none() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let handle = world.create("f");
        handle.write(&vec![1; 10 * MIB], 0).unwrap();
        world.store.fail(Fault {
            times: u64::MAX,
            errno: libc::ENOSPC,
            matching: |o| matches!(o, StoreOperation::Write(_)),
            ..Fault::default()
        });
        let refused = handle.write(&vec![2; 10 * MIB], 10 * MIB as u64);
        assert_eq!(refused.unwrap_err().errno(), Some(libc::ENOSPC));
        world.store.heal();
        let before = read(&handle, 10 * MIB);
        assert_eq!(before, vec![1; 10 * MIB], "what was written is still there");
        let _told_once = handle.flush();
        handle.write(&vec![2; 10 * MIB], 10 * MIB as u64).unwrap();
        assert_eq!(world.store.read("f").unwrap().len(), 20 * MIB);
    });
}

#[test] // S17
fn the_ballast_is_not_for_what_programs_write() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 3 << 20);
        world.cache.housekeep();
        let ballast = world.settings.burst_buffer.join("ballast");
        assert_eq!(ballast.metadata().unwrap().len(), 3 << 20);
        let handle = world.create("f");
        handle.write(&vec![1; 12 * MIB], 0).unwrap();
        handle.write(&vec![1; 2 * MIB], 12 * MIB as u64).unwrap();
        world.cache.housekeep();
        assert!(ballast.exists());
        assert_eq!(world.cache.counters().spilled, 1);
    });
}

#[test] // S31
fn a_kernel_writer_keeps_its_file_in_the_burst_buffer_and_is_refused() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let handle = world.create("f");
        let kernel = kernel_file(&handle);
        kernel.write_all_at(&vec![1; 10 * MIB], 0).unwrap();
        assert_eq!(kernel.write_all_at(&vec![1; 10 * MIB], 10 * MIB as u64).unwrap_err().errno(), Some(libc::ENOSPC));
        let refused = handle.write(&vec![1; 10 * MIB], 10 * MIB as u64);
        assert_eq!(refused.unwrap_err().errno(), Some(libc::ENOSPC));
        drop((kernel, handle));
        world.drain();
        assert_eq!(&world.store.read("f").unwrap()[..10 * MIB], &vec![1; 10 * MIB]);
    });
}

#[test]
fn a_stage_in_that_finds_no_room_serves_from_the_global_store() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let keep = world.create("keep");
        keep.write(&vec![1; 9 * MIB], 0).unwrap();
        world.store.put("f", &vec![2; 6 * MIB]);
        let handle = world.open("f", false);
        keep.write(&vec![1; 4 * MIB], 9 * MIB as u64).unwrap();
        assert_eq!(read(&handle, 6 * MIB), vec![2; 6 * MIB]);
        assert_eq!(read(&world.open("f", false), 6 * MIB), vec![2; 6 * MIB]);
    });
}

#[test] // S31
fn clean_replicas_make_room_for_an_allocation() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        stage_in(&world, &["a", "b"], 5 * MIB);
        let handle = world.create("f");
        handle.fallocate(0, 0, 12 << 20).unwrap();
        assert!(world.cache.counters().evicted > 0);
        assert_eq!(read(&handle, 12 * MIB), vec![0; 12 * MIB]);
        handle.fallocate(0, 0, 32 << 20).unwrap();
        assert_eq!(
            (world.cache.counters().spilled, handle.size().unwrap()),
            (1, 32 << 20),
            "more than the burst buffer has"
        );
    });
}

#[test] // S31
fn an_allocation_beside_the_kernel_takes_only_room_that_is_there_and_no_more_than_the_global_store_has() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let handle = world.create("f");
        let kernel = kernel_file(&handle);
        let held = || kernel.metadata().map(|found| std::os::unix::fs::MetadataExt::blocks(&found)).unwrap();
        world.store.set_free(64 << 20);
        let refused = handle.fallocate(0, 0, 65 << 20).unwrap_err();
        assert_eq!((refused.errno(), handle.size().unwrap()), (Some(libc::ENOSPC), 0));
        handle.fallocate(libc::FALLOC_FL_KEEP_SIZE as u32, 0, 32 << 20).unwrap();
        assert_eq!((handle.size().unwrap(), held()), (0, 0), "others may have the room");
        handle.fallocate(0, 0, 32 << 20).unwrap();
        assert_eq!((handle.size().unwrap(), held()), (32 << 20, 0));
        world.write_new("other", &vec![1; 4 * MIB]);
        assert_eq!(world.cache.counters().spilled, 0);
    });
}

/// The burst buffer has a file system of its own that also holds the catalogue. Programs fill it to the last block.
#[test] // S30, S58
fn a_burst_buffer_without_a_free_block_stages_out_and_evicts_and_takes_nobodys_calls() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let root = tree.mount_tmpfs("bb", 24 << 20);
        let world = World::with(|settings| {
            settings.burst_buffer = root.join("forebay");
            (settings.space, settings.catalogue) = (None, None);
        });
        stage_in(&world, &["clean", "appended"], MIB);
        (0..100).for_each(|number| world.write_new(&format!("dirty{number}"), b"data"));
        world.advance(1);
        let large = world.create("large");
        let kernel = kernel_file(&large);
        for bytes in [MIB, 4096, 1] {
            while kernel.metadata().and_then(|now| kernel.write_at(&vec![1; bytes], now.len())).is_ok() {}
        }
        assert_eq!(rustix::fs::statvfs(&root).unwrap().f_bavail, 0, "the test is worth nothing");
        world.advance(1);
        for name in ["new", "appended", "dirty7"] {
            let handle = if name == "new" { world.create(name) } else { world.open(name, true) };
            assert!(!handle.begin_passthrough(), "{name}: the kernel would find no room");
            handle.write(&vec![2; 2 * MIB], 0).unwrap();
        }
        let identity = world.identity("dirty8");
        world.cache.removing(&identity);
        world.store.unlink("dirty8").unwrap();
        world.cache.unlinked(&identity);
        drop((kernel, large));
        world.drain();
        assert_eq!(world.state("large"), Residency::Clean);
        world.cache.evict(&world.identity("large")).unwrap();
        world.cache.housekeep();
        assert!(world.create("next").begin_passthrough());
        assert_eq!(world.cache.counters().orphaned, 0);
    });
}

#[test] // S31
fn clean_replicas_make_room_for_what_the_kernel_writes() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let root = tree.mount_tmpfs("bb", 16 << 20);
        let world = World::with(|settings| {
            settings.burst_buffer = root.join("forebay");
            (settings.space, settings.clock, settings.background) = (None, None, true);
        });
        stage_in(&world, &["a", "b", "c"], 4 * MIB);
        let handle = world.create("f");
        let kernel = kernel_file(&handle);
        for number in 0..12 {
            let room = || rustix::fs::statvfs(&root).is_ok_and(|found| found.f_bavail * found.f_frsize >= MIB as u64);
            support::until("room for what the kernel writes", room);
            kernel.write_all_at(&vec![number as u8; MIB], number * MIB as u64).unwrap();
        }
        assert!(world.cache.counters().evicted >= 2);
        drop((kernel, handle));
        world.cache.shutdown();
    });
}

#[test] // S51
fn who_was_given_up_while_a_file_that_outgrows_the_burst_buffer_is_staged_out_waits_no_more() {
    in_private_namespace(|| {
        let tree = TempTree::new();
        let world = world(&tree, 0);
        let handle = world.create("f");
        handle.write(&vec![1; 12 * MIB], 0).unwrap();
        let (answers, reached) = (Arc::new(Mutex::new(())), Arc::new(AtomicU64::new(0)));
        let (awaited, seen) = (Arc::clone(&answers), Arc::clone(&reached));
        world.store.set_hook(Some(Arc::new(move |operation, _| {
            if matches!(operation, StoreOperation::Write(_)) {
                seen.fetch_add(1, Ordering::AcqRel);
                drop(awaited.lock());
            }
        })));
        let hangs = answers.lock().unwrap();
        let request = RequestId { asker: Store::mint(), number: 2 };
        let cache = world.cache.clone();
        let drain = std::thread::spawn(move || cache.drain_all());
        wait_until("the stage-out hangs", PATIENCE, || reached.load(Ordering::Acquire) > 0);
        std::thread::scope(|scope| {
            let write = || {
                request.begin();
                handle.write(&vec![2; 12 * MIB], 12 << 20).map(|_| ()).map_err(|error| error.errno())
            };
            let writer = scope.spawn(write);
            wait_until("somebody writes", PATIENCE, || request.working().is_some());
            request.give_up();
            wait_until("the writer is let go", PATIENCE, || writer.is_finished());
            assert_eq!(writer.join().unwrap(), Err(Some(libc::EIO)));
            assert_eq!(world.cache.counters().spilled, 0);
        });
        drop(hangs);
        drain.join().unwrap();
    });
}
