//! Changes by others between two steps of a publication.

use models::{DataStoreExt, OpenDataExt};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use types::HasErrno;

use data_store::Residency;
use parking_lot::Mutex;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::hooked::Step;
use crate::world::{How, World, how, pattern, scratch};

#[test] // S53
fn who_writes_below_just_after_the_rename_changes_the_new_file() {
    let dir = scratch();
    let world = World::changing(dir.path(), How::default(), b"ours");
    let path = world.path("f");
    world.store.at(move |step| if step == Step::Placed { std::fs::write(&path, b"theirs, longer") } else { Ok(()) });
    world.drain();
    world.store.at(|_| Ok(()));
    assert_eq!((world.below("f"), world.content("f")), (b"theirs, longer".to_vec(), b"theirs, longer".to_vec()));
    world.cache.shutdown();
}

#[test] // S53
fn who_opens_the_new_file_at_once_writes_on_what_was_published() {
    for shared in [false, true] {
        let dir = scratch();
        let world = Arc::new(World::changing(dir.path(), How { shared, ..How::default() }, &pattern(1, 1000)));
        let (program, handle) = (Arc::clone(&world), Arc::new(Mutex::new(None)));
        let opened = Arc::clone(&handle);
        world.store.at(move |step| {
            if step == Step::Placed {
                let handle = program.open_file("f", true, false);
                handle.write(b"program", 10).unwrap();
                assert_eq!(program.anchor("f").mark().unwrap().is_some(), shared);
                *opened.lock() = Some(handle);
            }
            Ok(())
        });
        let _ = world.cache.drain_all();
        drop(handle.lock().take().unwrap());
        world.store.at(|_| Ok(()));
        world.drain();
        let mut expected = pattern(1, 1000);
        expected[10..17].copy_from_slice(b"program");
        assert!(world.below("f") == expected && world.content("f") == expected);
        assert_eq!((world.hidden(), world.anchor("f").mark().unwrap()), (0, None));
        world.cache.shutdown();
    }
}

#[test] // S53
fn a_file_that_is_removed_or_moved_while_it_is_published_is_that() {
    for (removed, step) in
        [(true, Step::Begun), (true, Step::Dressed(0)), (false, Step::Begun), (false, Step::Dressed(0))]
    {
        let dir = scratch();
        let world = Arc::new(World::changing(dir.path(), How::default(), b"new"));
        let program = Arc::clone(&world);
        world.store.at(move |now| {
            if now == step {
                let anchor = program.anchor("f");
                if removed {
                    program.cache.removing(anchor.identity());
                    std::fs::remove_file(program.path("f"))?;
                    program.cache.unlinked(anchor.identity());
                } else {
                    std::fs::rename(program.path("f"), program.path("g"))?;
                    program.cache.renamed(&*anchor);
                }
            }
            Ok(())
        });
        world.drain();
        world.store.at(|_| Ok(()));
        let names = ["f", "g"].map(|name| world.path(name).exists());
        assert_eq!((names, world.hidden()), ([false, !removed], 0), "{removed} {step:?}");
        assert!(removed || world.below("g") == b"new");
        world.cache.shutdown();
    }
}

/// A program removes the file and is refused by the store, after the record said that the file is about to go.
#[test] // S53
fn a_removal_that_fails_while_a_file_is_published_leaves_a_dirty_file() {
    let dir = scratch();
    let world = Arc::new(World::changing(dir.path(), How::default(), b"new"));
    let program = Arc::clone(&world);
    world.store.at(move |now| {
        if now == Step::Dressed(0) {
            let anchor = program.anchor("f");
            program.cache.removing(anchor.identity());
            program.cache.renamed(&*anchor);
        }
        Ok(())
    });
    world.drain();
    world.store.at(|_| Ok(()));
    assert_eq!((world.below("f"), world.state("f"), world.hidden()), (b"new".to_vec(), Residency::Clean, 0));
    world.cache.shutdown();
}

/// The former file's attributes change after they were read: the clock of changes is too coarse to tell.
#[test] // S53
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

#[test] // S53
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
            assert_eq!(refused.errno(), Some(libc::ESTALE), "{number}");
        }
        let refused = world.cache.pin(anchor.identity(), true).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ENOENT));
        assert_eq!(world.below(&format!("f{number}")), b"new");
    }
    world.cache.shutdown();
}

#[test] // S53
fn who_comes_by_the_former_file_at_once_does_not_find_its_replica() {
    let dir = scratch();
    let world = Arc::new(World::changing(dir.path(), How::default(), b"new"));
    let (former, program) = (world.anchor("f"), Arc::clone(&world));
    let thread = Arc::new(Mutex::new(None));
    let started = Arc::clone(&thread);
    world.store.at(move |step| {
        if step == Step::Placed {
            let (world, former) = (Arc::clone(&program), Arc::clone(&former));
            let (tell, told) = std::sync::mpsc::channel();
            *started.lock() = Some(std::thread::spawn(move || {
                tell.send(()).unwrap();
                world.cache.open_file(former, how(true, false)).err().map(|error| error.errno())
            }));
            told.recv().unwrap();
            // The publication comes as far as it can.
            (0..2000).for_each(|_| std::thread::yield_now());
        }
        Ok(())
    });
    world.drain();
    let refused = thread.lock().take().unwrap().join().unwrap();
    assert_eq!(refused, Some(Some(libc::ESTALE)));
    assert_eq!(world.below("f"), b"new");
    world.store.at(|_| Ok(()));
    world.cache.shutdown();
}

#[test] // S53
fn what_a_program_writes_or_reads_while_a_file_is_published_goes_on() {
    for (step, held) in [(Step::Begun, false), (Step::Dressed(0), false), (Step::Dressed(0), true)] {
        let dir = scratch();
        let world = Arc::new(World::changing(dir.path(), How::default(), b"new..."));
        let (program, kept) = (Arc::clone(&world), Arc::new(Mutex::new(None)));
        let keeps = Arc::clone(&kept);
        world.store.at(move |now| {
            if now == step {
                let handle = program.open_file("f", !held, false);
                if held {
                    *keeps.lock() = Some(handle);
                } else {
                    handle.write(b"more", 2).unwrap();
                }
            }
            Ok(())
        });
        world.drain();
        world.store.at(|_| Ok(()));
        let expected = if held { b"new..." } else { b"nemore" };
        if let Some(handle) = kept.lock().take() {
            let mut buffer = [0; 6];
            assert_eq!(
                (handle.read_at(&mut buffer, 0).unwrap(), &buffer, handle.data().is_current),
                (6, expected, true)
            );
        }
        assert!(world.below("f") == expected && world.content("f") == expected, "{step:?}");
        assert_eq!((world.state("f"), world.hidden()), (Residency::Clean, 0), "{step:?}: written in place");
        world.cache.shutdown();
    }
}
