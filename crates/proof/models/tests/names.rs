//! Names and attributes over the global store and in memory: equal stories end the same way in both.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use global_store::posix::{PosixStore, StoreOptions};
use models::MemoryNamespace;
use namespace::{
    Attributes, Caller, Inode, KnownSince, Mode, NameKind, Names, Namespace, NewFile, NewMode, NewName,
    set_groups_of_callers,
};
use posix_namespace::PosixNamespace;
use rustix::fs::{FileType, RenameFlags};
use testkit::{Random, TempTree};
use types::{NewTime, Timestamp};

const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0 };
const ALICE: Caller = Caller { uid: 1000, gid: 1000, pid: 0 };
const BOB: Caller = Caller { uid: 1001, gid: 1001, pid: 0 };
/// Group of alice, but not her first.
const TEAM: u32 = 2000;

/// Returns an empty namespace of each kind, in which everybody may create files.
fn both(tree: &TempTree) -> [Box<dyn Namespace>; 2] {
    let below = tree.dir("below");
    std::fs::set_permissions(&below, PermissionsExt::from_mode(0o777)).unwrap();
    let root: OwnedFd = File::open(&below).unwrap().into();
    let store = PosixStore::new(root, StoreOptions::default()).unwrap();
    let memory = MemoryNamespace::new(0, 0);
    memory.set_mode(&ROOT, &memory.root().unwrap(), 0o777).unwrap();
    [Box::new(PosixNamespace::new(store).unwrap()), Box::new(memory)]
}

fn in_both(story: impl Fn(&dyn Namespace)) {
    let tree = TempTree::new();
    both(&tree).iter().for_each(|namespace| story(&**namespace));
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().expect("a number"))
}

fn mode(mode: u32) -> NewMode {
    NewMode { mode, umask: 0o022 }
}

fn names_of(namespace: &dyn Namespace, caller: &Caller, directory: &Inode) -> io::Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    namespace.open_directory(caller, directory)?.read(0, &mut |entry| names.insert(entry.name.clone()))?;
    Ok(names)
}

#[test]
fn a_file_keeps_its_identity_and_attributes_while_its_names_change() {
    in_both(|namespace| {
        let root = namespace.root().unwrap();
        let new = |name| NewFile { name: Some(OsStr::new(name)), mode: mode(0o666), exclusive: true };
        let (found, anchor) = namespace.create(&ALICE, &root, new("a")).unwrap();
        assert_eq!((found.attributes.mode, found.attributes.uid), (libc::S_IFREG | 0o644, ALICE.uid));
        assert!(namespace.identify(&found.inode, &|_| true).unwrap());
        assert_eq!(anchor.identity(), found.inode.identity());
        assert_eq!(errno(namespace.create(&ALICE, &root, new("a"))), libc::EEXIST);
        let again = NewFile { exclusive: false, ..new("a") };
        assert_eq!(errno(namespace.create(&ALICE, &root, again)), libc::ESTALE);
        namespace.link(&ALICE, &found.inode, &root, "b".as_ref()).unwrap();
        namespace.rename(&ALICE, (&root, "a".as_ref()), (&root, "c".as_ref()), 0).unwrap();
        assert_eq!(errno(namespace.lookup(&root, "a".as_ref())), libc::ENOENT);
        let looked = namespace.lookup(&root, "c".as_ref()).unwrap();
        assert_eq!((looked.inode.identity(), looked.attributes.nlink), (found.inode.identity(), 2));
        namespace.remove(&ALICE, &root, "b".as_ref(), NameKind::File).unwrap();
        assert_eq!(namespace.path_of(&looked.inode).unwrap(), Path::new("c"));
        let identity = found.inode.identity();
        let again = namespace.find(identity, Path::new("c"), KnownSince::InUse).unwrap().unwrap();
        assert_eq!(again.identity(), identity);
        namespace.remove(&ALICE, &root, "c".as_ref(), NameKind::File).unwrap();
        assert_eq!(namespace.attributes(&found.inode).unwrap().nlink, 0, "who has it still sees it");
        assert!(namespace.find(identity, Path::new("c"), KnownSince::InUse).unwrap().is_none());
        assert_eq!(names_of(namespace, &ALICE, &root).unwrap().len(), 2);
    });
}

#[test]
fn a_file_without_a_name_gets_its_first_by_a_link_unless_it_may_have_none() {
    in_both(|namespace| {
        let root = namespace.root().unwrap();
        for (exclusive, outcome) in [(false, 0), (true, libc::ENOENT)] {
            let new = NewFile { name: None, mode: mode(0o600), exclusive };
            let (found, _) = namespace.create(&ALICE, &root, new).unwrap();
            assert_eq!(found.attributes.nlink, 0);
            let name = if exclusive { "never" } else { "named" };
            assert_eq!(errno(namespace.link(&ALICE, &found.inode, &root, name.as_ref())), outcome);
        }
        assert_eq!(namespace.lookup(&root, "named".as_ref()).unwrap().attributes.nlink, 1);
    });
}

