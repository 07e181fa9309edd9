//! Stage-outs that give a file another's place (`publish = atomic`).

mod failures;
mod hooked;
mod others;
mod races;
mod world;

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;

use config::{Atime, Policy};
use data_store::{LocalIndex, OpenHow, Residency};
use models::{DataStoreExt, OpenDataExt};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, XattrFlags, getxattr, setxattr, utimensat};
use testkit::{PATIENCE, wait_until};
use types::Timestamp;

use crate::hooked::Step;
use crate::world::{How, MIB, World, how, pattern, scratch};

const ACCESS: &str = "system.posix_acl_access";

/// An access list that lets a user read, in the kernel's format.
fn acl(user: u32) -> Vec<u8> {
    let all = [(0x01, 6, u32::MAX), (0x02, 4, user), (0x04, 4, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in all {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(permissions));
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

#[test] // S53
fn a_published_file_appears_at_once_with_all_that_the_former_one_had() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    let (path, old, new) = (world.path("d/f"), pattern(1, 2 * MIB), pattern(2, 3 * MIB + 17));
    std::fs::write(&path, &old).unwrap();
    chown(&path, Some(1234), Some(4321)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2640)).unwrap();
    setxattr(&path, "user.colour", b"blue", XattrFlags::empty()).unwrap();
    setxattr(&path, ACCESS, &acl(4242), XattrFlags::empty()).unwrap();
    // New files get another access list from now on, and a file that nevertheless has none stays without.
    std::fs::write(world.path("d/plain"), b"old").unwrap();
    setxattr(world.path("d"), "system.posix_acl_default", &acl(4343), XattrFlags::empty()).unwrap();
    world.rewrite("d/plain", b"new");
    let (before, former) = (world.inode("d/f"), world.anchor("d/f"));
    let mut reader = std::fs::File::open(&path).unwrap();

    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time(77, 5), last_modification: time(0, UTIME_OMIT) };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    world.rewrite("d/f", &new);
    let mtime = world.cache.ahead(former.identity()).unwrap().mtime;
    assert_eq!(std::fs::metadata(&path).unwrap().len(), old.len() as u64, "nothing is below yet");
    world.drain();

    let stat = std::fs::metadata(&path).unwrap();
    assert_ne!(stat.ino(), before, "another file");
    assert!(std::fs::read(&path).unwrap() == new);
    let mut through_old = Vec::new();
    reader.read_to_end(&mut through_old).unwrap();
    assert!(through_old == old, "who had it open reads what it was");
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (1234, 4321, 0o2640));
    assert_eq!((stat.atime(), stat.atime_nsec()), (77, 5));
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (mtime.seconds, i64::from(mtime.nanos)));
    let mut value = [0; 64];
    assert_eq!(getxattr(&path, "user.colour", &mut value[..]), Ok(4));
    assert_eq!(getxattr(&path, ACCESS, &mut value[..]).map(|len| value[..len].to_vec()), Ok(acl(4242)));
    assert!(getxattr(world.path("d/plain"), ACCESS, &mut value[..]).is_err());
    assert_eq!((world.below("d/plain"), world.state("d/plain")), (b"new".to_vec(), Residency::Absent));
    assert_eq!((world.hidden(), world.cache.counters().removed, world.replicas()), (0, 0, 0));

    // Nothing is known of the new file, and it is a file like any other.
    assert!(world.content("d/f") == new);
    world.rewrite("d/f", b"and again");
    world.drain();
    assert_eq!((std::fs::read(&path).unwrap(), world.hidden(), world.replicas()), (b"and again".to_vec(), 0, 0));
    world.cache.shutdown();
}

#[test] // S53
fn what_has_two_names_or_is_in_use_when_a_command_wants_it_below_is_written_in_place() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    for name in ["linked", "open"] {
        std::fs::write(world.path(name), b"old").unwrap();
    }
    std::fs::hard_link(world.path("linked"), world.path("other")).unwrap();
    let inodes = [world.inode("linked"), world.inode("open")];
    for name in ["linked", "open"] {
        world.rewrite(name, b"newer");
    }
    let reader = world.open_file("open", false, false);
    world.drain();
    for name in ["linked", "other", "open"] {
        assert_eq!(std::fs::read(world.path(name)).unwrap(), b"newer");
    }
    assert_eq!([world.inode("linked"), world.inode("open")], inodes);
    drop(reader);
    world.cache.shutdown();
}

