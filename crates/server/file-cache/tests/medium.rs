//! A burst buffer whose medium does not take what was written: an ext4 whose device has no room behind it.

mod support;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use file_cache::Residency;
use support::{World, without_room};
use testkit::TempTree;

const BYTES: usize = 1 << 20;

/// A cache whose burst buffer is on such a device, with the files `a` and `b` on it, which may be staged out together.
struct Failing {
    tree: TempTree,
    disk: PathBuf,
    world: World,
}

impl Failing {
    fn new() -> Option<Failing> {
        let tree = TempTree::new();
        let Some(disk) = without_room(&tree) else {
            eprintln!("skipped: it takes a loop device and mkfs.ext4");
            return None;
        };
        let world = World::with(|settings| settings.burst_buffer = disk.join("place"));
        for name in ["a", "b"] {
            world.write_new(name, b"first");
        }
        // From here on nothing but data needs new room.
        sync(&disk).unwrap();
        Some(Failing { tree, disk, world })
    }

    fn fill(&self) {
        let filled = std::fs::write(self.tree.path("small/filler"), vec![1; 24 << 20]);
        assert!(filled.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC)));
    }

    fn stuck(&self) -> Vec<(PathBuf, i32)> {
        let stuck = self.world.cache.drain_all(&mut |_| {}, &|| false);
        stuck.into_iter().map(|stuck| (stuck.path_hint, stuck.errno)).collect()
    }

    fn end(self) {
        let Failing { tree, disk, world } = self;
        world.cache.shutdown();
        drop(world);
        rustix::mount::unmount(&disk, rustix::mount::UnmountFlags::DETACH).unwrap();
        drop(tree);
    }
}

fn sync(disk: &Path) -> rustix::io::Result<()> {
    rustix::fs::syncfs(std::fs::File::open(disk).unwrap().as_fd())
}

#[test]
fn a_replica_that_its_medium_did_not_take_is_not_called_clean_whoever_else_heard_of_it() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        failing.fill();
        let data = vec![7; BYTES];
        failing.world.open("a", true).write_at(&data, 0, false).unwrap();
        assert!(sync(&failing.disk).is_err(), "somebody else is told");
        sync(&failing.disk).expect("and nobody after him");
        assert_eq!(failing.stuck(), [("a".into(), libc::ENOSPC)]);
        assert_eq!(failing.world.state("b"), Residency::Clean, "the others of the batch go on");
        assert_eq!(failing.stuck(), [], "what is in memory is all that is left");
        assert_eq!(failing.world.store.read("a").unwrap(), data);
        assert_eq!(failing.world.state("a"), Residency::Absent, "nobody reads what the medium has instead");
        failing.end();
    });
}

#[test]
fn an_end_is_not_orderly_if_the_medium_lacks_something_whoever_else_heard_of_it() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        failing.fill();
        failing.world.store.put("staged in", &vec![7; BYTES]);
        drop(failing.world.open("staged in", false));
        assert!(sync(&failing.disk).is_err(), "somebody else is told");
        failing.world.cache.shutdown();
        let page = std::fs::read_to_string(failing.disk.join("place/superblock")).unwrap();
        assert!(page.contains("\"settled\": false"), "replicas would be trusted after a crash of the machine: {page}");
        failing.end();
    });
}

#[test]
fn each_of_two_that_have_a_file_open_hears_that_what_they_synced_is_not_on_the_medium() {
    testkit::in_private_namespace(|| {
        let Some(failing) = Failing::new() else { return };
        let (one, other) = (failing.world.open("a", true), failing.world.open("a", true));
        [&one, &other].iter().for_each(|handle| handle.sync(false).unwrap());
        failing.fill();
        one.write_at(&vec![7; BYTES], 0, false).unwrap();
        for data_only in [false, true] {
            let syncs = [&one, &other].map(|handle| handle.sync(data_only).is_err());
            assert_eq!(syncs, [true, true], "no sync brings it there");
        }
        failing.world.open("b", true).sync(false).expect("that is no other file's concern");
        drop((one, other));
        assert!(sync(&failing.disk).is_err(), "it would fail the whole batch");
        assert_eq!(failing.stuck(), [("a".into(), libc::ENOSPC)]);
        assert_eq!(failing.stuck(), []);
        assert_eq!(failing.world.store.read("a").unwrap(), vec![7; BYTES]);
        std::fs::remove_file(failing.tree.path("small/filler")).unwrap();
        failing.world.open("a", true).sync(false).expect("that is another replica");
        failing.end();
    });
}
