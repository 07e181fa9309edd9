//! Random stories: calls of several users that a delegated tree and other namespaces answer.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod below;
pub mod counted;
pub mod killed;
pub mod medium;
pub mod unsynced;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::sync::Arc;

use delegation::log::LogDirectory;
use delegation::{
    Applied, BelowCopy, BelowState, DataPlace, DelegatedTree, DelegationSettings, FilesBelow, Moment, NodeKind,
    NodeNumber, NodeState, OpeningReport,
};
use global_store::{Access, StoreFile};
use namespace::{Attributes, Caller, FileSystemSpace, Inode, Mode, NameKind, Names, NewFile, NewMode, NewName};
use rustix::fs::{FileType, RenameFlags};
use testkit::Random;
use types::{HasErrno, Identity, NewTime, Timestamp};

pub const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0 };
pub const ALICE: Caller = Caller { uid: 1000, gid: 1000, pid: 0 };
pub const BOB: Caller = Caller { uid: 1001, gid: 1001, pid: 0 };

/// Names and attributes, whoever keeps them.
pub trait World: Names + Attributes {}
impl<T: Names + Attributes + ?Sized> World for T {}

/// A global store that has no files.
pub struct NothingBelow;

impl FilesBelow for NothingBelow {
    fn open(&self, _: NodeNumber, _: Access) -> io::Result<Box<dyn StoreFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        Ok(FileSystemSpace { namelen: 255, ..FileSystemSpace::default() })
    }
}

/// Returns the state of a root in which everybody may create files.
pub fn root_state() -> NodeState {
    NodeState::new(NodeNumber::ROOT, NodeKind::Directory, (0o777, 0, 0), Moment(1_000_000_000))
}

pub fn try_open(directory: Box<dyn LogDirectory>, file_bytes: u64) -> io::Result<(DelegatedTree, OpeningReport)> {
    let settings = DelegationSettings { log_file_bytes: file_bytes, live_percent: 60, ..DelegationSettings::default() };
    DelegatedTree::open(directory, Arc::new(NothingBelow), settings, root_state())
}

pub fn open(directory: impl LogDirectory + 'static, file_bytes: u64) -> DelegatedTree {
    let (tree, report) = try_open(Box::new(directory), file_bytes).unwrap();
    assert_eq!(report.damage, None);
    tree.assert_invariants();
    tree
}

pub fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno().expect("a number"))
}

pub fn mode(mode: u32) -> NewMode {
    NewMode { mode, umask: 0o022 }
}

pub fn new_file(name: &str) -> NewFile<'_> {
    NewFile { name: Some(OsStr::new(name)), mode: mode(0o666), exclusive: true }
}

pub fn names_of(world: &dyn World, caller: &Caller, directory: &Inode) -> io::Result<BTreeSet<OsString>> {
    let mut names = BTreeSet::new();
    world.open_directory(caller, directory)?.read(0, &mut |entry| names.insert(entry.name.clone()))?;
    Ok(names)
}

/// Everything that the log must give back: states of nodes with names, and numbers of those that only the global store has.
pub type Snapshot = BTreeMap<NodeNumber, Option<NodeState>>;

pub fn snapshot(tree: &DelegatedTree) -> Snapshot {
    let known = |state: NodeState| {
        let has_name = state.number == NodeNumber::ROOT || !state.names.is_empty();
        (state.number, has_name.then(|| sorted(state)))
    };
    tree.states().into_iter().map(known).collect()
}

fn sorted(mut state: NodeState) -> NodeState {
    state.names.sort();
    state
}

/// Returns a snapshot without times, which differ when a story is told again.
pub fn timeless(mut snapshot: Snapshot) -> Snapshot {
    for state in snapshot.values_mut().flatten() {
        (state.atime, state.mtime, state.ctime) = Default::default();
    }
    snapshot
}

