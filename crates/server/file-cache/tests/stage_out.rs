//! Stage-out.

mod support;

use std::sync::Arc;
use types::HasErrno;

use config::{KeepAfter, OnConflict, Policy, StageOut};
use data_store::{Keep, NewTime, OpenHow, Residency, SyncScope};
use file_cache::limits::CONCLUDED_FILES;
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, Mapping, World, kernel_write, read};
use types::{ByteRange, Timestamp};

#[test] // S3
fn a_closed_file_reaches_the_global_store_with_its_time() {
    let world = World::new();
    let handle = world.create("f");
    handle.write(b"hello", 0).unwrap();
    let mtime = world.cache.ahead(&world.identity("f")).unwrap().mtime;
    drop(handle);
    assert_eq!(world.state("f"), Residency::Queued);
    assert_eq!(world.store.read("f").unwrap(), b"");
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"hello");
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, mtime);
    assert_eq!(world.state("f"), Residency::Clean);
    assert_eq!(world.cache.ahead(&world.identity("f")), None);
}

#[test] // S10, S66
fn holes_are_kept_both_ways() {
    let world = World::new();
    let handle = world.create("f");
    handle.write(&[1; 4096], 0).unwrap();
    handle.write(&[2; 4096], 9 * MIB as u64).unwrap();
    handle.set_len(20 * MIB as u64).unwrap();
    drop(handle);
    world.drain();
    let written: u64 = world.writes().iter().map(|w| if let StoreOperation::Write(r) = w { r.len() } else { 0 }).sum();
    assert!(written <= 4 * 65536, "{written} bytes were written for 8 KiB of data");
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.size, 20 * MIB as u64);
    world.cache.evict(&world.identity("f")).unwrap();
    world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
    let blocks = replica_blocks(&world);
    assert!(blocks <= 1024, "the replica takes {blocks} blocks");
}

fn replica_blocks(world: &World) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let parts = std::fs::read_dir(world.dir.path().join("replicas")).unwrap();
    let files = parts.flat_map(|part| std::fs::read_dir(part.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().blocks()).sum()
}

#[test] // S19, S66
fn only_changed_blocks_travel() {
    let world = World::new();
    world.store.put("f", &vec![7; 8 * MIB]);
    let handle = world.open("f", true);
    kernel_write(&handle, b"x", 3 * MIB as u64 + 5);
    drop(handle);
    world.drain();
    let block = ByteRange::at(3 * MIB as u64, MIB as u64);
    assert_eq!(world.writes(), [StoreOperation::Write(block)]);
    assert_eq!(world.store.read("f").unwrap()[3 * MIB + 5], b'x');
}

#[test]
fn a_file_opened_for_writing_and_not_written_is_not_touched() {
    let world = World::new();
    for (name, size) in [("small", 5000), ("large", 3 * MIB)] {
        world.store.put(name, &vec![7; size]);
        world.store.clear_journal();
        drop(world.open(name, true));
        assert_eq!(world.state(name), Residency::Queued);
        world.drain();
        assert_eq!(world.state(name), Residency::Clean);
        assert_eq!(world.store.journal(), []);
    }
}

#[test]
fn a_batch_of_small_files_costs_one_sync() {
    let world = World::new();
    for number in 0..100 {
        world.write_new(&format!("f{number}"), &[number; 1000]);
    }
    let concluding = 100_u64.div_ceil(CONCLUDED_FILES as u64);
    let commits = world.catalogue.commits();
    world.drain();
    let journal = world.store.journal();
    let syncs = journal.iter().filter(|e| matches!(e.operation, StoreOperation::SyncStore)).count();
    assert_eq!(syncs, 1);
    assert!(!journal.iter().any(|event| matches!(event.operation, StoreOperation::Sync | StoreOperation::SyncName)));
    assert_eq!(world.catalogue.commits() - commits, 1 + concluding);
    assert!((0..100).all(|number| world.store.read(format!("f{number}")).unwrap() == [number; 1000]));
}