#[test] // S1
fn a_caller_may_do_what_its_user_and_groups_may() {
    in_both(|namespace| {
        let root = namespace.root().unwrap();
        let make = |caller: &Caller, at: &Inode, name: &str, bits| {
            namespace.make(caller, at, name.as_ref(), NewName::Directory(NewMode { mode: bits, umask: 0 }))
        };
        make(&ROOT, &root, "team", 0o770).unwrap();
        let team = namespace.lookup(&root, "team".as_ref()).unwrap().inode;
        namespace.set_owner(&ROOT, &team, None, Some(TEAM)).unwrap();
        namespace.set_mode(&ROOT, &team, 0o2770).unwrap();
        assert_eq!(errno(make(&ALICE, &team, "d", 0o755)), libc::EACCES);
        set_groups_of_callers(Some([TEAM].into()));
        make(&ALICE, &team, "d", 0o755).unwrap();
        let made = namespace.lookup(&team, "d".as_ref()).unwrap();
        assert_eq!((made.attributes.gid, made.attributes.mode), (TEAM, libc::S_IFDIR | 0o2755));
        set_groups_of_callers(Some([].into()));
        assert_eq!(errno(make(&BOB, &team, "e", 0o755)), libc::EACCES);
        set_groups_of_callers(None);
        let file = NewFile { name: Some("f".as_ref()), mode: mode(0o640), exclusive: true };
        let (found, _) = namespace.create(&ALICE, &root, file).unwrap();
        let inode = &found.inode;
        let opens =
            |caller, write: bool| namespace.check_open(caller, inode, Mode { read: !write, write, ..Mode::default() });
        assert_eq!((errno(opens(&ALICE, true)), errno(opens(&ALICE, false))), (0, 0));
        assert_eq!((errno(opens(&BOB, true)), errno(opens(&BOB, false))), (libc::EACCES, libc::EACCES));
        assert_eq!(errno(namespace.set_mode(&BOB, inode, 0o666)), libc::EPERM);
        assert_eq!(errno(namespace.set_times(&BOB, inode, [Some(NewTime::Now); 2])), libc::EACCES);
        let time = Timestamp { seconds: 1_000_000, nanos: 7 };
        namespace.set_times(&ALICE, inode, [None, Some(NewTime::At(time))]).unwrap();
        assert_eq!(namespace.attributes(inode).unwrap().mtime, time);
    });
}

/// The namespace below and the one in memory, with the files that the story has met in both.
struct Pair {
    both: [Box<dyn Namespace>; 2],
    met: [Vec<Inode>; 2],
    _tree: TempTree,
}

