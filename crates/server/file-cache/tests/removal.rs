//! Removal of names and versions, also while the agent ends.

mod support;

use data_store::Residency;
use models::global::{Fault, StoreOperation};
use models::{DataStoreExt, OpenDataExt};
use support::{Mapping, World, kernel_write, read};

#[test] // S4
fn a_removed_file_that_a_program_maps_outlives_the_agent_and_the_sweep() {
    let mut world = World::new();
    let handle = world.create("f");
    kernel_write(&handle, b"data", 0);
    let mapping = Mapping::of(&handle);
    let identity = world.identity("f");
    world.cache.removing(&identity);
    world.store.unlink("f").unwrap();
    world.cache.unlinked(&identity);
    world.crash();
    world.cache.sweep().unwrap();
    assert_eq!(world.replicas(), 0);
    mapping.store(b'D');
    mapping.sync();
    assert_eq!(mapping.first(), b'D');
    world.drain();
    assert_eq!(world.store.read_identity(&identity).unwrap(), b"");
}

#[test] // S24
fn an_older_version_that_a_program_maps_outlives_the_agent_and_the_sweep() {
    let mut world = World::new();
    world.store.put("f", b"old");
    let reader = world.open("f", false);
    let mapping = Mapping::for_reading(&reader);
    world.store.put("f", b"new!");
    assert_eq!(read(&world.open("f", false), 10), b"new!");
    world.crash();
    world.cache.sweep().unwrap();
    assert_eq!(mapping.first(), b'o');
    assert_eq!(read(&world.open("f", false), 10), b"new!");
    assert_eq!(world.replicas(), 1);
}

#[test] // S27
fn an_agent_that_dies_while_it_removes_a_name_leaves_no_orphan() {
    for (names, happened) in [(1, true), (1, false), (2, true)] {
        let mut world = World::new();
        world.write_new("f", b"data");
        let identity = world.identity("f");
        world.cache.removing(&identity);
        if names == 2 {
            world.store.link("f", "g").unwrap();
        }
        if happened {
            world.store.unlink("f").unwrap();
        }
        world.crash();
        world.drain();
        let gone = names == 1 && happened;
        assert_eq!(world.store.read_identity(&identity).unwrap(), if gone { b"".as_slice() } else { b"data" });
        assert_eq!(world.replicas(), usize::from(!gone));
    }
}

#[test] // S27
fn a_store_that_does_not_answer_a_start_makes_no_orphans_of_removed_files() {
    for (synced, happened) in [(false, true), (true, true), (false, false), (true, false)] {
        let label = format!("synced {synced}, happened {happened}");
        let mut world = World::new();
        let handle = world.create("f");
        handle.write(b"data", 0).unwrap();
        if synced {
            handle.fsync().unwrap();
        }
        drop(handle);
        let identity = world.identity("f");
        world.cache.removing(&identity);
        if happened {
            world.store.unlink("f").unwrap();
        }
        let matching = |operation: &StoreOperation| *operation == StoreOperation::Locate;
        world.store.fail(Fault { matching, times: 2, errno: libc::ETIMEDOUT, ..Fault::default() });
        world.crash();
        assert_eq!(world.cache.residency(&identity), Residency::Queued, "{label}: it may be there");
        let stuck = world.cache.drain_all();
        assert_eq!(
            stuck.iter().map(|stuck| (stuck.errno, stuck.orphaned)).collect::<Vec<_>>(),
            [(libc::ETIMEDOUT, false)],
            "{label}"
        );
        world.drain();
        assert_eq!(
            world.cache.residency(&identity),
            if happened { Residency::Absent } else { Residency::Clean },
            "{label}"
        );
        assert_eq!(world.cache.counters().removed, u64::from(synced && happened), "{label}");
        assert_eq!(world.store.read_identity(&identity).unwrap(), if happened { b"".as_slice() } else { b"data" });
    }
}

#[test] // S27
fn a_name_that_was_not_removed_after_all_leaves_an_orphan_when_another_takes_it() {
    let mut world = World::new();
    world.write_new("f", b"data");
    let identity = world.identity("f");
    world.cache.removing(&identity);
    // The removal failed. The agent looks at the file again, and an outsider removes it later.
    world.cache.renamed(&*world.anchor("f"));
    world.store.unlink("f").unwrap();
    world.crash();
    let stuck = world.cache.drain_all();
    assert!(stuck.len() == 1 && stuck[0].orphaned, "{stuck:?}");
    assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), b"data");
}

#[test]
fn a_removal_that_a_crash_prevented_is_no_reason_to_drop_the_data_later() {
    let mut world = World::new();
    world.write_new("f", b"data");
    world.cache.removing(&world.identity("f"));
    world.crash();
    // The name still exists. An outsider removes it, and the agent dies again before it sees that.
    world.store.unlink("f").unwrap();
    world.crash();
    let stuck = world.cache.drain_all();
    assert!(stuck.len() == 1 && stuck[0].orphaned, "{stuck:?}");
    assert_eq!(std::fs::read(&stuck[0].replica).unwrap(), b"data");
}

#[test] // S30
fn what_takes_no_changes_is_asked_once_a_round_to_drop_what_is_over() {
    let world = World::new();
    for name in ["f", "g", "h"] {
        world.store.put(name, b"data");
        drop(world.open(name, false));
    }
    world.advance(3601);
    world.catalogue.fail_commits(0, u64::MAX);
    let before = world.catalogue.commits();
    (1..3).for_each(|_| world.cache.housekeep());
    assert_eq!((world.catalogue.commits() - before, world.replicas()), (2, 3));
    world.catalogue.fail_commits(u64::MAX, 0);
    world.cache.housekeep();
    assert_eq!(world.replicas(), 1, "those that nobody has tried");
    world.advance(61);
    world.cache.housekeep();
    assert_eq!(world.replicas(), 0);
}
