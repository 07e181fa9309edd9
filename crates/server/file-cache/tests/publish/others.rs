//! Effects of others on the global store, also from other machines, while a file is published.

use models::{DataStoreExt, OpenDataExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;
use types::HasErrno;

use config::Policy;
use data_store::{DataStore, OpenHow, Publication, Residency};
use global_store::hidden;
use parking_lot::Mutex;
use testkit::PATIENCE;

use crate::hooked::Step;
use crate::world::{How, MIB, World, how, pattern, scratch};

#[test] // S53
fn who_waits_for_the_mark_of_a_file_that_is_published_looks_its_name_up_again() {
    let (here, there) = (scratch(), scratch());
    let shared = How { shared: true, ..How::default() };
    let world = World::open(here.path(), shared);
    std::os::unix::fs::symlink(&world.root, there.path().join("global")).unwrap();
    let other = World::open(there.path(), How { other: true, ..shared });
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"new");
    let (former, begun) = (other.anchor("f"), Instant::now());
    let is_waiting = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let (other, waiting) = (&other, &is_waiting);
        let open = scope.spawn(move || {
            let asked = || {
                waiting.store(true, Ordering::Release);
                false
            };
            other.cache.open(former, how(false, false), &asked).err().unwrap()
        });
        testkit::wait_until("the other waits", PATIENCE, || waiting.load(Ordering::Acquire));
        world.drain();
        open.join().unwrap()
    });
    assert_eq!(refused.errno(), Some(libc::ESTALE));
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(other.content("f"), b"new");
    world.cache.shutdown();
    other.cache.shutdown();
}

/// A user may read the former file when its copy begins, and may not any more when it is written.
#[test] // S53
fn what_is_being_written_is_nobody_elses_to_read() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    std::fs::write(world.path("f"), b"old").unwrap();
    std::fs::set_permissions(world.path("f"), PermissionsExt::from_mode(0o666)).unwrap();
    chown(world.path("f"), Some(1234), Some(4321)).unwrap();
    world.rewrite("f", &pattern(1, 3 * MIB));
    let root = world.root.clone();
    let seen = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&seen);
    world.store.at(move |step| {
        if step == Step::Begun {
            let mut all = std::fs::read_dir(&root)?.map(Result::unwrap);
            let stat = all.find(|entry| hidden::is_hidden(&entry.file_name())).unwrap().metadata()?;
            assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o600, 0, 0));
            looked.store(true, Ordering::Relaxed);
        }
        Ok(())
    });
    world.drain();
    assert!(seen.load(Ordering::Relaxed));
    let stat = std::fs::metadata(world.path("f")).unwrap();
    assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o666, 1234, 4321));
    world.cache.shutdown();
}

#[test] // S53
fn who_writes_below_until_just_before_the_rename_is_in_conflict() {
    let dir = scratch();
    let world = World::changing(dir.path(), How::default(), b"ours");
    let path = world.path("f");
    world.store.at(move |step| if step == Step::Dressed(1) { std::fs::write(&path, b"theirs") } else { Ok(()) });
    let stuck = world.cache.drain_all();
    assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict));
    assert_eq!((world.below("f"), world.hidden()), (b"theirs".to_vec(), 0));
    world.cache.shutdown();
}

#[test] // S26
fn who_renames_the_file_below_while_it_is_published_is_in_no_conflict() {
    for step in [Step::Begun, Step::Dressed(1)] {
        let dir = scratch();
        let world = World::changing(dir.path(), How::default(), b"ours");
        let (from, to) = (world.path("f"), world.path("g"));
        world.store.at(move |now| if now == step && from.exists() { std::fs::rename(&from, &to) } else { Ok(()) });
        world.drain();
        world.store.at(|_| Ok(()));
        assert_eq!(
            (world.below("g"), world.path("f").exists(), world.hidden()),
            (b"ours".to_vec(), false, 0),
            "{step:?}"
        );
        world.cache.shutdown();
    }
}