#[test] // S25
fn a_changed_global_copy_is_a_conflict_and_both_are_kept() {
    let world = World::new();
    world.store.put("f", b"base");
    world.open("f", true).write(b"ours", 0).unwrap();
    world.store.put("f", b"theirs");
    let stuck = world.cache.drain_all();
    assert_eq!(stuck.len(), 1);
    assert_eq!(stuck[0].state, Residency::Conflict);
    assert_eq!(world.store.read("f").unwrap(), b"theirs");
    assert_eq!(read(&world.open("f", false), 10), b"ours");
    assert_eq!(world.cache.counters().conflict, 1);
    let saved = world.cache.resolve(&world.identity("f"), Keep::Both).unwrap().unwrap();
    assert_eq!(std::fs::read(saved).unwrap(), b"ours");
    assert_eq!(read(&world.open("f", false), 10), b"theirs");
}

#[test] // S25
fn a_file_whose_name_is_as_long_as_names_may_be_is_saved_as_well() {
    let world = World::new();
    for name in ["x".repeat(255), "\u{20ac}".repeat(85)] {
        world.store.put(&name, b"base");
        world.open(&name, true).write(b"ours", 0).unwrap();
        world.store.put(&name, b"theirs");
        assert_eq!(world.cache.drain_all().len(), 1);
        let saved = world.cache.resolve(&world.identity(&name), Keep::Both).unwrap().unwrap();
        assert_eq!(std::fs::read(saved).unwrap(), b"ours");
    }
}

#[test] // S25
fn a_conflict_may_be_resolved_for_the_burst_buffer_or_won_by_policy() {
    let world = World::new();
    for by_policy in [false, true] {
        let name = if by_policy { "p" } else { "r" };
        world.store.put(name, b"base");
        let on_conflict = if by_policy { OnConflict::DirtyWins } else { OnConflict::Keep };
        let policy = Arc::new(Policy { on_conflict, ..Policy::default() });
        let handle = world.cache.open_file(world.anchor(name), OpenHow { policy, ..world.how(true) }).unwrap();
        handle.write(b"ours", 0).unwrap();
        drop(handle);
        world.store.put(name, b"theirs, longer");
        let stuck = world.cache.drain_all();
        assert_eq!(stuck.is_empty(), by_policy);
        if !by_policy {
            world.cache.resolve(&world.identity(name), Keep::BurstBuffer).unwrap();
            world.drain();
        }
        assert_eq!(world.store.read(name).unwrap(), b"ours");
        assert_eq!(world.state(name), Residency::Clean);
    }
}

#[test] // S26
fn a_change_of_attributes_alone_is_no_conflict() {
    let world = World::new();
    world.store.put("f", b"base");
    world.open("f", true).write(b"ours", 0).unwrap();
    world.store.set_mode("f", 0o600).unwrap();
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"ours");
}

#[test] // S19
fn an_outsider_who_writes_during_the_copy_is_noticed() {
    let world = World::new();
    world.write_new("f", &vec![1; 3 * MIB]);
    let (store, once) = (world.store.clone(), std::sync::atomic::AtomicBool::new(false));
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Sync) && !once.swap(true, std::sync::atomic::Ordering::Relaxed) {
            store.write("f", b"theirs", 100).unwrap();
        }
    })));
    let stuck = world.cache.drain_all();
    assert_eq!(stuck[0].state, Residency::Conflict);
}

#[test] // S19
fn an_outsider_who_writes_before_a_batch_is_synced_is_noticed() {
    let world = World::new();
    world.write_new("f", &[1; 1000]);
    world.write_new("g", &[2; 1000]);
    let (store, once) = (world.store.clone(), std::sync::atomic::AtomicBool::new(false));
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::SyncStore) && !once.swap(true, std::sync::atomic::Ordering::Relaxed) {
            store.write("f", b"theirs", 100).unwrap();
        }
    })));
    let stuck = world.cache.drain_all();
    assert_eq!(stuck.iter().map(|stuck| stuck.state).collect::<Vec<_>>(), [Residency::Conflict]);
    assert_eq!(world.store.read("g").unwrap(), [2; 1000]);
}

