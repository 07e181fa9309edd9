//! New directories, which appear with all that is new in them.

mod story;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;

use delegation::{ApplyRequest, DataPlace, DelegatedTree};
use namespace::{Attributes, Inode, NameKind, Names, NewName};
use story::below::{Below, bytes_of, hidden_left, seen_of};
use story::medium::Medium;
use story::{ALICE, BOB, mode, new_file, open, try_open};
use testkit::{Random, TempTree};
use types::Timestamp;

const FILE_BYTES: u64 = 64 << 10;

fn file(tree: &DelegatedTree, directory: &Inode, name: &str, version: u64) -> Inode {
    let (found, _) = tree.create(&ALICE, directory, new_file(name)).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    let mtime = Timestamp { seconds: 1_500_000_000, nanos: 7 };
    tree.set_content(number, version * 1000, mtime, DataPlace::Replica(version)).unwrap();
    found.inode
}

fn directory(tree: &DelegatedTree, parent: &Inode, name: &str) -> Inode {
    tree.make(&ALICE, parent, OsStr::new(name), NewName::Directory(mode(0o777))).unwrap();
    tree.lookup(parent, OsStr::new(name)).unwrap().inode
}

/// Makes new directories within each other, with files, a symbolic link, a file of two names and one of somebody else.
fn make_world(tree: &DelegatedTree) {
    let root = tree.root().unwrap();
    let new = directory(tree, &root, "new");
    let inner = directory(tree, &new, "inner");
    (1..4).for_each(|version| drop(file(tree, &new, &format!("file {version}"), version)));
    let two = file(tree, &inner, "one name", 2);
    tree.link(&ALICE, &two, &new, OsStr::new("another")).unwrap();
    tree.make(&ALICE, &inner, OsStr::new("link"), NewName::Symlink("target".as_ref())).unwrap();
    tree.set_mode(&ALICE, &inner, 0o777).unwrap();
    tree.create(&BOB, &inner, new_file("of Bob")).unwrap();
    drop(directory(tree, &inner, "empty"));
}

#[test]
fn a_small_file_in_a_new_directory_costs_three_calls_of_the_seam_and_the_write_at_any_width() {
    for width in [1, 8] {
        let bed = TempTree::new();
        let (below, tree) = (Below { width, ..Below::new(&bed.path("below")) }, open(Medium::default(), FILE_BYTES));
        let root = tree.root().unwrap();
        for name in ["one", "two"] {
            let directory = directory(&tree, &root, name);
            (0..100).for_each(|number| drop(file(&tree, &directory, &number.to_string(), 1)));
        }
        assert_eq!(below.apply(&tree).stuck, []);
        let calls = below.calls.take();
        let count = |call: &str| calls.iter().filter(|other| **other == call).count();
        assert_eq!((count("create_hidden"), count("rename_hidden"), count("identify")), (200, 2, 204), "{calls:?}");
        // Eight calls for each of the two directories and ten for the root and the syncs, as threads may ask twice.
        assert!(calls.len() <= 3 * 200 + 2 * 8 + 10 + width, "{} calls: {calls:?}", calls.len());
        assert_eq!(seen_of(&tree), below.seen());
    }
}

#[test]
fn a_new_directory_is_seen_with_all_that_is_new_in_it_or_not_at_all() {
    for width in [1, 6] {
        let bed = TempTree::new();
        let (below, tree) = (Below { width, ..Below::new(&bed.path("below")) }, open(Medium::default(), FILE_BYTES));
        let root = tree.root().unwrap();
        for name in 0..5 {
            let outer = directory(&tree, &root, &name.to_string());
            let inner = directory(&tree, &outer, "inner");
            (0..10).for_each(|number| drop(file(&tree, &inner, &number.to_string(), 2)));
        }
        let looks = Cell::new(0);
        let look = |_| {
            let seen: Vec<_> = below.seen().into_iter().filter(|(path, _)| path.components().count() != 2).collect();
            let tops: BTreeSet<_> = seen.iter().map(|(path, _)| path.iter().next().unwrap().to_owned()).collect();
            assert_eq!(seen.len(), tops.len() * 11, "{seen:?}");
            let whole = seen.iter().filter(|(_, text)| text.contains(" 2000 bytes")).count();
            assert_eq!(whole, tops.len() * 10, "{seen:?}");
            looks.set(looks.get() + 1);
        };
        let report = below.apply_by(&tree, |request| tree.apply(&ApplyRequest { progress: &look, ..*request }));
        assert_eq!((report.stuck, looks.get(), tree.pending_len()), (vec![], 61, 0));
        assert_eq!(seen_of(&tree), below.seen());
    }
}

