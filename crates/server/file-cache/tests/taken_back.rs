//! Removal of files whose synced data is only in the burst buffer, and crashes that take the removal back.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use data_store::Residency;
use file_cache::limits;
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, Handle, OpenDataExt};
use support::{World, read, until};
use types::Identity;

/// A store whose medium gets changes of names only by a sync.
fn world() -> World {
    let world = World::new();
    world.store.set_forgets_names();
    world
}

fn write_synced(world: &World, path: &str, data: &[u8]) -> Handle {
    let handle = world.create(path);
    handle.write(data, 0).unwrap();
    handle.fsync().unwrap();
    handle
}

fn remove(world: &World, path: &str) -> Identity {
    let identity = world.identity(path);
    world.cache.removing(&identity);
    world.store.unlink(path).unwrap();
    world.cache.unlinked(&identity);
    identity
}

fn replace(world: &World, from: &str, to: &str) {
    let replaced = world.identity(to);
    world.cache.removing(&replaced);
    world.store.rename(from, to).unwrap();
    world.cache.renamed(&*world.anchor(to));
    world.cache.unlinked(&replaced);
}

/// Crashes both machines, or the one machine that holds both.
fn crash(world: &mut World) {
    world.store.crash();
    world.machine_crash();
}

/// Runs housekeeping until no removed file is kept any more.
fn let_go(world: &World) {
    world.advance(limits::REMOVALS_AFTER.as_secs());
    until("the end of what was removed", || {
        world.cache.housekeep();
        world.cache.counters().removed == 0
    });
}

fn syncs(world: &World) -> usize {
    world.store.journal().iter().filter(|event| event.operation == StoreOperation::SyncNames).count()
}

#[test] // S15
fn a_synced_file_whose_removal_a_crash_took_back_is_whole() {
    for (replaced, killed) in [(false, false), (true, false), (false, true), (true, true)] {
        let label = format!("replaced {replaced}, killed {killed}");
        let mut world = world();
        drop(write_synced(&world, "f", b"synced"));
        if replaced {
            drop(write_synced(&world, "g", b"other"));
            replace(&world, "g", "f");
        } else {
            remove(&world, "f");
        }
        if killed {
            // The next agent finds the file gone, and the removal is not durable yet.
            world.crash();
        }
        crash(&mut world);
        world.cache.sweep().unwrap();
        assert!(world.cache.counters().stuck.is_empty(), "{label}");
        assert_eq!(world.state("f"), Residency::Queued, "{label}");
        assert_eq!(read(&world.open("f", false), 10), b"synced", "{label}");
        world.drain();
        assert_eq!(world.store.read("f").unwrap(), b"synced", "{label}");
        assert_eq!(world.store.read("g").ok().as_deref(), replaced.then_some(b"other".as_slice()), "{label}");
    }
}

#[test] // S15
fn a_removed_file_is_nobodys_concern_and_goes_when_its_removal_lasts() {
    let mut world = world();
    for number in 0..50 {
        drop(write_synced(&world, &format!("f{number}"), b"data"));
    }
    let removed: Vec<Identity> = (0..50).map(|number| remove(&world, &format!("f{number}"))).collect();
    let status = world.cache.counters();
    assert_eq!((status.removed, status.files), (50, 50));
    assert_eq!((status.dirty, status.queued, status.dirty_bytes, status.stuck.len()), (0, 0, 0, 0));
    assert!(removed.iter().all(|identity| !world.cache.is_dirty(identity)));
    assert!(removed.iter().all(|identity| world.cache.residency(identity) == Residency::Absent));
    world.cache.housekeep();
    world.drain();
    assert_eq!((world.cache.check(false, true).unwrap().found, world.replicas(), syncs(&world)), (0, 50, 0));
    let_go(&world);
    assert_eq!((world.replicas(), world.catalogue.len(), syncs(&world)), (0, 0, 1), "one sync for all");
    crash(&mut world);
    world.drain();
    assert!(removed.iter().all(|identity| world.cache.residency(identity) == Residency::Absent));
    assert!(world.store.identity("f0").is_err(), "the removal lasts");
}

#[test] // S15
fn a_removed_file_of_which_nothing_was_synced_goes_at_once_and_costs_no_sync() {
    let world = world();
    world.write_new("f", b"data");
    let commits = world.catalogue.commits();
    remove(&world, "f");
    assert_eq!((world.catalogue.commits() - commits, world.catalogue.len(), world.replicas()), (2, 0, 0));
    world.advance(60);
    world.cache.housekeep();
    assert_eq!(syncs(&world), 0);
}

#[test]
fn a_removed_file_that_is_open_goes_on_and_its_record_goes_before_it() {
    let world = world();
    let handle = write_synced(&world, "f", b"data");
    let anchor = world.anchor("f");
    remove(&world, "f");
    handle.write(b"more", 4).unwrap();
    handle.fsync().unwrap();
    let again = world.cache.open_file(anchor, world.how(true)).unwrap();
    assert_eq!(read(&again, 10), b"datamore");
    let_go(&world);
    assert_eq!((world.replicas(), world.catalogue.len()), (1, 0));
    assert_eq!((read(&handle, 10), world.cache.counters().removed), (b"datamore".to_vec(), 0));
    drop((handle, again));
    assert_eq!((world.replicas(), world.catalogue.len()), (0, 0));
}

