//! Times that a program sets stay, at whatever moment of a stage-out they are set.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use config::{KeepAfter, Policy};
use data_store::{DataStore, NewTime, OpenHow, Residency};
use file_cache::FileCache;
use global_store::now_of_files;
use models::global::{Fault, MemoryStore, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{MIB, World};
use types::Timestamp;

const TIME: Timestamp = Timestamp { seconds: 5, nanos: 6 };

/// Returns the attributes that `stat` reports, asked as the agent asks.
fn told(cache: &FileCache, store: &MemoryStore, path: &str) -> Timestamp {
    let identity = store.identity(path).unwrap();
    let before = cache.staged_count();
    let mut mtime = store.attributes(path).unwrap().fingerprint.mtime;
    match cache.ahead(&identity) {
        Some(overlay) => mtime = overlay.mtime,
        None if cache.staged_count() != before => mtime = store.attributes(path).unwrap().fingerprint.mtime,
        None => {}
    }
    mtime
}

/// Sets the time of a file from another thread, as a program would. Waits until that is done, or waits for a lock of
/// the caller: then it is done soon after.
struct Setter {
    cache: FileCache,
    store: MemoryStore,
    path: &'static str,
    begun: AtomicBool,
    done: AtomicBool,
}

impl Setter {
    fn new(world: &World, path: &'static str) -> Arc<Setter> {
        let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Setter { cache: world.cache.clone(), store: world.store.clone(), path, begun, done })
    }

    fn set(self: &Arc<Setter>) {
        if self.begun.swap(true, Ordering::SeqCst) {
            return;
        }
        let setter = Arc::clone(self);
        std::thread::spawn(move || {
            let anchor = setter.store.anchor(setter.path).unwrap();
            let apply = &mut || setter.store.set_mtime(setter.path, TIME);
            setter.cache.date(&anchor, Some(NewTime::At(TIME)), apply).unwrap();
            setter.done.store(true, Ordering::SeqCst);
        });
        let end = Instant::now() + Duration::from_millis(20);
        while !self.done.load(Ordering::SeqCst) && Instant::now() < end {
            std::thread::yield_now();
        }
    }

    fn is_told(&self) -> bool {
        !self.done.load(Ordering::SeqCst) || told(&self.cache, &self.store, self.path) == TIME
    }
}

/// One story: how many files are staged out at once, how large the first is, and which operation fails.
#[derive(Debug, Clone, Copy)]
struct Story {
    files: usize,
    size: usize,
    /// Whether the file was clean before.
    again: bool,
    /// Whether a write of the first stage-out fails.
    fails: bool,
    keep_after: KeepAfter,
}

/// Runs a story with the time set before (or `after`) operation `at` of the store. Returns false if there were fewer.
fn tell(story: Story, at: u64, after: bool) -> bool {
    let mut world = World::new();
    world.policy = Arc::new(Policy { keep_after: story.keep_after, revalidate: Duration::ZERO, ..Policy::default() });
    if story.again {
        world.store.put("f0", &vec![7; story.size]);
        world.open("f0", true).write(b"changed", 0).unwrap();
    } else {
        world.write_new("f0", &vec![7; story.size]);
    }
    for number in 1..story.files {
        world.write_new(&format!("f{number}"), b"beside");
    }
    let setter = Setter::new(&world, "f0");
    let (count, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let hook = {
        let (setter, count, wrong) = (setter.clone(), count.clone(), wrong.clone());
        Arc::new(move |_: &StoreOperation, _: &types::Identity| {
            if count.fetch_add(1, Ordering::SeqCst) == at {
                setter.set();
            }
            wrong.fetch_or(!setter.is_told(), Ordering::SeqCst);
        })
    };
    if story.fails {
        let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Write(_));
        world.store.fail(Fault { matching, ..Fault::default() });
    }
    if after {
        world.store.set_after(Some(hook))
    } else {
        world.store.set_hook(Some(hook))
    }
    let drain = || world.cache.drain_all();
    let stuck = drain();
    assert!(stuck.is_empty() || story.fails, "{story:?} {at} {after}: {stuck:?}");
    world.store.set_hook(None);
    world.store.set_after(None);
    let reached = count.load(Ordering::SeqCst) > at;
    setter.set();
    support::until("the time to be set", || setter.done.load(Ordering::SeqCst));
    let stuck = drain();
    let label = format!("{story:?}, the time set {} operation {at}", if after { "after" } else { "before" });
    assert!(stuck.is_empty(), "{label}: {stuck:?}");
    assert!(!wrong.load(Ordering::SeqCst), "{label}: another time was told");
    assert_eq!(told(&world.cache, &world.store, "f0"), TIME, "{label}");
    assert_eq!(world.store.attributes("f0").unwrap().fingerprint.mtime, TIME, "{label}");
    let how = OpenHow { policy: Arc::clone(&world.policy), ..world.how(false) };
    drop(world.cache.open_file(world.anchor("f0"), how).unwrap());
    assert_eq!(told(&world.cache, &world.store, "f0"), TIME, "{label}: after it was read again");
    reached
}

