//! Waits that end by a signal, or after a bound.

mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use types::HasErrno;

use data_store::{DataStore, Residency, Stuck};
use file_cache::{FileCache, OpenError};
use models::global::{Fault, MemoryStore, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use parking_lot::{Mutex, MutexGuard};
use support::{MIB, World};
use testkit::{PATIENCE, wait_until};

/// A store of which some calls hang.
struct Hang {
    answers: Arc<Mutex<()>>,
    reached: Arc<AtomicBool>,
}

impl Hang {
    fn new(store: &MemoryStore, hangs: fn(&StoreOperation) -> bool) -> Hang {
        let hang = Hang { answers: Arc::default(), reached: Arc::default() };
        let (answers, reached) = (Arc::clone(&hang.answers), Arc::clone(&hang.reached));
        store.set_hook(Some(Arc::new(move |operation, _| {
            if hangs(operation) && answers.is_locked() {
                reached.store(true, Ordering::Release);
                drop(answers.lock());
            }
        })));
        hang
    }

    /// Lets calls hang until the returned value is dropped.
    fn hang(&self) -> MutexGuard<'_, ()> {
        self.answers.lock()
    }

    /// Returns whether a call is hanging.
    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }
}

fn writes(operation: &StoreOperation) -> bool {
    matches!(operation, StoreOperation::Write(_))
}

/// Returns a callback that says "interrupted" at the third call.
fn third() -> impl Fn() -> bool {
    let asked = Cell::new(0);
    move || {
        asked.set(asked.get() + 1);
        asked.get() > 2
    }
}

#[test] // S28
fn a_signal_ends_the_wait_for_another_nodes_mark() {
    let world = World::new();
    world.store.set_shared(true);
    world.store.put("f", b"data");
    world.store.put_mark("f", Some(b"another 7")).unwrap();
    let refused = world.cache.open(world.anchor("f"), world.how(true), &third()).err().unwrap();
    assert_eq!(refused.errno(), Some(libc::EINTR));
    let cut = world.cache.set_len(&world.anchor("f"), 0, &world.policy, &third());
    assert_eq!(cut.err().unwrap().errno(), Some(libc::EINTR));
    world.store.put_mark("f", None).unwrap();
    world.open("f", true).write(b"ours", 0).unwrap();
}

#[test] // S28
fn who_waits_for_the_mark_of_a_file_that_loses_its_name_looks_the_name_up_again() {
    let world = World::new();
    world.store.set_shared(true);
    world.store.put("f", b"data");
    world.store.put_mark("f", Some(b"another 7")).unwrap();
    let (asked, store) = (AtomicU64::new(0), &world.store);
    let removed = || {
        if asked.fetch_add(1, Ordering::Relaxed) == 1 {
            store.unlink("f").unwrap();
        }
        false
    };
    let refused = world.cache.open(world.anchor("f"), world.how(false), &removed).err().unwrap();
    assert_eq!(refused.errno(), Some(libc::ESTALE));
}

/// A profiler's signals come all the time; the copy ends by itself.
#[test] // S28
fn a_signal_does_not_end_the_wait_for_a_copy() {
    let world = World::new();
    world.store.put("f", &vec![5; 8 * MIB]);
    let handle = world.cache.open(world.anchor("f"), world.how(true), &|| true).unwrap();
    assert!(handle.backing().is_some());
    assert_eq!(support::read(&handle, 8 * MIB), vec![5; 8 * MIB]);
}

#[test]
fn an_open_for_writing_whose_copy_fails_leaves_nothing_behind() {
    let world = World::new();
    world.store.put("f", &vec![5; 8 * MIB]);
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Read(_));
    world.store.fail(Fault { after: 2, matching, ..Fault::default() });
    let refused = world.cache.open_file(world.anchor("f"), world.how(true)).err().unwrap();
    assert_eq!(refused.errno(), Some(libc::EIO));
    assert_eq!((world.state("f"), world.replicas()), (Residency::Absent, 0));
    assert_eq!(support::read(&world.open("f", true), 8 * MIB), vec![5; 8 * MIB]);
}

#[test] // S22
fn who_gives_up_a_drain_waits_for_no_store_that_hangs_and_is_told_of_every_file() {
    let world = World::new();
    let content = vec![7; 2 * MIB];
    ["one", "two", "three"].iter().for_each(|name| world.write_new(name, &content));
    let hang = Hang::new(&world.store, writes);
    let hangs = hang.hang();
    let stuck = world.cache.drain(None, &mut |_| {}, &|| hang.is_reached());
    assert!(stuck.iter().all(|one| one.errno == libc::EINTR && one.replica.is_file()), "{stuck:?}");
    let states = |of: Residency| stuck.iter().filter(|one| one.state == of).collect::<Vec<&Stuck>>();
    assert_eq!((states(Residency::Draining).len(), states(Residency::Queued).len()), (1, 2), "{stuck:?}");
    assert_eq!(states(Residency::Draining)[0].reason, "a call to the global store has not come back");
    drop(hangs);
    world.drain();
    for name in ["one", "two", "three"] {
        assert!(world.store.read(name).unwrap() == content, "{name}");
    }
}

