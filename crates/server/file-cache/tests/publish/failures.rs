//! Stores without room, catalogues that fail, and crashes of the machine.

use models::{DataStoreExt, MemoryCatalogue};
use std::io;
use std::sync::Arc;
use types::HasErrno;

use catalogue::{Catalogue, Durability};

use crate::hooked::Step;
use crate::world::{How, World, how, scratch};

#[test] // S53
fn a_store_without_room_for_both_is_told_and_nobody_sees_a_part() {
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let dir = scratch();
        let world = World::changing(dir.path(), How::default(), b"new");
        let inode = world.inode("f");
        world.store.at(move |step| match step {
            Step::Dressed(0) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        });
        let stuck = world.cache.drain_all();
        assert_eq!((stuck.len(), stuck[0].errno), (1, errno));
        assert_eq!((world.below("f"), world.inode("f"), world.hidden()), (b"old".to_vec(), inode, 0));
        assert_eq!(world.content("f"), b"new");
        world.store.at(|_| Ok(()));
        world.drain();
        assert_eq!((world.below("f"), world.inode("f") != inode), (b"new".to_vec(), true));
        world.cache.shutdown();
    }
}

/// Opens a world again over the state that the former one left, including the catalogue.
fn again(dir: &std::path::Path, catalogue: &MemoryCatalogue) -> World {
    World::open_with(dir, How::default(), Some(Arc::new(catalogue.clone())))
}

#[test] // S53
fn a_record_that_cannot_be_written_publishes_nothing_and_loses_nothing() {
    for late in [false, true] {
        let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
        let world = again(dir.path(), &catalogue);
        std::fs::write(world.path("f"), b"old").unwrap();
        let inode = world.inode("f");
        world.rewrite("f", b"new");
        let failing = catalogue.clone();
        world.store.at(move |step| {
            if step == Step::Begun {
                if late { failing.fail_commits_late(0, 1) } else { failing.fail_commits(0, 1) }
            }
            Ok(())
        });
        let stuck = world.cache.drain_all();
        assert!(stuck.len() == 1 && stuck[0].reason.starts_with("the burst buffer: "), "{stuck:?}");
        assert_eq!((world.below("f"), world.inode("f"), world.hidden()), (b"old".to_vec(), inode, 0));
        world.store.at(|_| Ok(()));
        assert_eq!(world.content("f"), b"new");
        world.cache.abandon();
        let world = again(dir.path(), &catalogue);
        assert_eq!((world.cache.counters().orphaned, world.content("f")), (0, b"new".to_vec()), "{late}");
        world.drain();
        assert_eq!((world.below("f"), world.inode("f") != inode), (b"new".to_vec(), true));
        world.cache.shutdown();
    }
}

/// Changes after the rename reached the medium or did not, and likewise the replica.
#[test] // S53
fn a_crash_of_the_machine_after_a_publication_leaves_the_new_file_and_no_orphan() {
    for (removed, kept, lasts) in [false, true].into_iter().flat_map(|removed| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(kept, lasts)| (removed, kept, lasts))
    }) {
        let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
        let world = again(dir.path(), &catalogue);
        std::fs::write(world.path("f"), b"old").unwrap();
        world.rewrite("f", b"new");
        let synced = || catalogue.commit(Vec::new(), Durability::Machine).unwrap();
        synced();
        world.store.at(move |step| match step {
            Step::Syncing if !lasts => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        });
        assert_eq!(world.cache.drain_all().len(), usize::from(!lasts));
        if removed {
            std::fs::remove_file(world.path("f")).unwrap();
        }
        if kept {
            synced();
        }
        world.cache.abandon();
        catalogue.crash();
        let world = again(dir.path(), &catalogue);
        assert_eq!((world.cache.counters().orphaned, world.cache.counters().stuck.len()), (0, 0), "{removed} {kept}");
        world.drain();
        assert!(removed || world.content("f") == b"new");
        world.cache.shutdown();
        assert_eq!(catalogue.len(), usize::from(!removed), "{removed} {kept}");
    }
}

/// Later syncs of the store do not matter: they do not report the bytes that an earlier sync lost.
#[test] // S53
fn a_name_that_could_not_be_synced_is_told_and_its_data_kept_until_the_next_start() {
    let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
    let world = again(dir.path(), &catalogue);
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"new");
    let former = world.anchor("f");
    world.store.at(|step| match step {
        Step::Syncing => Err(io::Error::from_raw_os_error(libc::EIO)),
        _ => Ok(()),
    });
    let stuck = world.cache.drain_all();
    assert_eq!((stuck.len(), stuck[0].errno, stuck[0].path_hint.to_str()), (1, libc::EIO, Some("f")), "{stuck:?}");
    assert_eq!((world.below("f"), world.content("f"), world.hidden()), (b"new".to_vec(), b"new".to_vec(), 0));
    let refused = world.cache.open_file(former, how(false, false)).err().unwrap();
    assert_eq!(refused.errno(), Some(libc::ESTALE));
    world.store.at(|_| Ok(()));
    let stuck = world.cache.drain_all();
    assert_eq!((stuck.len(), stuck[0].orphaned, world.cache.counters().orphaned), (1, true, 1), "{stuck:?}");
    assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), b"new");
    world.cache.shutdown();
    let world = again(dir.path(), &catalogue);
    world.drain();
    assert_eq!((world.cache.counters().orphaned, world.below("f")), (0, b"new".to_vec()));
    world.cache.shutdown();
}

#[test] // S53
fn a_removal_that_is_under_way_when_a_publication_fails_is_known_after_a_death() {
    let (dir, catalogue) = (scratch(), MemoryCatalogue::new());
    let world = again(dir.path(), &catalogue);
    std::fs::write(world.path("f"), b"old").unwrap();
    world.rewrite("f", b"new");
    let (cache, identity) = (world.cache.clone(), world.anchor("f").identity().clone());
    world.store.at(move |step| match step {
        Step::Dressed(0) => {
            cache.removing(&identity);
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        _ => Ok(()),
    });
    assert_eq!(world.cache.drain_all().len(), 1);
    std::fs::remove_file(world.path("f")).unwrap();
    world.cache.abandon();
    let world = again(dir.path(), &catalogue);
    assert_eq!((world.cache.counters().orphaned, world.cache.counters().stuck.len()), (0, 0));
    world.drain();
    world.cache.shutdown();
}
