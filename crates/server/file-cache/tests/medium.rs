//! A burst buffer whose medium loses written bytes: an ext4 whose device has no room behind it.

mod support;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use types::HasErrno;

use config::Policy;
use data_store::{Keep, Residency, SyncScope};
use models::global::StoreOperation;
use models::{DataStoreExt, OpenDataExt};
use support::{World, without_room};
use testkit::{Disk, TempTree};

const BYTES: usize = 1 << 20;

/// Makes a cache whose burst buffer is on such a device, with the files `a` and `b` on it, which may be staged out
/// together.
struct Failing {
    world: World,
    disk: Disk,
    tree: TempTree,
}

impl Failing {
    fn new() -> Option<Failing> {
        let tree = TempTree::new();
        let disk = without_room(&tree)?;
        let world = World::with(|settings| settings.burst_buffer = disk.place().join("place"));
        for name in ["a", "b"] {
            world.write_new(name, b"first");
        }
        // From here on only data needs new room.
        sync(&disk).unwrap();
        Some(Failing { world, disk, tree })
    }

    fn fill(&self) {
        let filled = std::fs::write(self.tree.path("small/filler"), vec![1; 24 << 20]);
        assert!(filled.is_err_and(|error| error.errno() == Some(libc::ENOSPC)));
    }

    fn stuck(&self) -> Vec<(PathBuf, i32)> {
        let stuck = self.world.cache.drain_all();
        stuck.into_iter().map(|stuck| (stuck.path_hint, stuck.errno)).collect()
    }

    /// Drops pages from memory that were written back, or could not be.
    fn forget_pages(&self) {
        let parts = std::fs::read_dir(self.disk.place().join("place/replicas")).unwrap();
        let files = parts.flat_map(|part| std::fs::read_dir(part.unwrap().path()).unwrap());
        for file in files {
            let open = std::fs::File::open(file.unwrap().path()).unwrap();
            rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }

    fn try_write(&self, path: &str) -> std::io::Result<()> {
        let opened = self.world.cache.open_file(self.world.anchor(path), self.world.how(true));
        opened.and_then(|handle| handle.write(b"changed", 0)).map(drop)
    }

    fn end(self) {
        self.world.cache.shutdown();
    }
}

fn sync(disk: &Disk) -> rustix::io::Result<()> {
    rustix::fs::syncfs(std::fs::File::open(disk.place()).unwrap().as_fd())
}

/// Otherwise a crash between the two would leave data of a file that has no name.
#[test] // S15
fn a_sync_makes_the_name_durable_before_the_data() {
    let Some(failing) = Failing::new() else { return };
    let new = failing.world.create("new");
    new.write(&vec![2; BYTES], 0).unwrap();
    failing.fill();
    assert!(!new.sync(SyncScope::IfKept).unwrap(), "its name is not durable yet");
    assert!(new.fsync().is_err(), "the medium took what it has no room for");
    assert!(!new.sync(SyncScope::IfKept).unwrap(), "it is to be told whoever asks");
    assert!(failing.world.store.journal().iter().any(|event| event.operation == StoreOperation::SyncName));
}

#[test] // S17
fn a_replica_that_its_medium_did_not_take_is_not_called_clean_whoever_else_heard_of_it() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        failing.fill();
        let data = vec![7; BYTES];
        failing.world.open("a", true).write(&data, 0).unwrap();
        assert!(sync(&failing.disk).is_err(), "somebody else is told");
        sync(&failing.disk).expect("and nobody after him");
        assert_eq!(failing.stuck(), [("a".into(), libc::ESTALE)]);
        assert_eq!(failing.world.state("a"), Residency::Conflict, "nobody knows whether that was all");
        assert_eq!(failing.world.state("b"), Residency::Clean, "the others of the batch go on");
        assert_eq!(failing.world.store.read("a").unwrap(), data, "what there was is copied, for nothing was below");
        failing.world.cache.resolve(&failing.world.identity("a"), Keep::BurstBuffer).unwrap();
        assert_eq!(failing.stuck(), []);
        assert_eq!(failing.world.state("a"), Residency::Absent, "nobody reads what the medium has instead");
        failing.end();
    });
}

#[test] // S17
fn what_is_below_is_not_replaced_by_what_the_medium_left_of_a_replica() {
    testkit::in_private_namespace(|| {
        for batch in [false, true] {
            let Some(mut failing) = Failing::new() else { return };
            failing.world.drain();
            if batch {
                failing.world.open("b", true).write(b"again", 0).unwrap();
            }
            failing.world.open("a", true).write(b"f", 0).unwrap();
            sync(&failing.disk).unwrap();
            failing.fill();
            failing.world.open("a", true).write(&vec![7; BYTES], 0).unwrap();
            assert!(sync(&failing.disk).is_err(), "somebody else is told");
            // The memory is needed for something else.
            failing.forget_pages();
            for _ in 0..2 {
                assert_eq!(failing.stuck(), [("a".into(), libc::ESTALE)], "batch {batch}");
                assert_eq!(failing.world.store.read("a").unwrap(), b"first", "batch {batch}");
            }
            std::fs::remove_file(failing.tree.path("small/filler")).unwrap();
            failing.world.crash();
            assert_eq!(failing.world.state("a"), Residency::Conflict, "also after a restart");
            failing.world.cache.resolve(&failing.world.identity("a"), Keep::Global).unwrap();
            assert_eq!(failing.stuck(), []);
            failing.end();
        }
    });
}

