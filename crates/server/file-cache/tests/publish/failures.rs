//! Stores without room, catalogues that fail, and crashes of the machine.

use std::io;
use std::sync::Arc;

use catalogue::{Catalogue, Durability, MemoryCatalogue};
use file_cache::Residency;
use global_store::hidden::is_hidden;
use parking_lot::Mutex;

use crate::hooked::Step;
use crate::world::{How, World, scratch};

#[test]
fn a_store_without_room_for_both_is_told_and_nobody_sees_a_part() {
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let dir = scratch();
        let world = World::open(dir.path(), How::default());
        std::fs::write(world.path("f"), b"old").unwrap();
        let inode = world.inode("f");
        world.rewrite("f", b"new");
        world.store.at(move |step| match step {
            Step::Dressed(0) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        });
        let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
        assert_eq!((stuck.len(), stuck[0].errno), (1, errno));
        assert_eq!((world.below("f"), world.inode("f"), world.hidden()), (b"old".to_vec(), inode, 0));
        assert_eq!(world.content("f"), b"new");
        world.store.at(|_| Ok(()));
        world.drain();
        assert_eq!((world.below("f"), world.state("f")), (b"new".to_vec(), Residency::Clean));
        world.cache.shutdown();
    }
}

/// Opens a world again over what the one before left, in the catalogue too.
fn again(dir: &std::path::Path, catalogue: &MemoryCatalogue) -> World {
    World::open_with(dir, How::default(), Some(Arc::new(catalogue.clone())))
}

#[test]
fn a_record_that_could_not_be_written_goes_with_the_next() {
    for (times, late) in [(1, false), (2, false), (3, false), (1, true), (2, true)] {
        let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
        let world = again(dir.path(), &catalogue);
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"new");
        let failing = catalogue.clone();
        world.store.at(move |step| {
            if step == Step::Syncing {
                if late { failing.fail_commits_late(0, times) } else { failing.fail_commits(0, times) }
            }
            Ok(())
        });
        let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
        assert!(stuck.len() <= 1, "{stuck:?}");
        world.store.at(|_| Ok(()));
        assert_eq!(world.content("f"), b"new");
        world.rewrite("f", b"newer");
        assert_eq!(catalogue.len(), 1, "{times} {late}: of one replica");
        world.cache.abandon();
        let world = again(dir.path(), &catalogue);
        assert_eq!((world.cache.status().orphaned, world.content("f")), (0, b"newer".to_vec()), "{times} {late}");
        world.drain();
        assert_eq!((world.below("f"), world.state("f")), (b"newer".to_vec(), Residency::Clean));
        world.cache.shutdown();
    }
}

/// The commit that called the file clean was on the medium, or was not.
#[test]
fn a_crash_of_the_machine_after_a_publication_leaves_the_new_file_and_no_orphan() {
    for (shared, kept) in [(false, false), (true, false), (false, true)] {
        let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
        let how = How { shared, thorough: true, ..How::default() };
        let open = || World::open_with(dir.path(), how, Some(Arc::new(catalogue.clone())));
        let world = open();
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"new");
        let synced = || catalogue.commit(Vec::new(), Durability::Machine).unwrap();
        synced();
        world.drain();
        if kept {
            synced();
        }
        let inode = world.inode("f");
        world.cache.abandon();
        catalogue.crash();
        let world = open();
        assert_eq!((world.cache.status().orphaned, world.content("f")), (0, b"new".to_vec()));
        world.drain();
        assert_eq!((world.below("f"), world.inode("f"), world.state("f")), (b"new".to_vec(), inode, Residency::Clean));
        assert_eq!((world.anchor("f").mark().unwrap(), catalogue.len()), (None, 1));
        world.cache.shutdown();
    }
}

/// As the medium may still have the former file's record.
#[test]
fn what_was_published_and_evicted_or_removed_just_before_the_crash_is_no_orphan_after_it() {
    for removed in [false, true] {
        let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
        let world = again(dir.path(), &catalogue);
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"new");
        world.drain();
        let new = world.anchor("f");
        if removed {
            world.cache.removing(new.identity());
            std::fs::remove_file(world.path("f")).unwrap();
            world.cache.unlinked(new.identity());
        } else {
            world.cache.evict(new.identity()).unwrap();
        }
        drop(new);
        world.cache.abandon();
        catalogue.crash();
        let world = again(dir.path(), &catalogue);
        assert_eq!((world.cache.status().orphaned, world.cache.status().stuck.len()), (0, 0), "{removed}");
        world.drain();
        assert!(removed || world.content("f") == b"new");
        world.cache.shutdown();
    }
}

/// The store answered that the name could not be synced, and then lost it.
#[test]
fn a_crash_that_takes_a_name_back_leaves_the_former_file_and_the_data_in_the_burst_buffer() {
    for lost in [true, false] {
        let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
        let world = again(dir.path(), &catalogue);
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"new");
        let hidden = Arc::new(Mutex::new(None));
        let (seen, root) = (Arc::clone(&hidden), world.root.clone());
        world.store.at(move |step| match step {
            Step::Dressed(0) => {
                let mut all = std::fs::read_dir(&root)?.map(Result::unwrap);
                *seen.lock() = all.find(|entry| is_hidden(&entry.file_name())).map(|entry| entry.path());
                Ok(())
            }
            Step::Syncing | Step::SyncingInPlace => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        });
        assert_eq!(world.cache.drain_all(&mut |_| {}, &|| false).len(), 1);
        catalogue.commit(Vec::new(), Durability::Machine).unwrap();
        world.cache.abandon();
        catalogue.crash();
        if lost {
            std::fs::rename(world.path("f"), hidden.lock().take().unwrap()).unwrap();
            std::fs::write(world.path("f"), b"old").unwrap();
        }
        let world = again(dir.path(), &catalogue);
        let stuck = world.cache.drain_all(&mut |_| {}, &|| false);
        assert_eq!(world.hidden(), 0);
        if lost {
            assert_eq!((stuck.len(), stuck[0].orphaned, world.below("f")), (1, true, b"old".to_vec()));
            assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), b"new");
        } else {
            assert_eq!((stuck.len(), world.below("f"), world.state("f")), (0, b"new".to_vec(), Residency::Clean));
        }
        world.cache.shutdown();
    }
}
