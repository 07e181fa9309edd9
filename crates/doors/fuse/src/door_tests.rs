//! The door over a simulated kernel, for orders of requests that a real kernel produces only rarely.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use agent::PolicyTable;
use config::{Policy, PolicySet};
use data_store::{Residency, StoreCommand};
use file_cache::{FileCache, Settings};
use fuse_protocol::{BackingId, Filesystem, Session, ThreadCounts, Transport};
use global_store::posix::{PosixStore, StoreOptions};
use models::DataStoreExt;
use parking_lot::Mutex;
use posix_namespace::PosixNamespace;
use testkit::{PATIENCE, TempTree, wait_until};

use super::*;
use crate::nodes::ROOT;

/// A kernel that accepts every backing file, under the next number.
#[derive(Default)]
struct Obliging {
    backing: Mutex<(i32, BTreeSet<i32>)>,
}

impl Obliging {
    fn registered(&self) -> Vec<i32> {
        self.backing.lock().1.iter().copied().collect()
    }
}

impl Transport for Obliging {
    fn receive(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn send(&self, _: &[IoSlice<'_>]) -> io::Result<()> {
        Ok(())
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> io::Result<BackingId> {
        let mut backing = self.backing.lock();
        backing.0 += 1;
        let id = backing.0;
        backing.1.insert(id);
        Ok(BackingId(id))
    }

    fn backing_close(&self, id: BackingId) -> io::Result<()> {
        assert!(self.backing.lock().1.remove(&id.0), "{id:?} is closed twice");
        Ok(())
    }
}

fn with_door(test: impl FnOnce(&TempTree, &Arc<Door>, &Obliging)) {
    let tree = TempTree::new();
    tree.dir("data");
    let root = fs::File::open(tree.path("data")).unwrap().into();
    let store = PosixStore::new(root, StoreOptions::default()).unwrap();
    let cache = FileCache::open(Settings::new(tree.path("burst-buffer"), Arc::new(store.clone()), "test")).unwrap();
    let policies = PolicyTable::new(Policy { revalidate: Duration::ZERO, ..Policy::default() });
    let agent = Agent::new(Arc::new(cache.clone()), Arc::new(PosixNamespace::new(store).unwrap()), policies).unwrap();
    let door = Arc::new(Door::new(Arc::new(agent), true));
    let kernel_side = Arc::new(Obliging::default());
    door.connect(Session::over(door.clone(), kernel_side.clone(), ThreadCounts::default()).notifier());
    let offered = init_flags::PASSTHROUGH | init_flags::DIRECT_IO_ALLOW_MMAP;
    let kernel = KernelConfig { minor: 45, flags: offered, max_readahead: 0, can_passthrough: true };
    door.init(&kernel).unwrap();
    test(&tree, &door, &kernel_side);
    door.destroy();
    cache.shutdown();
}

/// Content larger than an open fetches at once, so that the file is served directly until its replica is complete.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 3 << 20]
}

#[test]
fn an_open_is_refused_once_at_most() {
    with_door(|tree, door, _| {
        let req = Request::detached(0, 0, 1);
        let look = || door.lookup(&req, ROOT, OsStr::new("file")).unwrap().node;
        let open = |node| door.open(&req, node, libc::O_RDONLY, false);
        let becomes_whole = |node, handle| {
            // A read makes the agent fetch the rest.
            door.read(&req, node, handle, 0, &mut [0; 4096]).unwrap();
            let known = door.node(node).unwrap();
            wait_until("the replica", PATIENCE, || {
                door.agent.data().state(known.node.identity()).residency == Residency::Clean
            });
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

        // A new version below. By another name the kernel still reaches the first node without a lookup.
        fs::write(tree.path("data/file"), large(2)).unwrap();
        let direct = open(first).unwrap();
        assert!(direct.backing.is_none());
        becomes_whole(first, direct.handle);
        door.release(&req, first, direct.handle, 0, None);

        // Now neither the first node fits nor the second, which has the old version open. The kernel looks up only
        // twice.
        assert_eq!(open(first).err(), Some(Errno::ESTALE));
        let third = look();
        assert!(third != first && third != second);
        let opened = open(third).expect("the second open that the kernel tries");
        for (node, opened) in [(second, passed), (third, opened)] {
            door.release(&req, node, opened.handle, 0, None);
        }
    });
}

#[test]
fn a_registration_outlives_the_last_close_and_not_its_replica() {
    with_door(|tree, door, kernel| {
        let req = Request::detached(0, 0, 1);
        let close = |node, opened: OpenReply| door.release(&req, node, opened.handle, 0, None);
        let look = |name: &str| door.lookup(&req, ROOT, OsStr::new(name)).unwrap().node;
        let open = |node| door.open(&req, node, libc::O_RDONLY, false).unwrap();
        fs::write(tree.path("data/file"), "small").unwrap();
        let node = look("file");
        let first = open(node);
        let id = first.backing.expect("a small file is whole at once").0;
        let second = open(node);
        close(node, first);
        assert_eq!(second.backing, Some(BackingId(id)));
        close(node, second);
        assert_eq!(kernel.registered(), [id], "left");
        // The registration also serves the node's next number, after the kernel forgot the first.
        door.forget(node, 1);
        let node = look("file");
        let third = open(node);
        assert_eq!((third.backing, kernel.registered()), (Some(BackingId(id)), vec![id]));
        close(node, third);
        // A registration with another access-time mode than the rule's is not used again.
        let rule = PolicySet::parse(["atime=strict"]).unwrap();
        door.agent.policies().set("".as_ref(), &rule).unwrap();
        let noting = open(node);
        assert!(noting.backing != Some(BackingId(id)) && kernel.registered() == [noting.backing.unwrap().0]);
        close(node, noting);
        door.agent.policies().unset("".as_ref(), &[]).unwrap();
        let identity = door.node(node).unwrap().node.identity().clone();
        door.agent.data().command(StoreCommand::Evict(&identity)).unwrap();
        assert!(kernel.registered().is_empty(), "the replica is gone");

        // A new version has its own registration. The old version's ends with the last close.
        let old = open(node);
        fs::write(tree.path("data/file"), "another").unwrap();
        let newer = look("file");
        let opened = door.open(&req, newer, libc::O_RDONLY, false);
        let (newer, opened) = match opened {
            Ok(opened) => (newer, opened),
            Err(_) => {
                let newest = look("file");
                (newest, open(newest))
            }
        };
        assert_ne!(opened.backing, old.backing);
        assert_eq!(kernel.registered().len(), 2);
        close(node, old);
        assert_eq!(kernel.registered(), [opened.backing.unwrap().0]);
        close(newer, opened);
        let all = door.registrations().unwrap();
        all.expire(Duration::from_secs(60));
        assert_eq!(kernel.registered().len(), 1);
        all.expire(Duration::ZERO);
        assert!(kernel.registered().is_empty());
    });
}