#[test] // S22
fn a_drain_that_is_given_up_while_times_of_last_access_hang_ends() {
    let mut world = World::new();
    world.policy = Arc::new(config::Policy { atime: config::Atime::Strict, ..(*world.policy).clone() });
    if world.cache.notes_reads(config::Atime::Strict).is_err() {
        return;
    }
    let handles = ["f", "g"].map(|name| {
        world.store.put(name, b"data");
        world.open(name, false)
    });
    handles.iter().for_each(|handle| assert_eq!(support::read(handle, 4), b"data"));
    let sets = |operation: &StoreOperation| matches!(operation, StoreOperation::SetAtime(_));
    let hang = Hang::new(&world.store, sets);
    let hangs = hang.hang();
    assert!(world.cache.drain(None, &mut |_| {}, &|| hang.is_reached()).is_empty());
    assert!(hang.is_reached());
    assert!(world.cache.drain(None, &mut |_| {}, &third()).is_empty());
    assert_eq!(threads_named("reads"), 1, "each drain leaves one more with the store");
    drop(hangs);
    wait_until("it has come back", PATIENCE, || threads_named("reads") == 0);
    let set = || world.store.journal().iter().filter(|event| sets(&event.operation)).count();
    assert_eq!(set(), 1, "who was given up goes on");
    world.drain();
    assert_eq!(set(), 2);
}

fn threads_named(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads
        .filter(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|of| of.trim() == name))
        .count()
}

/// A call that hangs may still write to the global store: until the process is gone nobody else gets the burst buffer.
#[test] // S22
fn the_end_waits_for_no_store_that_hangs_and_keeps_the_burst_buffer_until_it_answers() {
    let world = World::with(|settings| settings.background = true);
    let hang = Hang::new(&world.store, writes);
    let hangs = hang.hang();
    world.write_new("f", b"data");
    wait_until("the stage-out hangs", PATIENCE, || hang.is_reached());
    world.cache.shutdown();
    let again = FileCache::open(world.settings.clone());
    assert!(matches!(again, Err(OpenError::InUse { .. })), "{:?}", again.err());
    drop(hangs);
    let World { dir: _dir, store, settings, cache, .. } = world;
    drop(cache);
    let mut again = None;
    wait_until("the call has come back", PATIENCE, || {
        again = FileCache::open(settings.clone()).ok();
        again.is_some()
    });
    let again = again.unwrap();
    assert!(again.drain_all().is_empty());
    assert_eq!(store.read("f").unwrap(), b"data");
    again.shutdown();
}

#[test] // S51
fn who_opens_a_file_waits_for_no_look_of_its_stage_out_at_a_store_that_hangs() {
    for shared in [false, true] {
        let world = World::new();
        world.store.set_shared(shared);
        world.write_new("f", b"data");
        let anchor = world.anchor("f");
        let hang = Hang::new(&world.store, |operation| matches!(operation, StoreOperation::Attributes));
        let hangs = hang.hang();
        let (cache, how) = (world.cache.clone(), world.how(false));
        let drain = std::thread::spawn(move || cache.drain_all());
        wait_until("the stage-out looks below", PATIENCE, || hang.is_reached());
        let cache = world.cache.clone();
        let open = std::thread::spawn(move || support::read(&cache.open_file(anchor, how).unwrap(), 4));
        wait_until("it is open", PATIENCE, || open.is_finished());
        assert_eq!(open.join().unwrap(), b"data");
        drop(hangs);
        assert!(drain.join().unwrap().is_empty());
        assert_eq!(world.store.read("f").unwrap(), b"data");
    }
}

#[test] // S25
fn a_decision_waits_not_for_ever_for_a_stage_out_that_hangs() {
    let world = World::new();
    world.write_new("f", b"data");
    let hang = Hang::new(&world.store, writes);
    let hangs = hang.hang();
    let cache = world.cache.clone();
    let drain = std::thread::spawn(move || cache.drain_all());
    wait_until("the stage-out hangs", PATIENCE, || hang.is_reached());
    let decided = world.cache.resolve(&world.identity("f"), data_store::Keep::Global);
    assert_eq!(decided.unwrap_err().errno(), Some(libc::ETIMEDOUT));
    drop(hangs);
    assert!(drain.join().unwrap().is_empty());
    assert_eq!(world.store.read("f").unwrap(), b"data");
}

#[test] // S51
fn a_time_that_is_set_while_a_stage_out_looks_below_is_no_conflict() {
    for fails in [false, true] {
        let world = World::new();
        // More than is read to decide whose bytes they are.
        world.store.put("f", &vec![1; 2 * MIB]);
        world.open("f", true).write(b"new", 0).unwrap();
        if fails {
            world.store.fail(Fault { matching: writes, ..Fault::default() });
        }
        let time = types::Timestamp { seconds: 1_000_000, nanos: 0 };
        let (anchor, cache, below) = (world.anchor("f"), world.cache.clone(), world.store.clone());
        let (due, set, reads) = (AtomicBool::new(!fails), AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
        let read = Arc::clone(&reads);
        // The fingerprint on its way to the cache has the former time.
        world.store.set_after(Some(Arc::new(move |operation, _| {
            due.fetch_or(writes(operation), Ordering::AcqRel);
            read.fetch_add(u64::from(matches!(operation, StoreOperation::Read(_))), Ordering::AcqRel);
            let now = *operation == StoreOperation::Attributes && due.load(Ordering::Acquire);
            if now && !set.swap(true, Ordering::AcqRel) {
                let apply = &mut || below.set_mtime("f", time);
                cache.date(&anchor, Some(data_store::NewTime::At(time)), apply).unwrap();
            }
        })));
        let stuck = world.cache.drain_all();
        assert_eq!(stuck.len(), usize::from(fails), "{stuck:?}");
        assert!(fails || reads.load(Ordering::Acquire) == 0, "whose bytes they are was never in doubt");
        world.drain();
        assert_eq!(world.store.read("f").unwrap()[..4], *b"new\x01");
        assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, time);
    }
}