#[test]
fn a_file_that_cannot_be_made_keeps_nothing_else_from_being_seen_and_leaves_nothing() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), FILE_BYTES));
    let new = directory(&tree, &tree.root().unwrap(), "new");
    (1..6).for_each(|version| drop(file(&tree, &new, &version.to_string(), version)));
    // The times of the third file are set, and yet there is an error.
    let calls = [1, 2, 3, 4].map(|_| ()).len() + 2 * 3 + 2;
    below.calls.fail_after(calls, libc::ENOSPC);
    let report = below.apply(&tree);
    assert_eq!(report.stuck.iter().map(|stuck| stuck.errno).collect::<Vec<_>>(), [libc::ENOSPC]);
    assert_eq!(below.seen().len(), 5, "{:?}", below.seen());
    assert_eq!((below.apply(&tree).stuck, tree.pending_len()), (vec![], 0));
    assert_eq!(seen_of(&tree), below.seen());
}

/// The agent dies at the nth call of an apply, or its machine crashes. Its successor may die as well. Somebody else makes a file in
/// what they see. Returns the number of calls.
fn die(nth: usize, again: Option<usize>, crashes: bool) -> usize {
    let place = format!("call {nth}, then {again:?}, crash {crashes}");
    let (bed, medium) = (TempTree::new(), Medium::default());
    let below = Below { width: 1 + nth % 2 * 3, ..Below::new(&bed.path("below")) };
    let mut tree = open(medium.clone(), FILE_BYTES);
    make_world(&tree);
    let mut medium = medium;
    let mut calls = 0;
    for nth in [Some(nth), again].into_iter().flatten() {
        below.calls.take();
        below.calls.die(nth);
        let _ = below.apply(&tree);
        calls = calls.max(below.calls.take().len());
        medium = match crashes {
            true => medium.crash(&mut Random(nth as u64)),
            false => Medium::of_files(medium.files()),
        };
        tree = try_open(Box::new(medium.clone()), FILE_BYTES).unwrap().0;
    }
    below.calls.heal();
    let seen = bed.path("below/new");
    let (foreign, taken) = (seen.join("foreign"), seen.join("file 2"));
    if seen.exists() {
        std::fs::write(&foreign, "theirs").unwrap();
        let new = tree.lookup(&tree.root().unwrap(), OsStr::new("new")).unwrap().inode;
        let second = tree.lookup(&new, OsStr::new("file 2")).unwrap().inode;
        let is_pending = tree.pending_node(tree.number_of(&second).unwrap()).is_some();
        if is_pending {
            let _ = std::fs::remove_file(&taken);
            std::fs::write(&taken, "theirs").unwrap();
        }
        let stuck = below.apply(&tree).stuck;
        let stuck: Vec<_> = stuck.iter().map(|stuck| (stuck.errno, stuck.path.to_str().unwrap())).collect();
        assert_eq!(stuck, [(libc::EEXIST, "new/file 2")][..usize::from(is_pending)], "{place}");
        for path in [Some(&foreign), is_pending.then_some(&taken)].into_iter().flatten() {
            assert_eq!(std::fs::read(path).unwrap(), b"theirs", "{place}");
            std::fs::remove_file(path).unwrap();
        }
        // The directory gets its times again.
        tree.set_mode(&ALICE, &new, 0o755).unwrap();
    }
    assert_eq!(below.apply(&tree).stuck, [], "{place}");
    assert_eq!((seen_of(&tree), tree.pending_len()), (below.seen(), 0), "{place}");
    assert!(hidden_left(&bed.path("below")).is_empty(), "{place}");
    calls
}

#[test]
fn a_death_at_any_step_of_filling_leaves_what_the_next_apply_finishes_and_names_of_others() {
    for crashes in [false, true] {
        let mut nth = 0;
        while die(nth, None, crashes) > nth {
            nth += 1;
        }
        assert!(nth > 40, "{nth}");
        for (first, second) in (0..nth).step_by(5).flat_map(|first| (0..24).map(move |second| (first, second))) {
            die(first, Some(second), crashes);
        }
    }
}

#[test]
fn what_is_removed_while_its_directory_is_not_seen_yet_goes_with_the_next_apply() {
    let bed = TempTree::new();
    let (below, medium) = (Below::new(&bed.path("below")), Medium::default());
    let tree = open(medium.clone(), FILE_BYTES);
    make_world(&tree);
    // Two files are there.
    below.calls.die(13);
    let _ = below.apply(&tree);
    below.calls.heal();
    let tree = open(Medium::of_files(medium.files()), FILE_BYTES);
    let root = tree.root().unwrap();
    let new = tree.lookup(&root, OsStr::new("new")).unwrap().inode;
    tree.remove(&ALICE, &new, OsStr::new("file 1"), NameKind::File).unwrap();
    let other = file(&tree, &new, "file 1", 3);
    assert_eq!(below.apply(&tree).stuck, []);
    assert_eq!((seen_of(&tree), tree.pending_len()), (below.seen(), 0));
    let number = tree.number_of(&other).unwrap();
    assert_eq!(std::fs::read(bed.path("below/new/file 1")).unwrap(), bytes_of(number, DataPlace::Replica(3)));
    assert!(hidden_left(&bed.path("below")).is_empty());
}