fn tell_at_every_moment(story: Story) {
    for after in [false, true] {
        let mut at = 0;
        while tell(story, at, after) {
            at += 1;
        }
        assert!(at > 3, "{story:?}: too few operations");
    }
}

const NEW: Story = Story { files: 1, size: 1000, again: false, fails: false, keep_after: KeepAfter::Delete };

#[test] // S3
fn a_time_set_at_any_moment_of_a_stage_out_stays() {
    for (files, size, again) in [(1, 1000, false), (1, 2 * MIB, false), (3, 1000, false), (1, 1000, true), (3, 9, true)]
    {
        tell_at_every_moment(Story { files, size, again, ..NEW });
    }
    tell_at_every_moment(Story { keep_after: KeepAfter::For(Duration::from_secs(9)), ..NEW });
}

#[test] // S3
fn a_time_set_at_any_moment_of_a_stage_out_that_fails_stays_and_is_no_conflict() {
    for (size, again) in [(1000, false), (3 * MIB, true)] {
        tell_at_every_moment(Story { size, again, fails: true, ..NEW });
    }
}

/// The copy does not wait for a thread that sets a time: its next write moves the global copy's time before our look
/// at it.
#[test] // S3
fn a_time_that_a_running_copy_moves_at_once_stays() {
    for again in [false, true] {
        let world = World::new();
        if again {
            world.store.put("f", b"old");
            world.open("f", true).write(b"new", 0).unwrap();
        } else {
            world.write_new("f", b"new");
        }
        let [begun, applied, written, done] = [(); 4].map(|()| Arc::new(AtomicBool::new(false)));
        let (cache, store) = (world.cache.clone(), world.store.clone());
        let hook = {
            let (begun, applied, written, done) = (begun.clone(), applied.clone(), written.clone(), done.clone());
            move |operation: &StoreOperation, _: &types::Identity| {
                if !matches!(operation, StoreOperation::Write(_)) || begun.swap(true, Ordering::SeqCst) {
                    return;
                }
                let (cache, store, now) = (cache.clone(), store.clone(), applied.clone());
                let (written, done) = (written.clone(), done.clone());
                std::thread::spawn(move || {
                    let mut apply = || {
                        store.set_mtime("f", TIME)?;
                        now.store(true, Ordering::SeqCst);
                        support::until("the copy to write", || written.load(Ordering::SeqCst));
                        Ok(())
                    };
                    cache.date(&store.anchor("f").unwrap(), Some(NewTime::At(TIME)), &mut apply).unwrap();
                    done.store(true, Ordering::SeqCst);
                });
                support::until("the time to be set", || applied.load(Ordering::SeqCst));
            }
        };
        let after = {
            let written = written.clone();
            move |operation: &StoreOperation, _: &types::Identity| {
                written.fetch_or(matches!(operation, StoreOperation::Write(_)), Ordering::SeqCst);
            }
        };
        world.store.set_hook(Some(Arc::new(hook)));
        world.store.set_after(Some(Arc::new(after)));
        world.drain();
        assert!(begun.load(Ordering::SeqCst));
        support::until("the setting of the time to end", || done.load(Ordering::SeqCst));
        assert_eq!(told(&world.cache, &world.store, "f"), TIME, "again {again}");
        assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, TIME, "again {again}");
        assert_eq!(world.store.read("f").unwrap(), b"new");
    }
}

#[test] // S56
fn a_file_that_nobody_wrote_to_keeps_its_time_of_change_when_it_becomes_clean() {
    // The store's clock is years behind that of the replica's file system.
    let world = World::new();
    let handle = world.create("f");
    let below = world.store.attributes("f").unwrap().fingerprint.ctime;
    assert_eq!(world.cache.ahead(&world.identity("f")).unwrap().ctime, below);
    drop(handle);
    world.drain();
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.ctime, below);
    let handle = world.open("f", true);
    handle.write(b"data", 0).unwrap();
    assert!(world.cache.ahead(&world.identity("f")).unwrap().ctime > below, "a write moves it");
}

#[test]
fn a_time_set_on_a_new_file_costs_no_commit_and_is_no_conflict_after_a_crash() {
    let mut world = World::new();
    world.write_new("f", b"new");
    let commits = world.catalogue.commits();
    let anchor = world.anchor("f");
    world.cache.date(&anchor, Some(NewTime::At(TIME)), &mut || world.store.set_mtime("f", TIME)).unwrap();
    assert_eq!((world.catalogue.commits(), told(&world.cache, &world.store, "f")), (commits, TIME));
    drop(anchor);
    world.crash();
    assert_eq!(told(&world.cache, &world.store, "f"), TIME);
    world.drain();
    assert_eq!(world.store.read("f").unwrap(), b"new");
    assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, TIME);
}