#[test] // S53
fn changes_of_names_without_a_pause_keep_no_file_from_its_place() {
    let dir = scratch();
    let world = World::changing(dir.path(), How::default(), b"new");
    let inode = world.inode("f");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _steady = world.cache.steady_names(&mut |lock| lock());
                    (0..200).for_each(|_| std::thread::yield_now());
                }
            });
        }
        world.drain();
        done.store(true, Ordering::Relaxed);
    });
    assert!(world.inode("f") != inode && world.below("f") == b"new");
    world.cache.shutdown();
}

/// This holds however long it takes, and although all files are staged out together.
#[test] // S53
fn who_writes_below_to_files_in_place_while_another_is_published_is_in_conflict() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    let others: Vec<String> = (0..8).map(|number| format!("g{number}")).collect();
    let in_place = Arc::new(Policy { publish_atomic: false, ..Policy::clone(&how(true, true).policy) });
    for name in &others {
        std::fs::write(world.path(name), b"old").unwrap();
        let how = OpenHow { policy: Arc::clone(&in_place), ..how(true, true) };
        world.cache.open_file(world.anchor(name), how).unwrap().write(b"ours", 0).unwrap();
    }
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"new");
    let paths: Vec<_> = others.iter().map(|name| world.path(name)).collect();
    world.store.at(move |step| match step {
        Step::Dressed(0) => paths.iter().try_for_each(|path| std::fs::write(path, b"theirs, longer")),
        _ => Ok(()),
    });
    let stuck = world.cache.drain_all();
    assert!(stuck.iter().all(|stuck| stuck.state == Residency::Conflict), "{stuck:?}");
    assert_eq!((stuck.len(), world.below("f")), (others.len(), b"new".to_vec()));
    assert!(others.iter().all(|name| world.below(name) == b"theirs, longer"));
    world.cache.shutdown();
}

#[test] // S53
fn what_somebody_puts_under_the_hidden_name_or_writes_there_takes_no_place() {
    for replaced in [true, false] {
        let dir = scratch();
        let world = World::changing(dir.path(), How::default(), b"ours");
        let inode = world.inode("f");
        let root = world.root.clone();
        world.store.at(move |step| {
            // A write before that is found at the next look, and the publication is tried again.
            if step == Step::Dressed(u32::from(!replaced)) {
                let mut all = std::fs::read_dir(&root)?.map(Result::unwrap);
                let hidden = all.find(|entry| hidden::is_hidden(&entry.file_name())).unwrap().path();
                if replaced {
                    std::fs::rename(&hidden, root.join("aside"))?;
                }
                std::fs::write(hidden, b"theirs")?;
            }
            Ok(())
        });
        world.drain();
        world.store.at(|_| Ok(()));
        assert_eq!((world.below("f"), world.inode("f")), (b"ours".to_vec(), inode), "written in place");
        assert_eq!(world.hidden(), usize::from(replaced), "it is somebody else's");
        world.cache.shutdown();
    }
}

#[test] // S53
fn who_wants_a_file_below_waits_for_no_other_that_is_published() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    let names = ["f", "g"];
    for name in names {
        std::fs::write(world.path(name), b"old").unwrap();
        world.rewrite(name, b"new");
    }
    let (cache, identities) = (world.cache.clone(), names.map(|name| world.anchor(name).identity().clone()));
    let waited = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&waited);
    world.store.at(move |step| {
        if step == Step::Begun {
            let is_refused = |identity| {
                let asked = AtomicU32::new(0);
                !cache.drain(Some(identity), &mut |_| {}, &|| asked.fetch_add(1, Ordering::Relaxed) > 50).is_empty()
            };
            noted.lock().push(identities.iter().filter(|identity| is_refused(identity)).count());
        }
        Ok(())
    });
    world.drain();
    assert_eq!(waited.lock().first(), Some(&1), "but for the one that is");
    assert!(names.iter().all(|name| world.below(name) == b"new"));
    world.store.at(|_| Ok(()));
    world.cache.shutdown();
}
