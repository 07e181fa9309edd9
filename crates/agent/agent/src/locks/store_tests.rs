//! Tests of two agents over one directory: their locks in the store exclude each other's owners.

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;

use global_store::posix::StoreOptions;
use namespace::Names;
use posix_namespace::PosixNamespace;
use testkit::{PATIENCE, wait_until};

use super::*;
use crate::locks::owner;

struct World {
    _directory: tempfile::TempDir,
    store: PosixStore,
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let root: OwnedFd = std::fs::File::open(directory.path()).unwrap().into();
        World { _directory: directory, store: PosixStore::new(root, StoreOptions::default()).unwrap() }
    }

    fn node(&self) -> Arc<Node> {
        let names = PosixNamespace::new(self.store.clone()).unwrap();
        let root = names.root().unwrap();
        Arc::new(Node::new(names.lookup(&root, "file".as_ref()).unwrap().inode))
    }

    fn agent(&self) -> Arc<StoreLocks> {
        StoreLocks::new(self.store.clone())
    }
}

fn range(start: u64, end: u64, kind: LockKind, number: u64, handle: u64) -> LockRequest {
    LockRequest::range(start, end, kind, owner(0, number), 0, handle)
}

#[test] // S68
fn owners_of_two_agents_exclude_each_other_until_the_range_the_handle_or_the_client_is_released() {
    let (world, end) = (World::new(), u64::MAX);
    let (one, two, node) = (world.agent(), world.agent(), world.node());
    let exclusive = |start, stop, number, handle| range(start, stop, LockKind::Exclusive, number, handle);
    one.try_take(&node, &exclusive(0, 99, 1, 7)).unwrap();
    assert_eq!(two.try_take(&node, &exclusive(50, 60, 1, 7)), Err(Errno::AGAIN), "the same number at another agent");
    assert_eq!(
        two.conflict(&node, &exclusive(50, 60, 1, 7).range).unwrap().map(|held| (held.start, held.end)),
        Some((0, 99))
    );
    one.release(node.identity(), owner(0, 1), 50, end);
    two.try_take(&node, &exclusive(50, end, 1, 7)).unwrap();
    assert_eq!(one.try_take(&node, &exclusive(0, end, 1, 7)), Err(Errno::AGAIN));
    assert_eq!(
        one.ranges(node.identity(), owner(0, 1)).iter().map(|held| (held.start, held.end)).collect::<Vec<_>>(),
        [(0, 49)]
    );
    two.release_handle(node.identity(), 7);
    one.try_take(&node, &exclusive(0, end, 1, 7)).unwrap();
    one.release_client(0);
    two.try_take(&node, &exclusive(0, end, 1, 7)).unwrap();
    assert_eq!(one.try_take(&node, &exclusive(0, 1, 1, 7)), Err(Errno::NOLCK), "its client is gone");
}

#[test] // S68
fn a_flock_excludes_between_agents_and_is_kept_apart_from_ranges() {
    let world = World::new();
    let (one, two, node) = (world.agent(), world.agent(), world.node());
    let flock = |kind| LockRequest::flock(kind, owner(0, 3), 0, 9);
    one.try_take(&node, &flock(LockKind::Shared)).unwrap();
    two.try_take(&node, &flock(LockKind::Shared)).unwrap();
    two.try_take(&node, &range(0, 9, LockKind::Exclusive, 3, 9)).unwrap();
    assert_eq!(one.try_take(&node, &flock(LockKind::Exclusive)), Err(Errno::AGAIN));
    two.release_flock(node.identity(), owner(0, 3));
    one.try_take(&node, &flock(LockKind::Exclusive)).unwrap();
}

#[test] // S68
fn a_lock_that_is_waited_for_comes_when_another_agent_releases_it_or_ends_by_an_interrupt() {
    let world = World::new();
    let (one, two, node) = (world.agent(), world.agent(), world.node());
    let all = |number| range(0, u64::MAX, LockKind::Exclusive, number, 5);
    one.try_take(&node, &all(1)).unwrap();
    let wait = |number, cancelled: &Arc<AtomicBool>| {
        let (send, receive) = channel();
        let done = Box::new(move |outcome| _ = send.send(outcome));
        two.take(Arc::clone(&node), all(number), Arc::clone(cancelled), done);
        receive
    };
    let (never, soon) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (first, second) = (wait(1, &never), wait(2, &soon));
    soon.store(true, Ordering::SeqCst);
    two.end_cancelled();
    assert_eq!(second.recv_timeout(PATIENCE), Ok(Err(Errno::INTR)));
    assert!(first.try_recv().is_err());
    one.release(node.identity(), owner(0, 1), 0, u64::MAX);
    assert_eq!(first.recv_timeout(PATIENCE), Ok(Ok(())));
    wait_until("nobody is served any more", PATIENCE, || !two.waiters.lock().served);
    assert_eq!(one.try_take(&node, &all(1)), Err(Errno::AGAIN));
}
