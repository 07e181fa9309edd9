//! A delegated tree answers as a mounted file system and as the model of a namespace, and its log gives it back.

mod story;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use delegation::DelegatedTree;
use delegation::log::MountedLogDirectory;
use global_store::posix::{PosixStore, StoreOptions};
use models::MemoryNamespace;
use namespace::{Attributes, Inode, Names};
use posix_namespace::PosixNamespace;
use rustix::fs::FileType;
use story::{ROOT, Step, World, bring_one, errno, names_of, open, snapshot};
use testkit::{Random, TempTree};
use types::HasErrno;

/// The delegated tree, the model and the mounted file system, with the files that the story has met in each.
struct Three {
    delegated: DelegatedTree,
    others: [Box<dyn World>; 2],
    met: [Vec<Inode>; 3],
    tree: TempTree,
}

impl Three {
    fn new() -> Three {
        let tree = TempTree::new();
        let below = tree.dir("below");
        std::fs::set_permissions(&below, PermissionsExt::from_mode(0o777)).unwrap();
        let root: OwnedFd = File::open(&below).unwrap().into();
        let store = PosixStore::new(root, StoreOptions::default()).unwrap();
        let memory = MemoryNamespace::new(0, 0);
        memory.set_mode(&ROOT, &memory.root().unwrap(), 0o777).unwrap();
        let delegated = open(MountedLogDirectory::new(tree.path("log")).unwrap(), 8 << 10);
        let others: [Box<dyn World>; 2] = [Box::new(memory), Box::new(PosixNamespace::new(store).unwrap())];
        let roots = [delegated.root().unwrap(), others[0].root().unwrap(), others[1].root().unwrap()];
        Three { delegated, others, met: roots.map(|root| vec![root]), tree }
    }

    fn world(&self, of: usize) -> &dyn World {
        if of == 0 { &self.delegated } else { &*self.others[of - 1] }
    }

    /// Makes a step in all, and compares the outcomes. Returns the errno of the step, 0 for none.
    fn step(&mut self, step: &Step, place: &str) -> i32 {
        let outcomes = [0, 1, 2].map(|of| step.take(self.world(of), &self.met[of]));
        let shown = |outcome: &io::Result<(String, Option<Inode>)>| match outcome {
            Ok((seen, _)) => seen.clone(),
            Err(error) => format!("errno {:?}", error.errno()),
        };
        for (of, other) in outcomes.iter().enumerate().skip(1) {
            assert_eq!(shown(&outcomes[0]), shown(other), "{place}, the {of}th other: {step:?}");
        }
        let mut result = 0;
        for (of, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok((_, found)) => self.met[of].extend(found),
                failed => result = errno(failed),
            }
        }
        result
    }

    /// Returns what a program sees of a file.
    fn seen(&self, of: usize, file: usize) -> String {
        let (world, inode) = (self.world(of), &self.met[of][file]);
        let attributes = world.attributes(inode).unwrap();
        let xattrs = if inode.kind() == FileType::Symlink { vec![] } else { world.xattr_names(inode).unwrap() };
        // A security module of the machine may add its own.
        let mut xattrs: Vec<&[u8]> =
            xattrs.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")).collect();
        xattrs.sort();
        let listed = if inode.kind() == FileType::Directory { names_of(world, &ROOT, inode).ok() } else { None };
        let (mode, links, owner) = (attributes.mode, attributes.nlink, (attributes.uid, attributes.gid));
        let size = if inode.kind() == FileType::Directory { 0 } else { attributes.size };
        // Times that a call has set; others are those of three clocks.
        let set = Some(attributes.mtime).filter(|time| time.seconds == 1_234_567_890);
        let (device, path) = (attributes.rdev, world.path_of(inode));
        // Which of a file's paths is found may differ; a file made without a name has a strange one below.
        let path = path.filter(|_| links > 0 && listed.is_some());
        format!("{mode:o} links {links} of {owner:?} {xattrs:?} {listed:?} {size} {set:?} {device:x} {path:?}")
    }

    fn compare(&self, place: &str) {
        for file in 0..self.met[0].len() {
            let ours = self.seen(0, file);
            for of in [1, 2] {
                assert_eq!(ours, self.seen(of, file), "{place}, the {of}th other: {file}");
            }
        }
    }

    /// Opens the log again, and compares the tree with the one that the program had.
    fn recover(&self, place: &str) {
        self.delegated.assert_invariants();
        let copy = self.tree.dir("copy");
        for entry in std::fs::read_dir(self.tree.path("log")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        let again = open(MountedLogDirectory::new(&copy).unwrap(), 8 << 10);
        assert_eq!(snapshot(&again), snapshot(&self.delegated), "{place}");
        std::fs::remove_dir_all(copy).unwrap();
    }
}

#[test] // S1
fn random_stories_end_the_same_way_in_a_delegated_tree_in_memory_and_below() {
    let (stories, steps, mut errors) = (150, 250, BTreeSet::new());
    for seed in 0..stories {
        let (mut random, mut three) = (Random(seed), Three::new());
        for number in 0..steps {
            let place = format!("seed {seed}, step {number}");
            errors.insert(three.step(&Step::by(&mut random), &place));
            if number % 10 == 0 {
                three.compare(&place);
            }
            if number % 5 == 0 {
                bring_one(&three.delegated, &mut random).unwrap();
            }
            if random.below(100) == 0 {
                three.recover(&place);
            }
        }
        let place = format!("seed {seed}");
        three.compare(&place);
        three.recover(&place);
    }
    let expected =
        [libc::EACCES, libc::EPERM, libc::EEXIST, libc::ENOENT, libc::ENOTEMPTY, libc::EISDIR, libc::ENOTDIR];
    assert!(expected.iter().all(|errno| errors.contains(errno)), "the stories met only {errors:?}");
}

#[test]
fn all_files_of_a_tree_are_exclusive_until_that_ends() {
    let tree = TempTree::new();
    let delegated = open(MountedLogDirectory::new(tree.dir("log")).unwrap(), 8 << 10);
    let root = delegated.root().unwrap();
    let (file, _) = delegated.create(&ROOT, &root, story::new_file("file")).unwrap();
    assert!(root.is_exclusive() && file.inode.is_exclusive() && !root.lost_exclusivity());
    delegated.share().end_exclusivity();
    let later = delegated.lookup(&root, "file".as_ref()).unwrap();
    for inode in [root, file.inode, later.inode] {
        assert_eq!((inode.is_exclusive(), inode.lost_exclusivity()), (false, true));
    }
}
