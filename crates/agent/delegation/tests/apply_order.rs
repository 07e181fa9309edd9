//! The order in which names appear in the store.

mod story;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsStr;

use delegation::{ApplyRequest, DataPlace, DelegatedTree};
use namespace::{NameKind, Names, NewName};
use story::below::Below;
use story::medium::Medium;
use story::{ALICE, mode, new_file, open};
use testkit::TempTree;
use types::Timestamp;

const DIRECTORIES: usize = 4;
const FILES: usize = 40;

fn make(tree: &DelegatedTree, path: (usize, usize)) {
    let root = tree.root().unwrap();
    let directory = tree.lookup(&root, OsStr::new(&path.0.to_string())).unwrap().inode;
    let (found, _) = tree.create(&ALICE, &directory, new_file(&path.1.to_string())).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    tree.set_content(number, 3000, Timestamp::default(), DataPlace::Replica(3)).unwrap();
}

/// Returns a tree whose directories the store has, with files in the order of their numbers.
fn world(below: &Below) -> DelegatedTree {
    let tree = open(Medium::default(), 64 << 10);
    let root = tree.root().unwrap();
    for directory in 0..DIRECTORIES {
        tree.make(&ALICE, &root, OsStr::new(&directory.to_string()), NewName::Directory(mode(0o777))).unwrap();
    }
    assert_eq!(below.apply(&tree).stuck, []);
    (0..DIRECTORIES).flat_map(|one| (0..FILES).map(move |two| (one, two))).for_each(|path| make(&tree, path));
    tree
}

/// Returns the paths of files that programs see.
fn visible(below: &Below) -> BTreeSet<(usize, usize)> {
    let split = |path: std::path::PathBuf| {
        let (one, two) = path.to_str()?.split_once('/')?;
        Some((one.parse().ok()?, two.parse().ok()?))
    };
    below.seen().into_keys().filter_map(split).collect()
}

#[test]
fn strict_names_appear_in_the_order_of_their_files_and_others_in_any() {
    // With one thread each name is looked at before the next.
    for (width, strict) in [(6, true), (1, false)] {
        let bed = TempTree::new();
        let below = Below { width, strict, ..Below::new(&bed.path("below")) };
        let tree = world(&below);
        let (last, out_of_order) = (RefCell::new(BTreeSet::new()), Cell::new(0));
        let look = |_| {
            let now = visible(&below);
            let most = now.last().copied();
            let before = most.map_or(0, |(one, two)| one * FILES + two + 1);
            out_of_order.set(out_of_order.get() + usize::from(before != now.len()));
            // A directory that changes meanwhile may be read in part.
            assert!(!strict || last.borrow().is_subset(&now));
            last.replace(now);
        };
        below.apply_by(&tree, |request| tree.apply(&ApplyRequest { progress: &look, ..*request }));
        assert_eq!(visible(&below).len(), DIRECTORIES * FILES);
        assert_eq!(out_of_order.get() == 0, strict, "{out_of_order:?}");
    }
}

#[test]
fn a_strict_apply_changes_no_name_after_one_that_is_stuck() {
    let bed = TempTree::new();
    let below = Below { width: 6, strict: true, ..Below::new(&bed.path("below")) };
    let tree = world(&below);
    std::fs::write(bed.path("below/1/7"), "theirs").unwrap();
    let report = below.apply(&tree);
    assert_eq!(report.stuck.iter().map(|stuck| stuck.errno).collect::<Vec<_>>(), [libc::EEXIST]);
    let seen = visible(&below);
    assert_eq!((seen.len(), seen.last()), (FILES + 8, Some(&(1, 7))));
    std::fs::remove_file(bed.path("below/1/7")).unwrap();
    assert_eq!(below.apply(&tree).stuck, []);
    assert_eq!((visible(&below).len(), tree.pending_len()), (DIRECTORIES * FILES, 0));
}

#[test]
fn a_strict_removal_comes_before_what_was_made_after_it() {
    let bed = TempTree::new();
    let below = Below { width: 6, strict: true, ..Below::new(&bed.path("below")) };
    let tree = world(&below);
    assert_eq!(below.apply(&tree).stuck, []);
    let root = tree.root().unwrap();
    let directory = tree.lookup(&root, OsStr::new("0")).unwrap().inode;
    tree.remove(&ALICE, &directory, OsStr::new("5"), NameKind::File).unwrap();
    make(&tree, (1, 100));
    let look = |_| {
        let now = visible(&below);
        assert!(!now.contains(&(1, 100)) || !now.contains(&(0, 5)));
    };
    let report = below.apply_by(&tree, |request| tree.apply(&ApplyRequest { progress: &look, ..*request }));
    assert_eq!((report.stuck, report.removed, tree.pending_len()), (vec![], 1, 0));
}
