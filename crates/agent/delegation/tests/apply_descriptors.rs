//! An apply with few descriptors.

mod story;

use std::ffi::OsStr;

use delegation::{DataPlace, DelegatedTree};
use namespace::{Attributes, Inode, NameKind, Names, NewName};
use rustix::process::{Resource, Rlimit, setrlimit};
use story::below::{Below, hidden_left, seen_of};
use story::medium::Medium;
use story::{ALICE, mode, new_file, open};
use testkit::TempTree;
use types::Timestamp;

const DESCRIPTORS: u64 = 512;
const FILE_BYTES: u64 = 64 << 10;
/// More than there are descriptors.
const MANY: usize = 600;

fn file(tree: &DelegatedTree, directory: &Inode, name: &str) {
    let (found, _) = tree.create(&ALICE, directory, new_file(name)).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    let mtime = Timestamp { seconds: 1_500_000_000, nanos: 7 };
    tree.set_content(number, 1000, mtime, DataPlace::Replica(1)).unwrap();
}

fn directory(tree: &DelegatedTree, parent: &Inode, name: &str) -> Inode {
    tree.make(&ALICE, parent, OsStr::new(name), NewName::Directory(mode(0o777))).unwrap();
    tree.lookup(parent, OsStr::new(name)).unwrap().inode
}

/// Lives in a binary of its own, because the limit is that of the process.
#[test]
fn more_names_than_descriptors_are_applied() {
    let most = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    for width in [1, 8] {
        let bed = TempTree::new();
        let (below, tree) = (Below { width, ..Below::new(&bed.path("below")) }, open(Medium::default(), FILE_BYTES));
        let applied = |what: &str| {
            let report = below.apply(&tree);
            assert_eq!(report.stuck.first(), None, "{what}: {} are stuck", report.stuck.len());
            assert_eq!(tree.pending_len(), 0, "{what}");
            assert_eq!(seen_of(&tree), below.seen(), "{what}");
            assert_eq!(hidden_left(&bed.path("below")), Vec::<std::path::PathBuf>::new(), "{what}");
        };
        let root = tree.root().unwrap();
        let full = directory(&tree, &root, "full");
        (0..MANY).for_each(|number| file(&tree, &full, &number.to_string()));
        let wide = directory(&tree, &root, "wide");
        for number in 0..MANY {
            file(&tree, &directory(&tree, &wide, &number.to_string()), "within");
        }
        applied("new directories");
        (MANY..2 * MANY).for_each(|number| file(&tree, &full, &number.to_string()));
        (0..MANY).for_each(|number| {
            let within = tree.lookup(&wide, OsStr::new(&number.to_string())).unwrap().inode;
            file(&tree, &within, "another");
            tree.set_mode(&ALICE, &within, 0o700).unwrap();
            let (from, to) = (format!("{number}"), format!("moved {number}"));
            tree.rename(&ALICE, (&full, OsStr::new(&from)), (&full, OsStr::new(&to)), 0).unwrap();
        });
        applied("directories that the store has");
        (0..MANY).for_each(|number| {
            let within = tree.lookup(&wide, OsStr::new(&number.to_string())).unwrap().inode;
            for name in ["within", "another"] {
                tree.remove(&ALICE, &within, OsStr::new(name), NameKind::File).unwrap();
            }
            tree.remove(&ALICE, &wide, OsStr::new(&number.to_string()), NameKind::Directory).unwrap();
        });
        applied("removals");
    }
}