#[test] // S15
fn a_removed_file_that_was_open_when_the_crash_took_its_removal_back_has_what_was_synced() {
    for closed in [true, false] {
        let mut world = world();
        let handle = write_synced(&world, "f", b"data");
        remove(&world, "f");
        handle.write(b"more", 4).unwrap();
        let handle = (!closed).then_some(handle);
        crash(&mut world);
        assert_eq!(&read(&world.open("f", false), 10)[..4], b"data", "closed {closed}");
        // A crash leaves no descriptors, neither of programs nor of the agent.
        drop(handle);
        let stuck = world.cache.drain_all();
        assert!(stuck.is_empty(), "closed {closed}: {stuck:?}");
        assert_eq!(&world.store.read("f").unwrap()[..4], b"data", "closed {closed}");
    }
}

/// The file was staged out before the agent handles its removal.
#[test] // S15
fn a_file_that_was_staged_out_while_it_was_removed_is_whole_when_the_crash_takes_that_back() {
    let mut world = world();
    drop(write_synced(&world, "f", b"data"));
    let identity = world.identity("f");
    world.cache.removing(&identity);
    world.drain();
    world.store.unlink("f").unwrap();
    world.cache.unlinked(&identity);
    crash(&mut world);
    world.drain();
    assert_eq!(read(&world.open("f", false), 10), b"data");
    assert_eq!(world.store.read("f").unwrap(), b"data");
}

#[test]
fn a_store_that_cannot_be_synced_is_asked_again_and_the_files_are_kept() {
    let world = world();
    drop(write_synced(&world, "f", b"data"));
    remove(&world, "f");
    let refused = |operation: &StoreOperation| *operation == StoreOperation::SyncNames;
    world.store.fail(Fault { matching: refused, ..Fault::default() });
    let asked = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&asked);
    world.store.set_after(Some(Arc::new(move |operation, _| now.store(refused(operation), Ordering::Relaxed))));
    world.advance(limits::REMOVALS_AFTER.as_secs());
    world.cache.housekeep();
    until("the sync that fails", || asked.load(Ordering::Relaxed));
    assert_eq!((world.replicas(), world.catalogue.len()), (1, 1));
    let_go(&world);
    assert_eq!((world.replicas(), world.catalogue.len()), (0, 0));
}

#[test]
fn what_a_store_that_is_never_synced_keeps_of_removed_files_goes_after_some_tries() {
    let world = world();
    drop(write_synced(&world, "f", b"data"));
    remove(&world, "f");
    let refused = |operation: &StoreOperation| *operation == StoreOperation::SyncNames;
    world.store.fail(Fault { matching: refused, times: u64::MAX, ..Fault::default() });
    until("the end of the file", || {
        world.advance(limits::REMOVALS_AFTER.as_secs());
        world.cache.housekeep();
        world.replicas() == 0
    });
    assert_eq!((world.cache.counters().removed, world.catalogue.len()), (0, 0));
}

/// As an NFS client leaves an open file, and as a crash leaves it for good.
#[test]
fn a_file_that_was_called_otherwise_instead_of_removed_is_not_kept() {
    let mut world = world();
    drop(write_synced(&world, "f", b"data"));
    let identity = world.identity("f");
    world.cache.removing(&identity);
    world.store.rename("f", ".nfs00000000000080170000001a").unwrap();
    world.cache.unlinked(&identity);
    assert_eq!((world.cache.counters().removed, world.replicas()), (0, 0));
    world.machine_crash();
    assert!(world.cache.counters().stuck.is_empty() && world.catalogue.is_empty());
}

/// Nobody could tell whether such a file is gone or renamed.
#[test] // S15
fn where_files_are_not_found_by_identity_a_removed_file_goes_at_once() {
    let mut world = world();
    world.store.set_finds_by_identity(false);
    drop(write_synced(&world, "f", b"data"));
    remove(&world, "f");
    assert_eq!((world.replicas(), world.catalogue.len()), (0, 0));
    world.crash();
    world.drain();
}

#[test]
fn an_orderly_end_leaves_nothing_of_what_was_removed() {
    let world = world();
    drop(write_synced(&world, "f", b"data"));
    remove(&world, "f");
    world.drain();
    world.cache.shutdown();
    assert_eq!((world.replicas(), world.catalogue.len()), (0, 0));
}

#[test] // S15
fn a_store_that_hangs_holds_up_neither_housekeeping_nor_the_end() {
    let world = world();
    drop(write_synced(&world, "f", b"data"));
    remove(&world, "f");
    let answers = Arc::new(Mutex::new(()));
    let hangs = answers.lock().unwrap();
    let awaited = Arc::clone(&answers);
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        let _answered = (*operation == StoreOperation::SyncNames).then(|| awaited.lock());
    })));
    world.advance(limits::REMOVALS_AFTER.as_secs());
    world.cache.housekeep();
    world.cache.housekeep();
    world.drain();
    let start = Instant::now();
    world.cache.shutdown();
    assert!(start.elapsed() < limits::REMOVALS_WAIT + Duration::from_secs(20));
    assert_eq!((world.replicas(), world.catalogue.len()), (1, 1), "the next start sees to it");
    drop(hangs);
}