#[test] // S53
fn what_is_published_by_itself_waits_for_its_last_reader() {
    let dir = scratch();
    let world = World::open(dir.path(), How { background: true, ..How::default() });
    std::fs::write(world.path("f"), b"old").unwrap();
    let inode = world.inode("f");
    let reader = world.open_file("f", false, false);
    world.rewrite("f", b"new");
    // A file that nobody reads passes this step.
    std::fs::write(world.path("g"), b"").unwrap();
    world.rewrite("g", b"other");
    wait_until("the one that is not in use", PATIENCE, || std::fs::read(world.path("g")).unwrap() == b"other");
    assert_eq!((std::fs::read(world.path("f")).unwrap(), world.inode("f")), (b"old".to_vec(), inode));
    drop(reader);
    wait_until("the other", PATIENCE, || std::fs::read(world.path("f")).unwrap() == b"new");
    assert_ne!(world.inode("f"), inode);
    world.cache.shutdown();
}

#[test] // S53
fn a_change_below_is_a_conflict_here_too_and_nothing_hidden_stays() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    std::fs::write(world.path("f"), b"old").unwrap();
    world.open_file("f", true, false).write(b"ours", 0).unwrap();
    std::fs::write(world.path("f"), b"theirs, longer").unwrap();
    let stuck = world.cache.drain_all();
    assert_eq!((stuck.len(), stuck[0].state), (1, Residency::Conflict));
    assert_eq!((std::fs::read(world.path("f")).unwrap(), world.hidden()), (b"theirs, longer".to_vec(), 0));
    world.cache.shutdown();
}

#[test] // S53
fn when_a_file_was_read_comes_with_it_into_its_place() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    let path = world.path("f");
    std::fs::write(&path, b"old").unwrap();
    let inode = world.inode("f");
    let early = Timestamps {
        last_access: Timespec { tv_sec: 77, tv_nsec: 5 },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    utimensat(CWD, &path, &early, AtFlags::empty()).unwrap();
    let policy = Policy { atime: Atime::Strict, ..Policy::clone(&how(true, true).policy) };
    let strict = OpenHow { policy: Arc::new(policy), ..how(true, true) };
    let handle = world.cache.open_file(world.anchor("f"), strict).unwrap();
    handle.write(b"new", 0).unwrap();
    assert_eq!(handle.read_at(&mut [0; 3], 0).unwrap(), 3);
    drop(handle);
    assert_eq!(std::fs::metadata(&path).unwrap().atime(), 77, "it comes with the data");
    let read = world.cache.accessed(world.anchor("f").identity(), Timestamp { seconds: 77, nanos: 5 });
    assert!(read.seconds > 77);
    world.drain();
    let stat = std::fs::metadata(&path).unwrap();
    assert_ne!(stat.ino(), inode);
    assert_eq!((stat.atime(), stat.atime_nsec()), (read.seconds, i64::from(read.nanos)));
    world.cache.shutdown();
}

#[test] // S53
fn nothing_is_published_before_it_may_be_and_nothing_where_files_are_not_found_by_identity() {
    for (how, later) in
        [(How { held: true, ..How::default() }, true), (How { no_handles: true, ..How::default() }, false)]
    {
        let dir = scratch();
        let world = World::open(dir.path(), how);
        std::fs::write(world.path("f"), b"old").unwrap();
        let inode = world.inode("f");
        world.rewrite("f", b"new");
        world.drain();
        assert_eq!((world.below("f"), world.inode("f"), world.state("f")), (b"new".to_vec(), inode, Residency::Clean));
        world.cache.begin_publishing();
        world.rewrite("f", b"newer");
        world.drain();
        assert_eq!((world.below("f"), world.inode("f") != inode), (b"newer".to_vec(), later));
        world.cache.shutdown();
    }
}

#[test] // S53
fn what_is_pinned_or_cannot_be_given_to_another_file_is_written_in_place() {
    let dir = scratch();
    let world = World::open(dir.path(), How::default());
    for (name, pinned) in [("f", Some(Step::Begun)), ("g", Some(Step::Dressed(0))), ("h", None), ("i", None)] {
        std::fs::write(world.path(name), b"old").unwrap();
        let inode = world.inode(name);
        world.rewrite(name, b"new");
        let identity = world.anchor(name).identity().clone();
        if name == "i" {
            world.cache.pin(&identity, true).unwrap();
        }
        let (cache, pinned_one) = (world.cache.clone(), identity.clone());
        world.store.at(move |step| match step {
            step if Some(step) == pinned => cache.pin(&pinned_one, true),
            Step::Dressed(0) if pinned.is_none() => Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            _ => Ok(()),
        });
        world.drain();
        world.store.at(|_| Ok(()));
        assert_eq!((world.below(name), world.inode(name), world.hidden()), (b"new".to_vec(), inode, 0), "{name}");
        assert_eq!(world.state(name), Residency::Clean, "{name}");
        assert_eq!(world.cache.evict(&identity).is_err(), name != "h", "{name}");
    }
    world.cache.shutdown();
}