#[test] // S27
fn a_file_that_is_gone_below_is_kept_as_an_orphan() {
    let world = World::new();
    world.write_new("f", b"precious");
    let identity = world.identity("f");
    world.store.unlink("f").unwrap();
    let stuck = world.cache.drain_all();
    assert!(stuck[0].orphaned);
    assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), b"precious");
    assert_eq!(world.cache.counters().orphaned, 1);
    let saved = world.cache.resolve(&identity, Keep::Both).unwrap().unwrap();
    assert_eq!(std::fs::read(saved).unwrap(), b"precious");
    assert_eq!(world.cache.counters().files, 0);
}

#[test] // S4
fn an_unlinked_file_is_dropped_and_never_staged_out() {
    let world = World::new();
    let handle = world.create("f");
    handle.write(b"temporary", 0).unwrap();
    let identity = world.identity("f");
    world.store.unlink("f").unwrap();
    world.cache.unlinked(&identity);
    assert_eq!(world.cache.counters().files, 0);
    handle.write(b"T", 0).unwrap();
    assert_eq!(read(&handle, 20), b"Temporary");
    assert_eq!(world.cache.ahead(&identity).unwrap().size, 9);
    drop(handle);
    world.drain();
    assert_eq!(world.replicas(), 0);
    assert_eq!(world.store.read_identity(&identity).unwrap(), b"");
}

#[test] // S20
fn a_mapping_that_outlives_its_descriptor_keeps_the_file_dirty() {
    let world = World::new();
    let handle = world.create("f");
    kernel_write(&handle, &[1; 4096], 0);
    let mapping = Mapping::of(&handle);
    drop(handle);
    let stuck = world.cache.drain_all();
    assert_eq!(stuck[0].errno, libc::EBUSY);
    assert_eq!(world.store.read("f").unwrap(), [1; 4096]);
    mapping.store(9);
    assert!(world.cache.evict(&world.identity("f")).is_err());
    drop(mapping);
    world.drain();
    assert_eq!(world.store.read("f").unwrap()[0], 9);
    assert_eq!(world.state("f"), Residency::Clean);
}

#[test]
fn a_replica_that_goes_once_clean_stays_while_a_reader_maps_it() {
    let world = World::new();
    let mut how = world.how(true);
    how.policy = Arc::new(Policy { keep_after: KeepAfter::Delete, stage_out: StageOut::Manual, ..Policy::default() });
    world.store.put("f", &[1; 4096]);
    let open = |how: &OpenHow| world.cache.open_file(world.anchor("f"), how.clone()).unwrap();
    let writer = open(&how);
    kernel_write(&writer, &[2; 4096], 0);
    let reading = Mapping::for_reading(&writer);
    drop(writer);
    world.drain();
    assert_eq!(world.state("f"), Residency::Clean, "what is written next must be seen through the mapping");
    kernel_write(&open(&how), &[3], 0);
    assert_eq!(reading.first(), 3);
    drop(reading);
    world.drain();
    assert_eq!(world.state("f"), Residency::Absent);
    drop(open(&OpenHow { write: false, ..how }));
    assert_eq!((world.state("f"), world.replicas()), (Residency::Absent, 0), "and a reader's goes at its close");
}

