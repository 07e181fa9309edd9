//! Access times, as `stat` reports them and as they arrive in the global store (policy `atime`).

mod support;

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::{Atime, Cache, Policy};
use data_store::{LocalIndex, NewTime, OpenHow};
use file_cache::{FileCache, Settings};
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, Handle, OpenDataExt};
use support::{MIB, World, kernel_file, read};
use testkit::{PATIENCE, wait_until};
use types::{Identity, Timestamp};

/// Times long before and long after everything that happens here.
const EARLY: Timestamp = Timestamp { seconds: 5, nanos: 6 };
const LATE: Timestamp = Timestamp { seconds: 9_000_000_000, nanos: 7 };

fn world(atime: Atime) -> World {
    let mut world = World::new();
    world.policy = Arc::new(Policy { atime, ..Policy::clone(&world.policy) });
    world.store.put("f", b"old");
    world
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// Waits until the kernel's clock for files has moved, which ticks at least every 10 ms.
fn tick() {
    let start = SystemTime::now();
    wait_until("a tick", PATIENCE, || start.elapsed().is_ok_and(|passed| passed > Duration::from_millis(20)));
}

/// Reads as the kernel does it, without the agent.
fn kernel_read(handle: &Handle) {
    kernel_file(handle).read_at(&mut [0], 0).unwrap();
}

/// Opens the file as with `O_NOATIME`.
fn without_noting(world: &World) -> Handle {
    let how = OpenHow { noatime: true, ..world.how(false) };
    world.cache.open_file(world.anchor("f"), how).unwrap()
}

fn below(world: &World) -> Timestamp {
    world.store.attributes("f").unwrap().atime
}

fn told(world: &World) -> Timestamp {
    world.cache.accessed(&world.identity("f"), below(world))
}

/// Returns how often the access time was set in the global store.
fn settled(world: &World) -> usize {
    let is = |operation: &StoreOperation| matches!(operation, StoreOperation::SetAtime(_));
    world.store.journal().iter().filter(|event| is(&event.operation)).count()
}

/// Sets the access time as a program's `touch -a`.
fn set(world: &World, atime: Timestamp) {
    let mut apply = || world.store.set_atime("f", atime);
    world.cache.date(&world.anchor("f"), None, &mut apply).unwrap();
}

#[test] // S36
fn a_read_is_told_at_once_and_is_below_when_the_file_is_closed_or_all_is_drained() {
    for atime in [Atime::Relative, Atime::Strict] {
        for reads in [kernel_read, |handle: &Handle| drop(read(handle, 1))] {
            let world = world(atime);
            let before = below(&world);
            let handle = world.open("f", false);
            assert_eq!(told(&world), before, "nobody has read it");
            let start = now();
            tick();
            reads(&handle);
            let first = told(&world);
            assert!(first > start && first <= now() && below(&world) == before);
            world.drain();
            assert_eq!((below(&world), told(&world)), (first, first));
            drop(handle);
            assert_eq!((below(&world), settled(&world)), (first, 1), "once");
        }
    }
}

#[test] // S36
fn what_is_read_through_us_is_noted_wherever_it_lies() {
    for (cache, len) in [(Cache::Through, 3), (Cache::Both, 3), (Cache::Both, 3 * MIB)] {
        let mut world = world(Atime::Relative);
        world.policy = Arc::new(Policy { cache, ..Policy::clone(&world.policy) });
        world.store.put("f", &vec![1; len]);
        let (start, handle) = (now(), world.open("f", false));
        tick();
        assert!(told(&world) < start);
        read(&handle, 1);
        let first = told(&world);
        assert!(first > start, "{cache:?} {len}");
        drop(handle);
        assert_eq!((below(&world), told(&world)), (first, first), "{cache:?} {len}");
    }
}

#[test] // S36
fn what_is_read_while_a_read_goes_below_is_not_forgotten() {
    let mut world = world(Atime::Strict);
    world.policy = Arc::new(Policy { cache: Cache::Through, ..Policy::clone(&world.policy) });
    let handle = Arc::new(world.open("f", false));
    read(&handle, 1);
    let first = told(&world);
    let again = Arc::clone(&handle);
    let hook = move |operation: &StoreOperation, _: &Identity| {
        if matches!(operation, StoreOperation::SetAtime(_)) {
            read(&again, 1);
        }
    };
    world.store.set_hook(Some(Arc::new(hook)));
    world.drain();
    world.store.set_hook(None);
    assert!(told(&world) > first && below(&world) == first);
    let last = told(&world);
    drop(handle);
    assert_eq!(below(&world), last);
}

#[test] // S36
fn relative_notes_the_first_read_after_a_change_and_not_the_next_ones() {
    let world = world(Atime::Relative);
    let reads = || {
        tick();
        let handle = world.open("f", false);
        kernel_read(&handle);
        read(&handle, 1);
        drop(handle);
        below(&world)
    };
    let first = reads();
    assert!(first > EARLY && settled(&world) == 1);
    assert_eq!(
        (reads(), settled(&world)),
        (first, 1),
        "neither our own setting of it nor time makes another read count"
    );
    world.open("f", true).write(b"new", 0).unwrap();
    world.drain();
    let second = reads();
    assert!(second > first, "it was written since");
    assert_eq!(reads(), second);
    set(&world, EARLY);
    assert_eq!((told(&world), below(&world)), (EARLY, EARLY));
    assert!(reads() > second, "its times were set since");
    world.store.set_atime("f", EARLY).unwrap();
    let third = reads();
    assert!(third > second, "somebody else set them");
    let handle = world.open("f", false);
    set(&world, EARLY);
    tick();
    kernel_read(&handle);
    assert!(told(&world) > third, "they were set while it is open");
}

#[test] // S36
fn strict_notes_every_read() {
    let world = world(Atime::Strict);
    let handle = world.open("f", false);
    let mut last = told(&world);
    for reads in [kernel_read, |handle: &Handle| drop(read(handle, 1)), kernel_read] {
        tick();
        reads(&handle);
        assert!(told(&world) > last);
        last = told(&world);
    }
}

#[test] // S36
fn nothing_but_a_programs_read_moves_the_time_of_last_access() {
    for atime in [Atime::No, Atime::Relative, Atime::Strict] {
        let world = world(atime);
        let before = below(&world);
        world.cache.stage_in(&world.anchor("f"), &world.policy).unwrap();
        world.cache.evict(&world.identity("f")).unwrap();
        // Opened, staged in, written, compared with the global copy, verified and staged out.
        for data in [b"new", b"two"] {
            let handle = world.open("f", true);
            handle.write(data, 0).unwrap();
            drop(handle);
            world.drain();
        }
        // As with O_NOATIME, and under a policy that notes no reads.
        let handle = without_noting(&world);
        tick();
        read(&handle, 1);
        if atime == Atime::No {
            kernel_read(&handle);
        }
        assert_eq!(told(&world), before, "{atime:?}");
        drop(handle);
        world.cache.evict(&world.identity("f")).unwrap();
        assert_eq!((below(&world), settled(&world)), (before, 0), "{atime:?}");
        // Also not while the file is being staged in.
        world.store.put("f", &vec![1; 3 * MIB]);
        let handle = without_noting(&world);
        tick();
        read(&handle, 1);
        assert_eq!(told(&world), before, "{atime:?}");
    }
}

#[test] // S36
fn a_time_of_last_access_that_a_program_sets_wins_over_the_reads_before_it() {
    for (cache, set_to) in [(Cache::Both, EARLY), (Cache::Both, LATE), (Cache::Through, EARLY), (Cache::Through, LATE)]
    {
        let mut world = world(Atime::Strict);
        world.policy = Arc::new(Policy { cache, ..Policy::clone(&world.policy) });
        let handle = world.open("f", false);
        read(&handle, 1);
        tick();
        set(&world, set_to);
        assert_eq!((told(&world), below(&world)), (set_to, set_to), "{cache:?}");
        drop(handle);
        assert_eq!((told(&world), below(&world)), (set_to, set_to), "{cache:?}: closed");
        if cache == Cache::Both {
            let handle = world.open("f", false);
            kernel_read(&handle);
            assert_ne!(told(&world), set_to, "and reads after it over that");
        }
    }
}

#[test] // S36
fn a_time_of_the_last_write_alone_that_is_set_leaves_that_of_the_last_access() {
    let world = world(Atime::Strict);
    let handle = world.open("f", false);
    kernel_read(&handle);
    let first = told(&world);
    let mut apply = || world.store.set_mtime("f", EARLY);
    world.cache.date(&world.anchor("f"), Some(NewTime::At(EARLY)), &mut apply).unwrap();
    assert_eq!(told(&world), first);
    drop(handle);
    assert_eq!(below(&world), first);
}

#[test] // S36
fn another_node_sees_it_and_its_own_later_read_is_not_taken_back() {
    let world = world(Atime::Strict);
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { burst_buffer: dir.path().to_owned(), catalogue: None, ..world.settings.clone() };
    let other = FileCache::open(settings).unwrap();
    let ours = world.open("f", false);
    kernel_read(&ours);
    tick();
    let theirs = other.open_file(world.anchor("f"), world.how(false)).unwrap();
    kernel_read(&theirs);
    let last = other.accessed(&world.identity("f"), below(&world));
    assert!(last > told(&world));
    drop(theirs);
    assert_eq!(told(&world), last);
    drop(ours);
    assert_eq!(below(&world), last);
    other.shutdown();
}

#[test] // S36
fn a_time_of_last_access_below_is_no_change_of_the_file() {
    let world = world(Atime::Strict);
    let reader = world.open("f", false);
    kernel_read(&reader);
    let writer = world.open("f", true);
    writer.write(b"new", 0).unwrap();
    drop(reader);
    kernel_read(&writer);
    let read_at = told(&world);
    drop(writer);
    assert!(below(&world) < read_at, "a dirty file's comes with its data");
    world.drain();
    assert_eq!((below(&world), world.store.read("f").unwrap()), (read_at, b"new".to_vec()));
    let misses = world.cache.counters().misses;
    for data in [b"two", b"tri"] {
        let handle = world.open("f", true);
        kernel_read(&handle);
        handle.write(data, 0).unwrap();
        drop(handle);
        world.drain();
        assert_eq!(world.store.read("f").unwrap(), data);
    }
    assert_eq!(world.cache.counters().misses, misses, "it was not staged in again");
}

#[test] // S36
fn a_read_of_what_was_there_before_the_file_changed_below_counts() {
    let world = world(Atime::Strict);
    let handle = world.open("f", false);
    kernel_read(&handle);
    let first = told(&world);
    world.store.put("f", b"newer");
    let newer = world.open("f", false);
    assert_eq!((below(&world), told(&world), newer.size().unwrap()), (first, first, 5));
    drop((handle, newer));
    assert_eq!(below(&world), first);
}

#[test] // S36
fn a_time_of_last_access_stays_when_the_replica_goes_and_after_an_orderly_end() {
    let mut world = world(Atime::Relative);
    kernel_read(&world.open("f", false));
    let last = below(&world);
    assert!(last > EARLY);
    world.cache.evict(&world.identity("f")).unwrap();
    assert_eq!((told(&world), below(&world)), (last, last));
    kernel_read(&world.open("f", false));
    assert!(below(&world) >= last);
    let last = below(&world);
    world.cache.shutdown();
    world.cache = FileCache::open(world.settings.clone()).unwrap();
    let _handle = world.open("f", false);
    assert_eq!((told(&world), below(&world)), (last, last));
}

#[test] // S36
fn a_crash_or_a_store_that_refuses_loses_a_time_of_last_access_and_makes_none_up() {
    let mut world = world(Atime::Strict);
    let before = below(&world);
    let handle = world.open("f", false);
    kernel_read(&handle);
    assert!(told(&world) > before);
    world.crash();
    drop(handle);
    let handle = world.open("f", false);
    assert_eq!((told(&world), below(&world)), (before, before));
    kernel_read(&handle);
    let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::SetAtime(_));
    world.store.fail(Fault { matching, ..Fault::default() });
    drop(handle);
    assert_eq!((told(&world), below(&world)), (before, before));
    // An access time from before the watch is no read, whatever it is.
    set(&world, EARLY);
    let handle = world.open("f", false);
    assert_eq!(told(&world), EARLY);
    drop(handle);
    assert_eq!(below(&world), EARLY);
}
