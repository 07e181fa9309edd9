//! Applying a delegated tree to the global store, whatever fails.

mod story;

use std::ffi::OsStr;

use delegation::{DataPlace, DelegatedTree};
use namespace::{Attributes, Inode, Names, NewName};
use story::below::{Below, hidden_left, seen_of};
use story::medium::Medium;
use story::{ALICE, ROOT, Story, mode, new_file, open};
use testkit::TempTree;
use types::Timestamp;

/// Takes the calls since the last time, without those of the one sync of each apply.
fn calls_of(below: &Below) -> Vec<&'static str> {
    below.calls.take().into_iter().filter(|call| !call.starts_with("sync")).collect()
}

fn assert_equal(below: &Below, tree: &DelegatedTree, place: &str) {
    let (ours, theirs) = (seen_of(tree), below.seen());
    for (path, text) in &ours {
        assert_eq!(Some(text), theirs.get(path), "{place}: {path:?}");
    }
    assert_eq!(ours, theirs, "{place}");
    assert_eq!(tree.pending_len(), 0, "{place}");
}

fn file(tree: &DelegatedTree, directory: &Inode, name: &str, version: u64) -> Inode {
    let (found, _) = tree.create(&ALICE, directory, new_file(name)).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    let mtime = Timestamp { seconds: 1_500_000_000, nanos: 7 };
    tree.set_content(number, version * 1000, mtime, DataPlace::Replica(version)).unwrap();
    found.inode
}

#[test]
fn random_stories_end_below_as_in_the_tree_with_many_applies_between() {
    for seed in 0..60 {
        let bed = TempTree::new();
        let (width, strict) = ([1, 4, 9][seed as usize / 3 % 3], seed % 4 == 3);
        let below = Below { width, strict, ..Below::new(&bed.path("below")) };
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        for step in 0..300 {
            let _ = story.step();
            (0..seed % 3).for_each(|_| story.shuffle());
            story.let_go();
            if story.random.below(25) == 0 {
                let report = below.apply(&story.tree);
                assert_eq!(report.stuck, [], "seed {seed}, step {step}");
                assert_equal(&below, &story.tree, &format!("seed {seed}, step {step}"));
            }
        }
        let report = below.apply(&story.tree);
        assert_eq!(report.stuck, [], "seed {seed}");
        assert_equal(&below, &story.tree, &format!("seed {seed}"));
        assert!(hidden_left(&bed.path("below")).is_empty(), "seed {seed}");
        below.calls.take();
        assert_eq!(below.apply(&story.tree).applied, 0);
        assert!(below.calls.take().is_empty(), "nothing is pending");
    }
}

#[test]
fn a_call_that_fails_loses_nothing_and_the_next_apply_finishes() {
    let mut failures = 0;
    for seed in 0..30 {
        let bed = TempTree::new();
        let below = Below::new(&bed.path("below"));
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        for round in 0..12 {
            (0..25).for_each(|_| drop(story.step()));
            (0..seed % 3 * 10).for_each(|_| story.shuffle());
            story.let_go();
            let errno = [libc::EIO, libc::ENOSPC, libc::EACCES, libc::EROFS][round % 4];
            calls_of(&below);
            below.calls.fail(story.random.below(60) as usize, errno);
            failures += below.apply(&story.tree).stuck.len();
        }
        below.calls.fail(usize::MAX / 2, libc::EIO);
        let report = below.apply(&story.tree);
        assert_eq!(report.stuck, [], "seed {seed}");
        assert_equal(&below, &story.tree, &format!("seed {seed}"));
        assert!(hidden_left(&bed.path("below")).is_empty(), "seed {seed}");
    }
    assert!(failures > 50, "{failures}");
}

