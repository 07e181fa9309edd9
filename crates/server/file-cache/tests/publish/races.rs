//! What others do between two steps of a publication.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use file_cache::{Keep, Residency};
use parking_lot::Mutex;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::hooked::Step;
use crate::world::{AS_USUAL, How, World, how, pattern, scratch};

const SHARED: How = How { shared: true, ..AS_USUAL };

#[test]
fn who_writes_below_just_after_the_rename_is_in_conflict_and_loses_nothing() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"ours");
    let path = world.path("f");
    world.store.at(move |step| if step == Step::Placed { std::fs::write(&path, b"theirs, longer") } else { Ok(()) });
    let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
    assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict), "{stuck:?}");
    assert_eq!(stuck[0].path_hint.to_str(), Some("f"));
    assert_eq!(world.below("f"), b"theirs, longer");
    world.store.at(|_| Ok(()));
    world.cache.resolve(&stuck[0].identity, Keep::BurstBuffer).unwrap();
    world.drain();
    assert_eq!((world.below("f"), world.state("f")), (b"ours".to_vec(), Residency::Clean));
    world.cache.shutdown();
}

#[test]
fn a_new_file_that_is_not_clean_has_a_mark_and_a_brand_before_anybody_can_open_it() {
    let dir = scratch();
    {
        let world = World::open(dir.path(), SHARED);
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"ours");
        let path = world.path("f");
        world.store.at(move |step| if step == Step::Syncing { std::fs::write(&path, b"theirs") } else { Ok(()) });
        assert_eq!(world.cache.drain_all(&mut |_| {}, &|| false).len(), 1);
        let mark = world.anchor("f").mark().unwrap();
        assert!(mark.is_some_and(|mark| mark.starts_with(b"forebay")), "another node would take it for clean");
        world.cache.abandon();
    }
    // The replica says whose it is.
    std::fs::remove_dir_all(dir.path().join("bb/catalogue")).unwrap();
    let world = World::open(dir.path(), SHARED);
    assert_eq!(world.cache.status().orphaned, 0);
    let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
    assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict));
    assert_eq!(&stuck[0].identity, world.anchor("f").identity());
    world.cache.shutdown();
}

#[test]
fn who_opens_the_new_file_before_it_is_known_to_be_clean_writes_on_the_same_replica() {
    for shared in [false, true] {
        let dir = scratch();
        let world = Arc::new(World::open(dir.path(), How { shared, ..How::default() }));
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", &pattern(1, 1000));
        let (program, thread) = (Arc::clone(&world), Arc::new(Mutex::new(None)));
        let started = Arc::clone(&thread);
        world.store.at(move |step| {
            if step == Step::Placed {
                let world = Arc::clone(&program);
                *started.lock() = Some(std::thread::spawn(move || {
                    let handle = world.open_file("f", true, false);
                    handle.write_at(b"program", 10, false).unwrap();
                    let marked = world.anchor("f").mark().unwrap().is_some();
                    (marked, world.state("f"), handle)
                }));
            }
            Ok(())
        });
        // It may be called busy, for who opened it meanwhile.
        let _ = world.cache.drain_all(&mut |_| {}, &|| false);
        let started = thread.lock().take().unwrap();
        let (marked, state, handle) = started.join().unwrap();
        assert_eq!((marked, state), (shared, Residency::Dirty));
        drop(handle);
        world.store.at(|_| Ok(()));
        world.drain();
        let mut expected = pattern(1, 1000);
        expected[10..17].copy_from_slice(b"program");
        assert!(world.below("f") == expected && world.content("f") == expected);
        assert_eq!((world.state("f"), world.hidden(), world.replicas()), (Residency::Clean, 0, 1));
        world.cache.shutdown();
    }
}