/// The time is set on the global copy then, and a stage-out would take that for somebody else's change.
#[test] // S3
fn a_time_that_could_not_be_recorded_is_no_conflict() {
    for late in [false, true] {
        let world = World::new();
        world.store.put("f", b"old");
        let writer = world.open("f", true);
        writer.write(b"new", 0).unwrap();
        if late {
            world.catalogue.fail_commits_late(0, 1)
        } else {
            world.catalogue.fail_commits(0, 1)
        }
        let apply = &mut || world.store.set_mtime("f", TIME);
        assert!(world.cache.date(&world.anchor("f"), Some(NewTime::At(TIME)), apply).is_err());
        drop(writer);
        world.drain();
        assert_eq!(world.store.read("f").unwrap(), b"new", "{late}");
        assert_eq!(world.store.attributes("f").unwrap().fingerprint.mtime, TIME);
    }
}

/// The store was asked to set a time, and did not answer, or did it later. The program set another time, or not.
#[test] // S26
fn a_time_that_the_store_did_not_confirm_is_no_conflict() {
    const AGAIN: Timestamp = Timestamp { seconds: 7, nanos: 8 };
    for (confirmed, later, again) in
        [(true, false, false), (false, false, false), (false, true, false), (true, false, true), (false, false, true)]
    {
        let label = format!("confirmed {confirmed}, later {later}, again {again}");
        let world = World::new();
        world.store.put("f", b"old");
        let writer = world.open("f", true);
        writer.write(b"new", 0).unwrap();
        if confirmed {
            let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::Attributes);
            world.store.fail(Fault { after: 1, matching, ..Fault::default() });
        }
        let set = |time, apply: &mut dyn FnMut() -> std::io::Result<()>| {
            world.cache.date(&world.anchor("f"), Some(NewTime::At(time)), apply)
        };
        let refused = set(TIME, &mut || {
            if !later {
                world.store.set_mtime("f", TIME)?;
            }
            if confirmed { Ok(()) } else { Err(std::io::Error::from_raw_os_error(libc::EIO)) }
        });
        assert!(refused.is_err(), "{label}");
        if later {
            world.store.set_mtime("f", TIME).unwrap();
        }
        if again {
            set(AGAIN, &mut || world.store.set_mtime("f", AGAIN)).unwrap();
        }
        drop(writer);
        assert!(world.cache.drain_all().is_empty(), "{label}");
        assert_eq!(world.store.read("f").unwrap(), b"new", "{label}");
        let mtime = world.store.attributes("f").unwrap().fingerprint.mtime;
        assert_eq!(
            (mtime == TIME, mtime == AGAIN),
            (false, again),
            "{label}: what was refused did not happen to the data"
        );
    }
}

#[test] // S26
fn two_times_in_a_row_that_the_store_did_not_confirm_are_no_conflict() {
    for (begun, comes) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        world.store.put("f", b"old");
        world.open("f", true).write(b"new", 0).unwrap();
        if begun {
            // A failed stage-out left its own state on the global copy.
            let matching = |operation: &StoreOperation| matches!(operation, StoreOperation::SetMtime(_));
            world.store.fail(Fault { matching, ..Fault::default() });
            assert_eq!(world.cache.drain_all().len(), 1);
        }
        for (seconds, comes) in [(5, true), (7, comes)] {
            let time = Timestamp { seconds, nanos: 8 };
            let refused = world.cache.date(&world.anchor("f"), Some(NewTime::At(time)), &mut || {
                if comes {
                    world.store.set_mtime("f", time)?;
                }
                Err(std::io::Error::from_raw_os_error(libc::EIO))
            });
            assert!(refused.is_err());
        }
        let stuck = world.cache.drain_all();
        assert!(stuck.is_empty(), "begun {begun}, the second comes {comes}: {stuck:?}");
        assert_eq!(world.store.read("f").unwrap(), b"new");
    }
}

#[test] // S26
fn another_time_than_the_one_that_the_store_did_not_confirm_is_somebody_elses() {
    let world = World::new();
    world.store.put("f", b"old");
    world.open("f", true).write(b"new", 0).unwrap();
    let mut refused = || Err(std::io::Error::from_raw_os_error(libc::EIO));
    assert!(world.cache.date(&world.anchor("f"), Some(NewTime::At(TIME)), &mut refused).is_err());
    world.store.put("f", b"his");
    assert_eq!(world.cache.drain_all().len(), 1);
    world.store.set_mtime("f", TIME).unwrap();
    assert_eq!(world.state("f"), Residency::Conflict);
    assert_eq!(world.store.read("f").unwrap(), b"his");
}

