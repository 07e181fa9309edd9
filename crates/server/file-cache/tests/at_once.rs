//! Operations that happen at once, and changes that others make in the burst buffer.

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use types::HasErrno;

use config::Policy;
use data_store::{Keep, NewTime, OpenHow, Residency};
use file_cache::FileCache;
use models::global::StoreOperation;
use models::{DataStoreExt, Handle, OpenDataExt};
use support::{MIB, World, kernel_write, read};
use types::{Identity, Timestamp};

/// Time in which a thread reaches the point where it waits. A test in which that takes longer proves nothing and
/// passes.
const REACH: Duration = Duration::from_millis(300);

const BOUND: Duration = Duration::from_secs(30);

/// Runs `act` once, in a thread of its own, before an operation that `when` chooses. If `act` waits for a lock that
/// the operation's caller holds, the operation continues after a while.
fn before(
    world: &World,
    when: impl Fn(&StoreOperation, &Identity) -> bool + Send + Sync + 'static,
    act: impl FnOnce() + Send + 'static,
) {
    let act: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(Some(Box::new(act)));
    world.store.set_hook(Some(Arc::new(move |operation, identity| {
        if !when(operation, identity) {
            return;
        }
        let taken = act.lock().unwrap().take();
        if let Some(act) = taken {
            let (sent, done) = mpsc::channel();
            std::thread::spawn(move || {
                act();
                let _ = sent.send(());
            });
            let _ = done.recv_timeout(Duration::from_secs(1));
        }
    })));
}

fn replica_files(world: &World) -> Vec<PathBuf> {
    let parts = std::fs::read_dir(world.dir.path().join("replicas")).unwrap();
    let files = parts.flat_map(|part| std::fs::read_dir(part.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn a_fetch_that_was_dropped_never_completes_its_successor() {
    let world = World::new();
    let data = vec![7; 3 * MIB];
    world.store.put("f", &data);
    let (ask, asked) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (gone, first) = (Mutex::new(gone), AtomicBool::new(true));
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Read(range) if range.start == 2 * MIB as u64)
            && first.swap(false, Ordering::SeqCst)
        {
            ask.send(()).unwrap();
            gone.lock().unwrap().recv().unwrap();
        }
    })));
    // A writer fetches the file and stops before its last block.
    let (cache, anchor, how) = (world.cache.clone(), world.anchor("f"), world.how(true));
    let writer = std::thread::spawn(move || cache.open_file(anchor, how).map(drop));
    asked.recv_timeout(BOUND).unwrap();
    let reader = world.open("f", false);
    // While the gate is held, the only reader closes, another opens, and the writer's fetch ends, in this order.
    let (hold, held) = mpsc::channel();
    let (free, freed) = mpsc::channel::<()>();
    let (cache, anchor) = (world.cache.clone(), world.anchor("f"));
    let mut apply = move || {
        hold.send(()).unwrap();
        freed.recv().unwrap();
        Ok(())
    };
    let holder = std::thread::spawn(move || cache.date(&anchor, None, &mut apply).unwrap());
    held.recv_timeout(BOUND).unwrap();
    let closer = std::thread::spawn(move || drop(reader));
    std::thread::sleep(REACH);
    let (cache, anchor, how) = (world.cache.clone(), world.anchor("f"), world.how(false));
    let opener = std::thread::spawn(move || cache.open_file(anchor, how).unwrap());
    std::thread::sleep(REACH);
    go.send(()).unwrap();
    std::thread::sleep(REACH);
    free.send(()).unwrap();
    let handle = opener.join().unwrap();
    [holder, closer].into_iter().for_each(|thread| thread.join().unwrap());
    writer.join().unwrap().unwrap();
    assert!(read(&handle, 3 * MIB) == data, "bytes were told that were never fetched");
}