/// With the former file's attributes changed when they had been read: the clock of changes is too coarse to tell.
#[test]
fn what_others_change_of_the_former_file_while_the_new_one_is_made_holds_for_that() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    let path = world.path("f");
    std::fs::write(&path, b"old").unwrap();
    setxattr(&path, "user.gone", b"x", XattrFlags::empty()).unwrap();
    world.rewrite("f", b"new");
    let at = path.clone();
    world.store.at(move |step| {
        if step == Step::Dressed(0) {
            std::fs::set_permissions(&at, PermissionsExt::from_mode(0o4751))?;
            setxattr(&at, "user.colour", b"blue", XattrFlags::empty())?;
            rustix::fs::removexattr(&at, "user.gone")?;
        }
        Ok(())
    });
    world.drain();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    let mut value = [0; 8];
    assert_eq!((world.below("f"), mode & 0o7777), (b"new".to_vec(), 0o4751));
    assert_eq!(getxattr(&path, "user.colour", &mut value[..]), Ok(4));
    assert!(getxattr(&path, "user.gone", &mut value[..]).is_err());
    world.cache.shutdown();
}

#[test]
fn who_comes_by_a_former_file_looks_again_however_many_there_are() {
    const FILES: usize = 40;
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    let mut former = Vec::new();
    for number in 0..FILES {
        let name = format!("f{number}");
        std::fs::write(world.path(&name), b"old").unwrap();
        world.rewrite(&name, b"new");
        former.push(world.anchor(&name));
    }
    world.drain();
    for (number, anchor) in former.into_iter().enumerate() {
        for (write, truncate) in [(false, false), (true, false), (true, true)] {
            let refused = world.cache.open_file(Arc::clone(&anchor), how(write, truncate)).err().unwrap();
            assert_eq!(refused.raw_os_error(), Some(libc::ESTALE), "{number}");
        }
        let refused = world.cache.pin(anchor.identity(), true).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(world.below(&format!("f{number}")), b"new");
    }
    world.cache.shutdown();
}

#[test]
fn who_comes_by_the_former_file_before_the_new_one_is_recorded_does_not_find_its_replica() {
    for when in [Step::Placed, Step::Syncing] {
        let dir = scratch();
        let world = Arc::new(World::open(dir.path(), How::default()));
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"new");
        let (former, program) = (world.anchor("f"), Arc::clone(&world));
        let thread = Arc::new(Mutex::new(None));
        let started = Arc::clone(&thread);
        world.store.at(move |step| {
            if step == when {
                let (world, former) = (Arc::clone(&program), Arc::clone(&former));
                let (tell, told) = std::sync::mpsc::channel();
                *started.lock() = Some(std::thread::spawn(move || {
                    tell.send(()).unwrap();
                    world.cache.open_file(former, how(true, false)).err().map(|error| error.raw_os_error())
                }));
                told.recv().unwrap();
                // It comes as far as it can.
                (0..2000).for_each(|_| std::thread::yield_now());
            }
            Ok(())
        });
        world.drain();
        let refused = thread.lock().take().unwrap().join().unwrap();
        assert_eq!(refused, Some(Some(libc::ESTALE)), "{when:?}");
        assert_eq!(world.below("f"), b"new");
        world.store.at(|_| Ok(()));
        world.cache.shutdown();
    }
}

#[test]
fn a_name_that_could_not_be_synced_is_before_the_file_is_called_clean() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"new");
    let synced = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&synced);
    world.store.at(move |step| match step {
        Step::Syncing => Err(io::Error::from_raw_os_error(libc::EIO)),
        Step::SyncingInPlace if count.fetch_add(1, Ordering::Relaxed) == 0 => {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
        _ => Ok(()),
    });
    let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
    assert_eq!((stuck.len(), stuck[0].errno), (1, libc::EIO), "{stuck:?}");
    assert_ne!(world.state("f"), Residency::Clean, "its name may go with a crash");
    world.drain();
    assert_eq!((synced.load(Ordering::Relaxed), world.state("f")), (2, Residency::Clean));
    assert_eq!((world.below("f"), world.hidden()), (b"new".to_vec(), 0));
    world.cache.shutdown();
}

#[test]
fn a_pin_that_is_set_meanwhile_is_the_new_files() {
    let dir = scratch();
    let world = Arc::new(World::open(dir.path(), How::default()));
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"new");
    let user = Arc::clone(&world);
    world.store.at(move |step| match step {
        Step::Dressed(0) => user.cache.pin(user.anchor("f").identity(), true),
        _ => Ok(()),
    });
    world.drain();
    let refused = world.cache.evict(world.anchor("f").identity()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "it is pinned");
    world.store.at(|_| Ok(()));
    world.cache.shutdown();
}