#[test]
fn opposites_make_no_call_below_a_chain_of_renames_one_name_and_ten_modes_none_more() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    below.apply(&tree);
    file(&tree, &root, "first", 1);
    below.apply(&tree);
    let requests = calls_of(&below);
    file(&tree, &root, "small", 1);
    below.apply(&tree);
    let requests_again = calls_of(&below);
    // The directory's times are set once for all its files.
    let of_root = ["attributes", "xattr_names", "set_times"].len();
    println!("requests of a small file and its directory: {requests_again:?} ({of_root} of them for the directory)");
    assert!(requests.len() - of_root <= 8 && requests_again.len() - of_root <= 8, "{requests:?}");

    drop(file(&tree, &root, "gone", 3));
    tree.remove(&ALICE, &root, OsStr::new("gone"), namespace::NameKind::File).unwrap();
    below.apply(&tree);
    let calls = calls_of(&below);
    assert!(calls.len() <= of_root, "{calls:?}");

    let inode = file(&tree, &root, "0", 1);
    for number in 0..10 {
        let (from, to) = (number.to_string(), (number + 1).to_string());
        tree.rename(&ALICE, (&root, OsStr::new(&from)), (&root, OsStr::new(&to)), 0).unwrap();
        tree.set_mode(&ALICE, &inode, 0o600 + number).unwrap();
    }
    below.apply(&tree);
    assert_eq!(calls_of(&below).len(), requests_again.len());
    assert_equal(&below, &tree, "in the end");
}

#[test]
fn a_small_file_costs_four_calls_of_the_seam_and_the_write_at_any_width() {
    for width in [1, 8] {
        let bed = TempTree::new();
        let (below, tree) = (Below { width, ..Below::new(&bed.path("below")) }, open(Medium::default(), 64 << 10));
        let root = tree.root().unwrap();
        (0..100).for_each(|number| drop(file(&tree, &root, &number.to_string(), 1)));
        assert_eq!(below.apply(&tree).stuck, []);
        let calls = calls_of(&below);
        for (call, of_root) in [("create_hidden", 0), ("identify", 0), ("set_times", 1), ("rename_hidden", 0)] {
            assert_eq!(calls.iter().filter(|other| **other == call).count(), 100 + of_root, "{call}");
        }
        // The root's attributes, and whether it hands down ACLs: threads may ask that at the same time.
        assert!(calls.len() <= 400 + 3 + width, "{} calls", calls.len());
    }
}

#[test]
fn files_that_replace_others_take_their_names_without_a_moment_between() {
    let bed = TempTree::new();
    let (below, tree) = (Below { width: 4, ..Below::new(&bed.path("below")) }, open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    (0..100).for_each(|number| drop(file(&tree, &root, &number.to_string(), 1)));
    assert_eq!(below.apply(&tree).stuck, []);
    for number in 0..100 {
        let (new, old) = (format!("{number}.new"), number.to_string());
        file(&tree, &root, &new, 2);
        tree.rename(&ALICE, (&root, OsStr::new(&new)), (&root, OsStr::new(&old)), 0).unwrap();
    }
    calls_of(&below);
    let report = below.apply(&tree);
    assert_eq!((report.applied, report.removed), (101, 100));
    // One name is tried, looked at and taken; one is looked for and not removed.
    let calls = calls_of(&below);
    let count = |call: &str| calls.iter().filter(|other| **other == call).count();
    assert_eq!((count("rename_hidden"), count("lookup"), count("remove")), (200, 200, 0), "{calls:?}");
    assert_equal(&below, &tree, "in the end");
}

#[test]
fn a_name_that_somebody_else_makes_below_is_kept_and_reported() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    tree.make(&ALICE, &root, OsStr::new("d"), NewName::Directory(mode(0o777))).unwrap();
    let directory = tree.lookup(&root, OsStr::new("d")).unwrap().inode;
    file(&tree, &root, "ours", 1);
    file(&tree, &directory, "within", 1);
    std::fs::write(bed.path("below/ours"), "theirs").unwrap();
    std::fs::write(bed.path("below/d"), "theirs").unwrap();
    let report = below.apply(&tree);
    let mut stuck: Vec<_> =
        report.stuck.iter().map(|stuck| (stuck.path.to_str().unwrap().to_owned(), stuck.errno)).collect();
    stuck.sort();
    let expected = [("d", libc::EEXIST), ("d/within", libc::EAGAIN), ("ours", libc::EEXIST)];
    assert_eq!(stuck, expected.map(|(path, errno)| (path.to_owned(), errno)));
    assert_eq!(std::fs::read(bed.path("below/ours")).unwrap(), b"theirs");
    assert_eq!(std::fs::read(bed.path("below/d")).unwrap(), b"theirs");
    // A foreign file in a directory that is removed stays, and so does its directory.
    std::fs::rename(bed.path("below/d"), bed.path("below/e")).unwrap();
    std::fs::rename(bed.path("below/ours"), bed.path("below/f")).unwrap();
    assert_eq!(below.apply(&tree).stuck, []);
    std::fs::write(bed.path("below/d/foreign"), "theirs").unwrap();
    tree.remove(&ALICE, &directory, OsStr::new("within"), namespace::NameKind::File).unwrap();
    tree.remove(&ROOT, &root, OsStr::new("d"), namespace::NameKind::Directory).unwrap();
    let report = below.apply(&tree);
    assert_eq!(report.stuck.iter().map(|stuck| stuck.errno).collect::<Vec<_>>(), [libc::ENOTEMPTY]);
    assert_eq!(std::fs::read(bed.path("below/d/foreign")).unwrap(), b"theirs");
    assert!(!bed.path("below/d/within").exists());
    std::fs::remove_file(bed.path("below/d/foreign")).unwrap();
    assert_eq!(below.apply(&tree).stuck, []);
    assert!(!bed.path("below/d").exists());
    assert_eq!(tree.pending_len(), 0);
}