/// One call and everything that it needs, chosen by chance.
#[derive(Debug)]
pub struct Step {
    pub kind: u64,
    pub caller: Caller,
    pub files: [usize; 3],
    pub names: [&'static str; 2],
    pub bits: u32,
    pub small: u64,
}

const NAMES: [&str; 6] = ["a", "b", "a name of more than two dozen bytes", "d", "e", "f"];
const XATTRS: [&CStr; 2] = [c"user.one", c"user.two"];
const BITS: [u32; 8] = [0o755, 0o777, 0o644, 0o1777, 0o2775, 0o700, 0o4755, 0o6711];

impl Step {
    pub fn by(random: &mut Random) -> Step {
        Step {
            kind: random.below(27),
            caller: [ROOT, ALICE, ALICE, BOB][random.below(4) as usize],
            files: [0, 1, 2].map(|_| random.below(64) as usize),
            names: [0, 1].map(|_| NAMES[random.below(6) as usize]),
            bits: BITS[random.below(8) as usize],
            small: random.below(6),
        }
    }

    /// Makes the step with files of one world. Returns what a program sees of its outcome, and a file that was found.
    pub fn take(&self, world: &dyn World, met: &[Inode]) -> io::Result<(String, Option<Inode>)> {
        let [one, two, three] = self.files.map(|file| &met[file % met.len()]);
        let [name, other] = self.names.map(OsStr::new);
        let (caller, small) = (&self.caller, self.small as usize);
        let new = mode(if small == 0 { self.bits } else { self.bits & !0o6000 });
        let (xattr, is_link) = (XATTRS[small % 2], two.kind() == FileType::Symlink);
        let done = |()| (String::new(), None);
        match self.kind {
            // File systems differ about files without a name in a directory without one.
            26 if world.attributes(one)?.nlink == 0 => Ok((String::new(), None)),
            0 | 1 | 26 => {
                let (name, exclusive) = ((self.kind != 26).then_some(name), small.is_multiple_of(2));
                let (found, _) = world.create(caller, one, NewFile { name, mode: new, exclusive })?;
                Ok((format!("{:o}", found.attributes.mode), Some(found.inode)))
            }
            2 | 3 => world.make(caller, one, name, NewName::Directory(new)).map(done),
            4 => world.make(caller, one, name, NewName::Symlink("target".as_ref())).map(done),
            5 => {
                let (kind, device) = [(FileType::Fifo, 0), (FileType::CharacterDevice, 0x103)][usize::from(small == 5)];
                world.make(caller, one, name, NewName::Special { kind, mode: new, device }).map(done)
            }
            6 => world.link(caller, two, one, name).map(done),
            7 => world.remove(caller, one, name, NameKind::File).map(done),
            8 => world.remove(caller, one, name, NameKind::Directory).map(done),
            9..=12 => {
                let plain = RenameFlags::empty();
                let flags = [plain, plain, RenameFlags::NOREPLACE, RenameFlags::EXCHANGE][small % 4];
                world.rename(caller, (one, name), (three, other), flags.bits()).map(done)
            }
            13 | 14 if !is_link => world.set_mode(caller, two, self.bits).map(done),
            15 => world.set_owner(caller, two, (small == 1).then_some(BOB.uid), Some(ALICE.gid)).map(done),
            16 => {
                let time = Timestamp { seconds: 1_234_567_890, nanos: small as u32 };
                let times = [[Some(NewTime::Now); 2], [None, Some(NewTime::At(time))]];
                world.set_times(caller, two, times[small % 2]).map(done)
            }
            17 if !is_link => world.set_xattr(caller, two, xattr, b"value", self.small as u32 % 3).map(done),
            18 if !is_link => world.remove_xattr(caller, two, xattr).map(done),
            19 if two.kind() == FileType::RegularFile => {
                let (read, write) = (small.is_multiple_of(2), small.is_multiple_of(3));
                let mode = Mode { read: read || !write, write, ..Mode::default() };
                world.check_open(caller, two, mode).map(done)
            }
            20 => Ok((format!("{:?}", names_of(world, caller, two)?), None)),
            21 if is_link => Ok((format!("{:?}", world.read_symlink(two)?), None)),
            _ => Ok((String::new(), Some(world.lookup(one, name)?.inode))),
        }
    }
}

/// Notes of one pending node that the global store gets it, has it, or has nothing more of it.
pub fn bring_one(tree: &DelegatedTree, random: &mut Random) -> io::Result<()> {
    let pending = tree.pending(None, 5);
    if pending.is_empty() {
        return Ok(());
    }
    let node = pending[random.below(pending.len() as u64) as usize];
    let state = tree.state(node.number).expect("a pending node has a state");
    if state.names.is_empty() && node.number != NodeNumber::ROOT {
        return tree.forgotten(node.number);
    }
    let is_begun = random.below(3) == 0;
    let identity = (!is_begun).then(|| Identity::new(node.number.0.to_le_bytes()).unwrap());
    let below = BelowState::At(Arc::new(BelowCopy { identity, names: state.names, doubtful: is_begun }));
    if is_begun {
        assert!(tree.note_below(node.number, below)?);
    } else {
        assert_eq!(tree.applied(node, below)?, Applied::Done);
    }
    Ok(())
}

/// A delegated tree and the files that a story has met in it.
pub struct Story {
    pub tree: DelegatedTree,
    pub met: Vec<Inode>,
    pub random: Random,
    /// Whether there is a global store, to which the tree is applied. If not, steps say that one has this or that.
    has_store: bool,
}

impl Story {
    pub fn new(tree: DelegatedTree, seed: u64) -> Story {
        let met = vec![tree.root().unwrap()];
        Story { tree, met, random: Random(seed), has_store: false }
    }