#[test] // S20
fn a_write_during_the_copy_keeps_the_file_dirty_until_it_is_copied_too() {
    let world = World::new();
    world.write_new("f", &vec![1; 3 * MIB]);
    let cache = world.cache.clone();
    let (anchor, how) = (world.anchor("f"), world.how(true));
    let once = std::sync::atomic::AtomicBool::new(false);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Sync) && !once.swap(true, std::sync::atomic::Ordering::Relaxed) {
            let handle = cache.open_file(Arc::clone(&anchor), how.clone()).unwrap();
            kernel_write(&handle, b"late", 0);
        }
    })));
    world.cache.drain_file(&world.identity("f")).unwrap();
    assert_eq!(world.state("f"), Residency::Queued);
    assert_eq!(&world.store.read("f").unwrap()[..4], [1; 4]);
    world.store.clear_journal();
    world.drain();
    assert_eq!(&world.store.read("f").unwrap()[..4], b"late");
    assert_eq!(
        world.writes(),
        [StoreOperation::Write(ByteRange::at(0, MIB as u64))],
        "only the late block travels again"
    );
}

#[test] // S21
fn a_failed_stage_out_is_told_once_to_each_handle_and_the_data_stays() {
    let world = World::new();
    let (first, second, third) = (world.create("f"), world.open("f", true), world.open("f", true));
    first.write(b"data", 0).unwrap();
    assert!(!third.sync(SyncScope::IfKept).unwrap(), "its record is not durable yet");
    third.fsync().unwrap();
    let fault = Fault {
        times: 2,
        errno: libc::EDQUOT,
        matching: |o| matches!(o, StoreOperation::Write(_)),
        ..Fault::default()
    };
    world.store.fail(fault);
    for _ in 0..2 {
        assert_eq!(world.cache.drain_file(&world.identity("f")).unwrap_err().errno, libc::EDQUOT);
    }
    let later = world.open("f", true);
    assert_eq!(first.flush().unwrap_err().errno(), Some(libc::EDQUOT));
    first.flush().unwrap();
    assert_eq!(second.fsync().unwrap_err().errno(), Some(libc::EDQUOT));
    second.fsync().unwrap();
    assert_eq!(third.sync(SyncScope::IfKept).unwrap_err().errno(), Some(libc::EDQUOT));
    assert!(third.sync(SyncScope::IfKept).unwrap());
    second.write(b"D", 0).unwrap();
    later.fsync().unwrap();
    assert_eq!(world.cache.counters().stuck.len(), 1);
    drop((first, second, third, later));
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"Data");
    assert!(world.cache.counters().stuck.is_empty());
}

#[test] // S21
fn what_fails_again_and_again_is_recorded_as_failed_and_still_tried() {
    let mut world = World::new();
    world.store.put("f", &vec![1; 2 * MIB]);
    world.open("f", true).write(&vec![2; 2 * MIB], 0).unwrap();
    let matching = |o: &StoreOperation| matches!(o, StoreOperation::Write(_));
    world.store.fail(Fault { after: 1, times: 9, errno: libc::EACCES, matching, torn: true, ..Fault::default() });
    for _ in 0..6 {
        assert!(world.cache.drain_file(&world.identity("f")).is_err());
    }
    assert_eq!(world.state("f"), Residency::Failed);
    world.crash();
    world.store.heal();
    assert_eq!(world.state("f"), Residency::Failed);
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), vec![2; 2 * MIB]);
}

#[test] // S3
fn the_users_time_wins_over_the_time_of_the_write() {
    let world = World::new();
    let handle = world.create("f");
    kernel_write(&handle, b"data", 0);
    let mtime = Timestamp { seconds: 1_000_000, nanos: 7 };
    world.cache.date(&world.anchor("f"), Some(NewTime::At(mtime)), &mut || world.store.set_mtime("f", mtime)).unwrap();
    drop(handle);
    world.drain();
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, mtime);
    assert_eq!(world.store.read("f").unwrap(), b"data");
}

#[test] // S15
fn fsync_makes_the_intent_and_the_name_durable() {
    let mut world = World::new();
    let handle = world.create("f");
    handle.write(b"data", 0).unwrap();
    handle.fdatasync().unwrap();
    assert!(world.store.journal().iter().any(|event| event.operation == StoreOperation::SyncName));
    let lazy = world.create("lazy");
    lazy.write(b"data", 0).unwrap();
    world.catalogue.crash();
    world.crash();
    drop((handle, lazy));
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"data");
    assert_eq!(world.state("lazy"), Residency::Absent);
}