#[test] // S17
fn a_clean_replica_that_its_medium_did_not_take_is_copied_again() {
    testkit::in_private_namespace(|| {
        for in_use in [false, true] {
            let Some(mut failing) = Failing::new() else { return };
            failing.world.policy = Arc::new(Policy { revalidate: Duration::from_secs(3600), ..Policy::default() });
            failing.world.store.put("staged in", &vec![7; BYTES]);
            failing.fill();
            let reader = failing.world.open("staged in", false);
            failing.world.cache.pin(&failing.world.identity("staged in"), true).unwrap();
            assert!(failing.try_write("staged in").is_err(), "it cannot be on the medium before");
            failing.forget_pages();
            assert_ne!(support::read(&reader, BYTES), vec![7; BYTES], "the test is worth nothing");
            if in_use {
                let newer = failing.world.open("staged in", false);
                assert_eq!(support::read(&newer, BYTES), vec![7; BYTES], "readers that were there keep theirs");
            } else {
                drop(reader);
                assert_eq!(failing.world.state("staged in"), Residency::Absent, "pinned or not");
            }
            std::fs::remove_file(failing.tree.path("small/filler")).unwrap();
            assert_eq!(support::read(&failing.world.open("staged in", false), BYTES), vec![7; BYTES]);
            failing.try_write("staged in").expect("it is another replica");
            failing.end();
        }
    });
}

#[test] // S17
fn an_end_is_not_orderly_if_the_medium_lacks_something_whoever_else_heard_of_it() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        failing.fill();
        failing.world.store.put("staged in", &vec![7; BYTES]);
        drop(failing.world.open("staged in", false));
        assert!(sync(&failing.disk).is_err(), "somebody else is told");
        failing.world.cache.shutdown();
        let page = std::fs::read_to_string(failing.disk.place().join("place/superblock")).unwrap();
        assert!(page.contains("\"settled\": false"), "replicas would be trusted after a crash of the machine: {page}");
        failing.end();
    });
}

#[test] // S17
fn each_of_two_that_have_a_file_open_hears_that_what_they_synced_is_not_on_the_medium() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        let (one, other) = (failing.world.open("a", true), failing.world.open("a", true));
        [&one, &other].iter().for_each(|handle| handle.fsync().unwrap());
        failing.fill();
        one.write(&vec![7; BYTES], 0).unwrap();
        for scope in [SyncScope::All, SyncScope::Data] {
            let syncs = [&one, &other].map(|handle| handle.sync(scope).is_err());
            assert_eq!(syncs, [true, true], "no sync brings it there");
        }
        failing.world.open("b", true).fsync().expect("that is no other file's concern");
        drop((one, other));
        assert_eq!(failing.stuck(), [("a".into(), libc::ESTALE)]);
        assert_eq!(failing.world.state("b"), Residency::Clean, "it was in the batch");
        failing.world.cache.resolve(&failing.world.identity("a"), Keep::BurstBuffer).unwrap();
        assert_eq!(failing.stuck(), []);
        assert_eq!(failing.world.store.read("a").unwrap(), vec![7; BYTES]);
        std::fs::remove_file(failing.tree.path("small/filler")).unwrap();
        failing.world.open("a", true).fsync().expect("that is another replica");
        failing.end();
    });
}

#[test] // S25
fn a_conflict_does_not_end_before_what_is_saved_of_it_is_on_the_medium() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        failing.world.drain();
        failing.fill();
        failing.world.open("a", true).write(&vec![7; BYTES], 0).unwrap();
        failing.world.store.put("a", b"theirs");
        assert_eq!(failing.stuck(), [("a".into(), libc::ESTALE)]);
        let resolve = || failing.world.cache.resolve(&failing.world.identity("a"), Keep::Both);
        resolve().expect_err("what is saved would go with a crash, and nothing else has it");
        assert_eq!(failing.world.state("a"), Residency::Conflict);
        let stuck = failing.world.cache.counters().stuck;
        assert!(stuck[0].reason.contains("medium did not take all"), "{stuck:?}");
        let saved = resolve().expect("who was told that wants what there is").unwrap();
        assert_eq!(std::fs::read(saved).unwrap(), vec![7; BYTES], "it is in memory still");
        assert_eq!(failing.world.state("a"), Residency::Absent);
        failing.end();
    });
}