/// Returns the change time that a program sees.
fn shown(world: &World) -> Timestamp {
    let found = world.store.attributes("f").unwrap().fingerprint;
    match world.cache.attributes(&world.identity("f"), Some(&found)).unwrap() {
        Some(overlay) if overlay.below.is_none_or(|below| below == found.ctime) => overlay.ctime,
        Some(overlay) if overlay.ahead => overlay.ctime.max(found.ctime),
        _ => found.ctime,
    }
}

fn wall() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(now.as_nanos() as u64)
}

#[test] // S56
fn the_time_of_change_stays_through_stage_out_restart_and_eviction_until_somebody_changes_the_file() {
    for shared in [false, true] {
        let mut world = World::new();
        world.store.set_shared(shared);
        world.store.set_clock(wall(), 1_000_000);
        world.write_new("f", b"data");
        let written = shown(&world);
        // Also while our own change of the global copy's times is not recorded yet.
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (cache, identity, noted) = (world.cache.clone(), world.identity("f"), Arc::clone(&seen));
        world.store.set_after(Some(Arc::new(move |operation, _| {
            if matches!(operation, StoreOperation::SetMtime(_) | StoreOperation::SyncStore | StoreOperation::Sync) {
                noted.lock().push(cache.attributes(&identity, None).unwrap().unwrap());
            }
        })));
        world.drain();
        world.store.set_after(None);
        assert!(seen.lock().iter().all(|overlay| overlay.below.is_none() && overlay.ctime == written));
        assert!(!seen.lock().is_empty());
        assert_ne!(world.store.attributes("f").unwrap().fingerprint.ctime, written);
        assert_eq!(shown(&world), written, "clean; shared: {shared}");
        world.open("f", false);
        world.cache.evict(&world.identity("f")).unwrap();
        assert_eq!(shown(&world), written, "evicted");
        drop(world.open("f", false));
        world.crash();
        drop(world.open("f", false));
        assert_eq!(shown(&world), written, "staged in again, and after a restart");
        let handle = world.open("f", true);
        assert_eq!(shown(&world), written, "opened for writing");
        handle.write(b"more data", 0).unwrap();
        let again = shown(&world);
        assert!(again > written, "written");
        drop(handle);
        world.drain();
        assert_eq!(shown(&world), again);
        // Another's change of attributes is visible, whether the file is clean or dirty.
        world.store.set_mode("f", 0o600).unwrap();
        let changed = world.store.attributes("f").unwrap().fingerprint.ctime;
        assert_eq!(shown(&world), changed);
        world.open("f", true).write(b"last", 0).unwrap();
        let dirty = shown(&world);
        let later = wall();
        world.store.set_clock(Timestamp { seconds: later.seconds + 9, ..later }, 1_000_000);
        world.store.set_mode("f", 0o640).unwrap();
        let changed = shown(&world);
        assert!(changed > dirty);
        world.drain();
        assert_eq!(shown(&world), changed, "a stage-out moves nothing");
    }
}

#[test] // S56
fn a_change_of_attributes_through_us_moves_the_time_of_change_once_whenever_it_comes() {
    for during in [false, true] {
        let world = World::new();
        world.store.set_clock(wall(), 1);
        world.write_new("f", b"data");
        let written = shown(&world);
        let (cache, identity, store) = (world.cache.clone(), world.identity("f"), world.store.clone());
        let change = move || {
            let began = now_of_files();
            store.set_clock(wall(), 1);
            store.set_mode("f", 0o640).unwrap();
            cache.changed_attributes(&identity, began);
        };
        let once = AtomicBool::new(false);
        if during {
            world.store.set_after(Some(Arc::new(move |operation, _| {
                if matches!(operation, StoreOperation::SetMtime(_)) && !once.swap(true, Ordering::SeqCst) {
                    change();
                }
            })));
        } else {
            change();
        }
        let changed = if during { None } else { Some(shown(&world)) };
        world.drain();
        world.store.set_after(None);
        let after = shown(&world);
        assert!(after > written, "during a stage-out: {during}");
        assert_eq!(after, changed.unwrap_or(after));
        assert_eq!(shown(&world), after);
        let mtime = world.store.attributes("f").unwrap().fingerprint.mtime;
        let anchor = world.anchor("f");
        world.cache.date(&anchor, Some(NewTime::At(mtime)), &mut || world.store.set_mtime("f", mtime)).unwrap();
        assert_eq!(shown(&world), world.store.attributes("f").unwrap().fingerprint.ctime);
    }
}