#[test] // S15
fn a_sync_of_everything_keeps_what_was_written_to_open_and_to_closed_files() {
    let mut world = World::new();
    let open = world.create("open");
    open.write(b"data", 0).unwrap();
    world.write_new("closed", b"data");
    world.cache.sync_all().unwrap();
    let late = world.create("late");
    late.write(b"data", 0).unwrap();
    world.catalogue.crash();
    world.crash();
    drop((open, late));
    world.drain();
    for name in ["open", "closed"] {
        assert_eq!(world.store.read(name).unwrap(), b"data", "{name}");
    }
    assert_eq!(world.state("late"), Residency::Absent);
}

#[test] // S28
fn a_mark_is_on_a_shared_store_while_the_file_is_dirty() {
    let world = World::with(|settings| settings.agent_id = "node a".into());
    world.store.set_shared(true);
    world.write_new("f", b"data");
    assert_eq!(world.anchor("f").mark().unwrap().unwrap(), b"node a 1");
    world.drain();
    assert_eq!(world.anchor("f").mark().unwrap(), None);
    assert_eq!(world.state("f"), Residency::Clean);
    world.store.put_mark("f", Some(b"node b 7")).unwrap();
    let policy = Arc::new(Policy { remote_wait: std::time::Duration::ZERO, ..Policy::default() });
    let refused = world.cache.open_file(world.anchor("f"), OpenHow { policy, ..world.how(false) });
    assert_eq!(refused.err().unwrap().errno(), Some(libc::ETIMEDOUT));
}

#[test]
fn a_pin_set_during_a_stage_out_stays() {
    let world = World::new();
    world.write_new("f", &vec![1; 2 * MIB]);
    let (cache, identity) = (world.cache.clone(), world.identity("f"));
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Write(_)) {
            cache.pin(&identity, true).unwrap();
        }
    })));
    world.drain();
    assert_eq!(world.cache.evict(&world.identity("f")).unwrap_err().errno(), Some(libc::EPERM));
}

#[test]
fn a_file_unlinked_or_given_up_during_its_stage_out_does_not_come_back() {
    for unlink in [true, false] {
        let mut world = World::new();
        world.write_new("f", &vec![1; 2 * MIB]);
        let (cache, identity, store) = (world.cache.clone(), world.identity("f"), world.store.clone());
        world.store.set_hook(Some(Arc::new(move |operation, _| {
            if matches!(operation, StoreOperation::Write(_)) {
                if unlink && store.unlink("f").is_ok() {
                    cache.unlinked(&identity);
                }
                if !unlink {
                    // This waits for the stage-out, so another thread does it.
                    let (cache, identity) = (cache.clone(), identity.clone());
                    std::thread::spawn(move || cache.resolve(&identity, Keep::Global));
                }
            }
        })));
        let identity = world.identity("f");
        let _ = world.cache.drain_file(&identity);
        support::until("one or the other", || !world.cache.is_dirty(&identity));
        world.store.set_hook(None);
        world.crash();
        assert!(!world.cache.is_dirty(&identity));
        world.cache.shutdown();
        if unlink {
            assert_eq!(world.replicas(), 0);
        }
    }
}

#[test]
fn a_replica_evicted_before_its_clean_record_is_durable_leaves_no_false_loss() {
    let mut world = World::new();
    world.write_new("f", b"data");
    world.drain();
    world.cache.evict(&world.identity("f")).unwrap();
    world.catalogue.crash();
    world.crash();
    assert_eq!(world.state("f"), Residency::Absent);
    assert_eq!(world.cache.counters().stuck.len(), 0);
    assert_eq!(read(&world.open("f", false), 10), b"data");
}