    /// Creates a story of a tree that is applied to a global store.
    pub fn over_store(tree: DelegatedTree, seed: u64) -> Story {
        Story { has_store: true, ..Story::new(tree, seed) }
    }

    /// Makes one random step: a program's call, or a content that is noted.
    pub fn step(&mut self) -> io::Result<()> {
        let step = Step::by(&mut self.random);
        if step.kind == 22 {
            let inode = &self.met[step.files[0] % self.met.len()];
            let number = self.tree.number_of(inode)?;
            let mtime = Timestamp { seconds: 1_500_000_000, nanos: step.bits };
            return match inode.kind() {
                FileType::RegularFile => {
                    self.tree.set_content(number, step.small * 1000, mtime, DataPlace::Replica(step.small))
                }
                _ => Ok(()),
            };
        }
        if step.kind == 23 {
            return if self.has_store { Ok(()) } else { bring_one(&self.tree, &mut self.random) };
        }
        let (_, found) = step.take(&self.tree, &self.met)?;
        self.met.extend(found);
        Ok(())
    }

    /// Exchanges two names, renames one over another, or adds one to a file.
    pub fn shuffle(&mut self) {
        let mut places = Vec::new();
        for directory in self.met.iter().filter(|inode| inode.kind() == FileType::Directory) {
            let names = names_of(&self.tree, &ROOT, directory).unwrap_or_default();
            places.extend(names.into_iter().filter(|name| name != "." && name != "..").map(|name| (directory, name)));
        }
        if places.is_empty() {
            return;
        }
        let [one, two] = [0, 1].map(|_| &places[self.random.below(places.len() as u64) as usize]);
        let (from, to) = ((one.0, one.1.as_os_str()), (two.0, two.1.as_os_str()));
        let _ = match self.random.below(4) {
            0 => self.tree.rename(&ROOT, from, to, 0),
            1 => {
                let name = format!("link {}", self.random.below(4));
                let found = self.tree.lookup(from.0, from.1);
                found.and_then(|found| self.tree.link(&ROOT, &found.inode, to.0, OsStr::new(&name)))
            }
            _ => self.tree.rename(&ROOT, from, to, RenameFlags::EXCHANGE.bits()),
        };
    }

    /// Forgets one file, as a kernel does.
    pub fn let_go(&mut self) {
        if self.met.len() > 40 {
            let at = 1 + self.random.below(self.met.len() as u64 - 1) as usize;
            self.met.swap_remove(at);
        }
    }
}