#[test] // S71
fn a_change_in_a_directory_that_others_have_removed_is_reported_and_the_directory_is_made_again_on_demand() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    tree.make(&ALICE, &root, OsStr::new("d"), NewName::Directory(mode(0o777))).unwrap();
    let directory = tree.lookup(&root, OsStr::new("d")).unwrap().inode;
    file(&tree, &directory, "changed", 1);
    file(&tree, &directory, "same", 1);
    assert_eq!(below.apply(&tree).stuck, []);
    std::fs::remove_dir_all(bed.path("below/d")).unwrap();
    let changed = tree.lookup(&directory, OsStr::new("changed")).unwrap().inode;
    tree.set_mode(&ALICE, &changed, 0o600).unwrap();
    let stuck = below.apply(&tree).stuck;
    assert_eq!(
        stuck.iter().map(|one| (one.path.to_str().unwrap(), one.errno)).collect::<Vec<_>>(),
        [("d/changed", libc::ENOENT)]
    );
    tree.require_again(&tree.with_all_below(tree.number_of(&directory).unwrap())).unwrap();
    assert_eq!(below.apply(&tree).stuck, []);
    assert_equal(&below, &tree, "all is there again");
}

#[test] // S71
fn a_node_that_is_dropped_leaves_the_store_as_it_is_and_no_hidden_file() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    file(&tree, &root, "named", 1);
    assert_eq!(below.apply(&tree).stuck, []);
    tree.rename(&ROOT, (&root, OsStr::new("named")), (&root, OsStr::new("taken")), 0).unwrap();
    tree.make(&ALICE, &root, OsStr::new("d"), NewName::Directory(mode(0o777))).unwrap();
    let directory = tree.lookup(&root, OsStr::new("d")).unwrap().inode;
    file(&tree, &directory, "within", 1);
    std::fs::write(bed.path("below/taken"), "theirs").unwrap();
    std::fs::write(bed.path("below/d"), "theirs").unwrap();
    let stuck = below.apply(&tree).stuck;
    assert_eq!(stuck.len(), 3, "{stuck:?}");
    for one in stuck.iter().filter(|one| one.errno == libc::EEXIST) {
        tree.disown(one.number).unwrap();
        tree.assert_invariants();
    }
    assert_eq!(below.apply(&tree).stuck, []);
    drop(directory);
    assert_eq!((tree.len(), tree.pending_len()), (1, 0));
    let mut names: Vec<_> =
        std::fs::read_dir(bed.path("below")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["d", "named", "taken"]);
}
