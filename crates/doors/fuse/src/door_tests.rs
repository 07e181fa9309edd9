//! The door over a kernel that the test plays: what the real one does only in rare orders.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use agent::{Config, PolicyTable};
use config::Policy;
use file_cache::{FileCache, Residency, Settings};
use fuse_protocol::{BackingId, Filesystem, Session, Threads, Transport};
use global_store::posix::{Options, PosixStore};
use testkit::{PATIENCE, TempTree, wait_until};

use super::*;
use crate::nodes::ROOT;

/// A kernel that takes every backing file.
struct Obliging;

impl Transport for Obliging {
    fn receive(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn send(&self, _: &[IoSlice<'_>]) -> io::Result<()> {
        Ok(())
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> io::Result<BackingId> {
        Ok(BackingId(1))
    }

    fn backing_close(&self, _: BackingId) -> io::Result<()> {
        Ok(())
    }
}

fn with_door(test: impl FnOnce(&TempTree, &Arc<Door>)) {
    let tree = TempTree::new();
    tree.dir("data");
    let root = fs::File::open(tree.path("data")).unwrap().into();
    let store = PosixStore::new(root, Options::default()).unwrap();
    let cache = FileCache::open(Settings::new(tree.path("burst-buffer"), Arc::new(store.clone()), "test")).unwrap();
    let policies = PolicyTable::new(Policy { revalidate: Duration::ZERO, ..Policy::default() });
    let agent = Agent::new(Config { cache: cache.clone(), store, policies }).unwrap();
    let door = Arc::new(Door::new(Arc::new(agent), true));
    door.connect(Session::over(door.clone(), Arc::new(Obliging), Threads::default()).notifier());
    let offered = init_flags::PASSTHROUGH | init_flags::DIRECT_IO_ALLOW_MMAP;
    let kernel = KernelConfig { minor: 45, flags: offered, max_readahead: 0, can_passthrough: true };
    door.init(&kernel).unwrap();
    test(&tree, &door);
    door.destroy();
    cache.shutdown();
}

/// Larger than what is fetched within an open: it is served directly until it is whole.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 3 << 20]
}

#[test]
fn an_open_is_refused_once_at_most() {
    with_door(|tree, door| {
        let req = Request::detached(0, 0, 1);
        let look = || door.lookup(&req, ROOT, OsStr::new("file")).unwrap().node;
        let open = |node| door.open(&req, node, libc::O_RDONLY, false);
        let becomes_whole = |node, handle| {
            // The rest is fetched once something is read.
            door.read(&req, node, handle, 0, &mut [0; 4096]).unwrap();
            let known = door.node(node).unwrap();
            wait_until("the replica", PATIENCE, || door.agent.cache().state(known.node.identity()) == Residency::Clean);
        };
        fs::write(tree.path("data/file"), large(1)).unwrap();
        let first = look();
        let direct = open(first).unwrap();
        assert!(direct.backing.is_none(), "served directly while it is fetched");
        becomes_whole(first, direct.handle);
        door.release(&req, first, direct.handle, 0, None);
        assert_eq!(open(first).err(), Some(Errno::ESTALE), "a node that was direct cannot become passthrough");
        let second = look();
        let passed = open(second).unwrap();
        assert!(passed.backing.is_some());

        // A new version below. By another name the kernel still comes to the first node, and nothing is asked yet.
        fs::write(tree.path("data/file"), large(2)).unwrap();
        let direct = open(first).unwrap();
        assert!(direct.backing.is_none());
        becomes_whole(first, direct.handle);
        door.release(&req, first, direct.handle, 0, None);

        // Neither the first node fits now nor the second, which has the old version open: the kernel asks only twice.
        assert_eq!(open(first).err(), Some(Errno::ESTALE));
        let third = look();
        assert!(third != first && third != second);
        let opened = open(third).expect("the second open that the kernel tries");
        for (node, opened) in [(second, passed), (third, opened)] {
            door.release(&req, node, opened.handle, 0, None);
        }
    });
}