#[test]
fn a_batch_forgets_nobody_who_is_written_again() {
    let world = World::with(|settings| {
        settings.background = true;
        settings.streams = 2;
        settings.clock = None;
    });
    let names: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    names.iter().for_each(|name| world.write_new(name, b"0"));
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        std::thread::scope(|scope| {
            for part in 0..6 {
                let (world, names) = (&world, &names);
                scope.spawn(move || {
                    for _ in 0..4 {
                        for name in names.iter().skip(part).step_by(6) {
                            world.open(name, true).write(b"1", 0).unwrap();
                        }
                    }
                });
            }
        });
        let give_up = Instant::now() + BOUND;
        loop {
            let left: Vec<_> = names.iter().filter(|name| world.state(name) != Residency::Clean).collect();
            if left.is_empty() {
                break;
            }
            let status = || world.cache.counters();
            assert!(Instant::now() < give_up, "nobody stages out {left:?}: {:?}, {:?}", world.state(left[0]), status());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    world.cache.shutdown();
}

#[test]
fn a_file_that_keeps_changing_below_can_be_opened_for_writing() {
    let world = World::new();
    world.store.put("log", &vec![7; 3 * MIB]);
    let (store, count) = (world.store.clone(), AtomicU64::new(0));
    world.store.set_hook(Some(Arc::new(move |operation, _| {
        if matches!(operation, StoreOperation::Read(_)) && count.fetch_add(1, Ordering::Relaxed) < 300 {
            let size = store.attributes("log").unwrap().fingerprint.size;
            store.write("log", b"x", size).unwrap();
        }
    })));
    let before = world.store.operations();
    let handle = world.open("log", true);
    let spent = world.store.operations() - before;
    assert!(spent < 100, "{spent} operations for one open");
    world.store.set_hook(None);
    let at = handle.append(b"ours").unwrap().offset as usize;
    assert_eq!(&world.store.read("log").unwrap()[at..], b"ours");
}

#[test]
fn the_users_time_during_a_stage_out_of_nothing_is_no_conflict() {
    let world = World::new();
    for name in ["empty", "other"] {
        drop(world.create(name));
    }
    let (cache, store, anchor) = (world.cache.clone(), world.store.clone(), world.anchor("empty"));
    before(
        &world,
        |operation, _| matches!(operation, StoreOperation::SyncStore),
        move || {
            let time = Timestamp { seconds: 5, nanos: 0 };
            cache.date(&anchor, Some(NewTime::At(time)), &mut || store.set_mtime("empty", time)).unwrap();
        },
    );
    world.drain();
    assert_eq!(world.store.attributes("empty").unwrap().fingerprint.mtime.seconds, 5);
}

#[test]
fn a_truncation_that_does_not_come_brings_nothing_older_back() {
    let mut world = World::new();
    world.store.put("f", b"older");
    drop(world.open("f", false));
    world.store.put("f", b"newer!");
    // As if the process had died between the intent and the truncation. A file system without such flags proves
    // nothing.
    let flag = |flag: &str| {
        let files = replica_files(&world);
        let done =
            std::process::Command::new("chattr").arg(flag).args(files).stderr(std::process::Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    if !flag("+i") {
        return;
    }
    let opened = world.cache.open_file(world.anchor("f"), OpenHow { truncate: true, ..world.how(true) });
    flag("-i");
    drop(opened);
    world.crash();
    world.drain();
    let left = world.store.read("f").unwrap();
    assert!(left == b"newer!" || left.is_empty(), "{left:?}");
}

#[test]
fn a_clean_replica_that_is_gone_or_cut_is_fetched_again() {
    let world = World::new();
    world.store.put("f", b"hello");
    for (write, spoil) in [(false, true), (true, true), (false, false), (true, false)] {
        drop(world.open("f", false));
        for path in replica_files(&world) {
            if spoil {
                std::fs::remove_file(path).unwrap();
            } else {
                std::fs::write(path, b"he").unwrap();
            }
        }
        assert_eq!(read(&world.open("f", write), 10), b"hello");
        world.drain();
    }
    assert_eq!(world.store.read("f").unwrap(), b"hello");
}

#[test]
fn a_dirty_replica_that_is_gone_is_an_error_and_no_other_content() {
    let world = World::new();
    world.write_new("f", b"hello");
    replica_files(&world).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let refused = world.cache.open_file(world.anchor("f"), world.how(false)).err().unwrap();
    assert_eq!(refused.errno(), Some(libc::EIO));
}

#[test]
fn what_is_resolved_for_the_global_copy_is_not_staged_out_by_who_had_begun() {
    let world = World::new();
    world.store.put("f", b"old");
    kernel_write(&world.open("f", true), b"new", 0);
    let (cache, identity, resolved) = (world.cache.clone(), world.identity("f"), Arc::new(AtomicBool::new(false)));
    let (ended, to_end) = (Arc::new(AtomicBool::new(false)), Arc::clone(&resolved));
    let end = Arc::clone(&ended);
    before(
        &world,
        |operation, _| matches!(operation, StoreOperation::Open(global_store::Access::Write)),
        move || {
            to_end.store(cache.resolve(&identity, Keep::Global).is_ok(), Ordering::SeqCst);
            end.store(true, Ordering::SeqCst);
        },
    );
    world.cache.drain_all();
    support::until("the resolve", || ended.load(Ordering::SeqCst));
    let below = world.store.read("f").unwrap();
    assert_eq!(below, if resolved.load(Ordering::SeqCst) { b"old" } else { b"new" });
    assert_eq!(read(&world.open("f", false), 10), below);
}

#[test]
fn our_own_mark_of_a_former_life_keeps_nobody_out_and_is_no_conflict() {
    let mut world = World::with(|settings| settings.agent_id = "node first".into());
    world.store.set_shared(true);
    world.store.put("f", b"old");
    let handle = world.open("f", true);
    handle.write(b"new", 0).unwrap();
    world.cache.abandon();
    drop(handle);
    world.settings.agent_id = "node second".into();
    world.cache = FileCache::open(world.settings.clone()).unwrap();
    let policy = Arc::new(Policy { remote_wait: Duration::from_millis(50), ..Policy::clone(&world.policy) });
    let handle = world.cache.open_file(world.anchor("f"), OpenHow { policy, ..world.how(false) }).unwrap();
    assert_eq!(read(&handle, 10), b"new");
    drop(handle);
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"new");
    assert_eq!(world.anchor("f").mark().unwrap(), None);
}

#[test]
fn a_mark_of_ours_without_a_record_goes_with_the_next_open() {
    let world = World::with(|settings| settings.agent_id = "node one".into());
    world.store.set_shared(true);
    world.store.put("f", b"old");
    world.store.put_mark("f", Some(b"node one 7")).unwrap();
    drop(world.open("f", false));
    assert_eq!(world.anchor("f").mark().unwrap(), None);
}

#[test]
fn a_file_written_while_it_becomes_clean_keeps_its_mark() {
    let world = World::new();
    world.store.set_shared(true);
    world.write_new("a", b"one");
    world.write_new("b", b"one");
    let (cache, anchor, how, b) = (world.cache.clone(), world.anchor("a"), world.how(true), world.identity("b"));
    let kept: Arc<Mutex<Option<Handle>>> = Arc::default();
    let keep = Arc::clone(&kept);
    // The access time of `a` is written when the time of `b` is set.
    before(
        &world,
        move |operation, of| matches!(operation, StoreOperation::SetMtime(_)) && *of == b,
        move || {
            let handle = cache.open_file(anchor, how).unwrap();
            handle.write(b"two", 0).unwrap();
            *keep.lock().unwrap() = Some(handle);
        },
    );
    world.cache.drain_all();
    world.store.set_hook(None);
    assert_eq!(world.state("a"), Residency::Dirty);
    assert!(world.anchor("a").mark().unwrap().is_some(), "dirty, and no mark tells the other machines");
    drop(kept.lock().unwrap().take());
    world.drain();
    assert_eq!(world.anchor("a").mark().unwrap(), None);
}

#[test]
fn bytes_that_go_and_come_again_during_the_copy_are_below_in_the_end() {
    let world = World::new();
    let handle = Arc::new(world.create("f"));
    let (first, second) = ([1; 4096], [2; 4096]);
    handle.write(&first, 0).unwrap();
    handle.write(&second, 2 * MIB as u64).unwrap();
    let writer = Arc::clone(&handle);
    // The second range was read already. It becomes a hole before it is written to the global copy, and then gets its
    // former content back.
    before(
        &world,
        |operation, _| matches!(operation, StoreOperation::Write(_)),
        move || {
            let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
            writer.fallocate(punch, 2 * MIB as u64, 4096).unwrap();
        },
    );
    world.cache.drain_file(&world.identity("f")).unwrap();
    world.store.set_hook(None);
    handle.write(&second, 2 * MIB as u64).unwrap();
    drop(handle);
    world.drain();
    assert_eq!(world.store.read("f").unwrap()[2 * MIB..], second);
}
