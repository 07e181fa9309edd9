//! POSIX ACLs of a delegated tree are those of a mounted file system.

mod story;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use global_store::posix::{PosixStore, StoreOptions};
use namespace::{Attributes, Caller, Inode, Mode, NewFile, NewMode, NewName, set_groups_of_callers};
use posix_namespace::PosixNamespace;
use rustix::fs::FileType;
use story::below::{Below, seen_of};
use story::medium::Medium;
use story::{ALICE, BOB, ROOT, World, errno, open};
use testkit::{Random, TempTree};

const CAROL: Caller = Caller { uid: 1002, gid: 1002, pid: 0 };
const TEAM: u32 = 2000;
const NAMES: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];

/// Returns the value of an ACL that is valid more often than not.
fn acl(random: &mut Random) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, bits: u64, id: u32| {
        value.extend(tag.to_le_bytes());
        value.extend((bits as u16).to_le_bytes());
        value.extend(id.to_le_bytes());
    };
    let (users, groups) = (random.below(3), random.below(3));
    entry(1, random.below(8), u32::MAX);
    (0..users).for_each(|user| entry(2, random.below(8), 1000 + random.below(3) as u32 + user as u32));
    entry(4, random.below(8), 7);
    (0..groups).for_each(|_| entry(8, random.below(8), [TEAM, 1000, 1001][random.below(3) as usize]));
    if users + groups > 0 || random.below(2) == 0 {
        entry(16, random.below(8), u32::MAX);
    }
    if random.below(12) > 0 {
        entry(32, random.below(8), u32::MAX);
    }
    value
}

/// One call in both worlds. Returns what came of it.
fn call(world: &dyn World, met: &[Inode], random: &mut Random, step: u64) -> (i32, Option<Inode>) {
    let caller = &[ROOT, ALICE, BOB, CAROL][random.below(4) as usize];
    let groups: &[u32] = if random.below(2) == 0 { &[TEAM] } else { &[] };
    set_groups_of_callers(Some(groups.into()));
    let (one, two) = (&met[random.below(met.len() as u64) as usize], &met[random.below(met.len() as u64) as usize]);
    let mode = NewMode {
        mode: [0o777, 0o666, 0o640, 0o2755][random.below(4) as usize],
        umask: [0o022, 0o077][random.below(2) as usize],
    };
    let (name, which, value) = (format!("{step}"), NAMES[random.below(2) as usize], acl(random));
    let kind = random.below(9);
    let flags = random.below(3) as u32;
    let wanted = Mode { read: flags != 1, write: flags > 0, ..Mode::default() };
    let result = match kind {
        0 | 1 => world.set_xattr(caller, one, which, &value, flags),
        2 => world.remove_xattr(caller, one, which),
        3 => world.set_mode(caller, one, mode.mode | (u32::from(flags == 0) * 0o2000)),
        4 => world.set_owner(caller, one, None, Some(TEAM)),
        5 if one.kind() == FileType::RegularFile => world.check_open(caller, one, wanted),
        6 => world.make(caller, two, name.as_ref(), NewName::Directory(mode)),
        7 => world.create(caller, two, NewFile { name: Some(name.as_ref()), mode, exclusive: true }).map(drop),
        _ => world.make(caller, two, name.as_ref(), NewName::Symlink("target".as_ref())),
    };
    let found = world.lookup(two, name.as_ref()).ok();
    set_groups_of_callers(None);
    (errno(result), found.map(|found| found.inode))
}

fn seen(world: &dyn World, inode: &Inode) -> String {
    let attributes = world.attributes(inode).unwrap();
    let acls = NAMES.map(|name| world.xattr(inode, name).ok());
    format!("{:o} of {}:{} {acls:?}", attributes.mode, attributes.uid, attributes.gid)
}

#[test] // S1
fn random_acls_are_kept_and_judged_as_below() {
    let mut errors = BTreeSet::new();
    for seed in 0..40 {
        let tree = TempTree::new();
        let below = tree.dir("below");
        std::fs::set_permissions(&below, PermissionsExt::from_mode(0o777)).unwrap();
        let root: OwnedFd = File::open(&below).unwrap().into();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let posix = PosixNamespace::new(store).unwrap();
        if !posix.keeps_acls() {
            eprintln!("not tested: the file system of the tests has no ACLs");
            return;
        }
        let medium = Medium::default();
        let delegated = open(medium.clone(), 1 << 20);
        let applied = Below::new(&tree.path("applied"));
        let worlds: [&dyn World; 2] = [&delegated, &posix];
        let mut met = worlds.map(|world| vec![world.root().unwrap()]);
        let mut random = Random(seed);
        for step in 0..150 {
            let mut other = Random(random.0);
            let place = format!("seed {seed}, step {step}");
            let (ours, found) = call(worlds[0], &met[0], &mut random, step);
            let (theirs, also) = call(worlds[1], &met[1], &mut other, step);
            assert_eq!((ours, found.is_some()), (theirs, also.is_some()), "{place}");
            errors.insert(ours);
            if let (Some(found), Some(also)) = (found, also) {
                met[0].push(found);
                met[1].push(also);
            }
            if step % 40 == 20 {
                assert_eq!(applied.apply(&delegated).stuck, [], "{place}");
            }
            for (ours, theirs) in met[0].iter().zip(&met[1]) {
                assert_eq!(seen(worlds[0], ours), seen(worlds[1], theirs), "{place}");
            }
        }
        assert_eq!(applied.apply(&delegated).stuck, [], "seed {seed}");
        assert_eq!(seen_of(&delegated), applied.seen(), "seed {seed}");
        let again = open(Medium::of_files(medium.files()), 1 << 20);
        assert_eq!(story::snapshot(&again), story::snapshot(&delegated));
    }
    let expected = [libc::EACCES, libc::EPERM, libc::EINVAL, libc::EOPNOTSUPP];
    assert!(expected.iter().all(|errno| errors.contains(errno)), "the stories met only {errors:?}");
}