/// One call and everything that it needs, chosen by chance.
#[derive(Debug)]
struct Step {
    kind: u64,
    caller: Caller,
    files: [usize; 3],
    names: [&'static str; 2],
    bits: u32,
    small: u64,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const XATTRS: [&CStr; 2] = [c"user.one", c"user.two"];
const BITS: [u32; 8] = [0o755, 0o777, 0o644, 0o1777, 0o2775, 0o700, 0o4755, 0o6711];

impl Step {
    fn by(random: &mut Random) -> Step {
        Step {
            kind: random.below(26),
            caller: [ROOT, ALICE, ALICE, BOB][random.below(4) as usize],
            files: [0, 1, 2].map(|_| random.below(64) as usize),
            names: [0, 1].map(|_| NAMES[random.below(6) as usize]),
            bits: BITS[random.below(8) as usize],
            small: random.below(6),
        }
    }

    /// Makes the step with files of one namespace. Returns what a program sees of its outcome, and a file that was
    /// found.
    fn take(&self, namespace: &dyn Namespace, met: &[Inode]) -> io::Result<(String, Option<Inode>)> {
        let [one, two, three] = self.files.map(|file| &met[file % met.len()]);
        let [name, other] = self.names.map(OsStr::new);
        let (caller, small) = (&self.caller, self.small as usize);
        let new = mode(if small == 0 { self.bits } else { self.bits & !0o6000 });
        let (xattr, is_link) = (XATTRS[small % 2], two.kind() == FileType::Symlink);
        let done = |()| (String::new(), None);
        match self.kind {
            0 | 1 => {
                let file = NewFile { name: Some(name), mode: new, exclusive: small % 2 == 0 };
                let (found, _) = namespace.create(caller, one, file)?;
                Ok((format!("{:o}", found.attributes.mode), Some(found.inode)))
            }
            2 | 3 => namespace.make(caller, one, name, NewName::Directory(new)).map(done),
            4 => namespace.make(caller, one, name, NewName::Symlink("target".as_ref())).map(done),
            5 => {
                let special = NewName::Special { kind: FileType::Fifo, mode: new, device: 0 };
                namespace.make(caller, one, name, special).map(done)
            }
            6 => namespace.link(caller, two, one, name).map(done),
            7 => namespace.remove(caller, one, name, NameKind::File).map(done),
            8 => namespace.remove(caller, one, name, NameKind::Directory).map(done),
            9..=12 => {
                let plain = RenameFlags::empty();
                let flags = [plain, plain, RenameFlags::NOREPLACE, RenameFlags::EXCHANGE][small % 4];
                namespace.rename(caller, (one, name), (three, other), flags.bits()).map(done)
            }
            13 | 14 if !is_link => namespace.set_mode(caller, two, self.bits).map(done),
            15 => namespace.set_owner(caller, two, (small == 1).then_some(BOB.uid), Some(ALICE.gid)).map(done),
            16 => {
                let time = Timestamp { seconds: 1_000_000_000, nanos: small as u32 };
                let times = [[Some(NewTime::Now); 2], [None, Some(NewTime::At(time))]];
                namespace.set_times(caller, two, times[small % 2]).map(done)
            }
            17 if !is_link => namespace.set_xattr(caller, two, xattr, b"value", self.small as u32 % 3).map(done),
            18 if !is_link => namespace.remove_xattr(caller, two, xattr).map(done),
            19 if two.kind() == FileType::RegularFile => {
                let (read, write) = (small % 2 == 0, small % 3 == 0);
                let mode = Mode { read: read || !write, write, ..Mode::default() };
                namespace.check_open(caller, two, mode).map(done)
            }
            20 => Ok((format!("{:?}", names_of(namespace, caller, two)?), None)),
            21 if is_link => Ok((format!("{:?}", namespace.read_symlink(two)?), None)),
            _ => Ok((String::new(), Some(namespace.lookup(one, name)?.inode))),
        }
    }
}

impl Pair {
    fn new() -> Pair {
        let tree = TempTree::new();
        let both = both(&tree);
        let met = [0, 1].map(|of| vec![both[of].root().unwrap()]);
        Pair { both, met, _tree: tree }
    }

    /// Makes a step in both, and compares the outcomes. Returns the errno of the step, 0 for none.
    fn step(&mut self, step: &Step, place: &str) -> i32 {
        let [below, memory] = [0, 1].map(|of| step.take(&*self.both[of], &self.met[of]));
        let shown = |outcome: &io::Result<(String, Option<Inode>)>| match outcome {
            Ok((seen, _)) => seen.clone(),
            Err(error) => format!("errno {:?}", error.raw_os_error()),
        };
        assert_eq!(shown(&below), shown(&memory), "{place}: {step:?}");
        match (below, memory) {
            (Ok((_, Some(found))), Ok((_, Some(also)))) => {
                self.met[0].push(found);
                self.met[1].push(also);
                0
            }
            (outcome, _) => errno(outcome),
        }
    }

    /// Returns what a program sees of a file.
    fn seen(&self, of: usize, file: usize) -> String {
        let (namespace, inode) = (&*self.both[of], &self.met[of][file]);
        let attributes = namespace.attributes(inode).unwrap();
        let xattrs = if inode.kind() == FileType::Symlink { vec![] } else { namespace.xattr_names(inode).unwrap() };
        // A security module of the machine may add its own.
        let mut xattrs: Vec<&[u8]> =
            xattrs.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")).collect();
        xattrs.sort();
        let listed = if inode.kind() == FileType::Directory { names_of(namespace, &ROOT, inode).ok() } else { None };
        let (mode, links, owner) = (attributes.mode, attributes.nlink, (attributes.uid, attributes.gid));
        format!("{mode:o} links {links} of {owner:?} {xattrs:?} {listed:?}")
    }

    fn compare(&self, place: &str) {
        (0..self.met[0].len()).for_each(|file| assert_eq!(self.seen(0, file), self.seen(1, file), "{place}: {file}"));
    }
}

#[test] // S1
fn random_stories_end_the_same_way_below_and_in_memory() {
    let (stories, steps, mut errors) = (150, 250, BTreeSet::new());
    for seed in 0..stories {
        let (mut random, mut pair) = (Random(seed), Pair::new());
        for number in 0..steps {
            let place = format!("seed {seed}, step {number}");
            errors.insert(pair.step(&Step::by(&mut random), &place));
            if number % 10 == 0 {
                pair.compare(&place);
            }
        }
        pair.compare(&format!("seed {seed}"));
    }
    let expected =
        [libc::EACCES, libc::EPERM, libc::EEXIST, libc::ENOENT, libc::ENOTEMPTY, libc::EISDIR, libc::ENOTDIR];
    assert!(expected.iter().all(|errno| errors.contains(errno)), "the stories met only {errors:?}");
}
