//! Requests for an apply: one node, progress, an early end. And records of where data is.

mod story;

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;

use delegation::{ApplyProgress, ApplyRequest, DataPlace, DelegatedTree};
use namespace::{Attributes, Inode, Names, NewName};
use story::below::{Below, hidden_left, seen_of};
use story::medium::Medium;
use story::{ALICE, BOB, ROOT, Story, errno, mode, new_file, open, snapshot};
use testkit::TempTree;
use types::{NewTime, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 7 }
}

fn file(tree: &DelegatedTree, directory: &Inode, name: &str, version: u64) -> Inode {
    let (found, _) = tree.create(&ALICE, directory, new_file(name)).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    tree.set_content(number, version * 1000, at(1_500_000_000), DataPlace::Replica(version)).unwrap();
    found.inode
}

fn directory(tree: &DelegatedTree, parent: &Inode, name: &str) -> Inode {
    tree.make(&ALICE, parent, OsStr::new(name), NewName::Directory(mode(0o777))).unwrap();
    tree.lookup(parent, OsStr::new(name)).unwrap().inode
}

#[test]
fn a_recorded_place_of_data_changes_nothing_else_and_is_durable() {
    let (bed, medium) = (TempTree::new(), Medium::default());
    let (below, tree) = (Below::new(&bed.path("below")), open(medium.clone(), 64 << 10));
    let root = tree.root().unwrap();
    let (one, two) = (file(&tree, &root, "one", 1), file(&tree, &root, "two", 2));
    let [first, second] = [&one, &two].map(|inode| tree.number_of(inode).unwrap());
    let pending = tree.pending(None, 9);
    let (before, changes) = (tree.state(first).unwrap(), tree.changes());
    tree.set_place(first, DataPlace::Packed(77)).unwrap();
    let expected = delegation::NodeState { data: DataPlace::Packed(77), ..before };
    assert_eq!(tree.state(first), Some(expected));
    assert_eq!((tree.pending_len(), tree.changes()), (pending.len(), changes));
    assert_eq!(tree.pending(None, 9).iter().map(|node| node.stamp).max(), pending.iter().map(|node| node.stamp).max());
    tree.set_place(first, DataPlace::Replica(1)).unwrap();
    assert_eq!(below.apply(&tree).stuck, []);
    for number in [first, second] {
        tree.set_place(number, DataPlace::BelowOnly).unwrap();
    }
    assert_eq!(tree.pending_len(), 0, "what the store has is not pending because of its place");
    let again = open(Medium::of_files(medium.files()), 64 << 10);
    assert_eq!(snapshot(&again), snapshot(&tree));
    assert_eq!(again.state(second).unwrap().data, DataPlace::BelowOnly);
    assert_eq!(errno(tree.set_place(delegation::NodeNumber::ROOT, DataPlace::None)), libc::EINVAL);
    assert_eq!(errno(tree.set_place(delegation::NodeNumber(99), DataPlace::None)), libc::ENOENT);
    tree.remove(&ALICE, &root, OsStr::new("two"), namespace::NameKind::File).unwrap();
    tree.set_place(second, DataPlace::None).unwrap();
    assert_eq!(tree.state(second).unwrap().data, DataPlace::None, "a file without a name");
}

#[test]
fn attributes_of_the_root_arrive_at_the_directory_below() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    assert_eq!(below.apply(&tree).applied, 0);
    file(&tree, &root, "within", 1);
    tree.set_owner(&ROOT, &root, Some(BOB.uid), Some(BOB.gid)).unwrap();
    tree.set_mode(&ROOT, &root, 0o2750).unwrap();
    tree.set_xattr(&ROOT, &root, c"user.one", b"value", 0).unwrap();
    tree.set_times(&ROOT, &root, [1_400_000_000, 1_300_000_000].map(|time| Some(NewTime::At(at(time))))).unwrap();
    let report = below.apply(&tree);
    assert_eq!((report.stuck, report.applied), (vec![], 2));
    let now = below.store.namespace.attributes(&below.store.root).unwrap();
    assert_eq!((now.mode & 0o7777, now.uid, now.gid), (0o2750, BOB.uid, BOB.gid));
    assert_eq!((now.atime, now.mtime), (at(1_400_000_000), at(1_300_000_000)));
    assert_eq!(below.store.namespace.xattr(&below.store.root, c"user.one").unwrap(), b"value");
    tree.remove_xattr(&ROOT, &root, c"user.one").unwrap();
    assert_eq!((below.apply(&tree).applied, tree.pending_len()), (1, 0));
    let gone = below.store.namespace.xattr(&below.store.root, c"user.one");
    assert_eq!(errno(gone), libc::ENODATA);
}

#[test]
fn an_apply_tells_its_progress_to_the_end() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let (root, told) = (tree.root().unwrap(), RefCell::new(Vec::new()));
    let within = directory(&tree, &root, "d");
    (0..5).for_each(|number| drop(file(&tree, &within, &number.to_string(), 3)));
    let tell = |progress| told.borrow_mut().push(progress);
    below.apply_by(&tree, |request| tree.apply(&ApplyRequest { progress: &tell, ..*request }));
    let told = told.into_inner();
    assert_eq!(told.first(), Some(&ApplyProgress { nodes_done: 1, nodes_left: 6, bytes_left: 12_000 }));
    assert_eq!(told.last(), Some(&ApplyProgress { nodes_done: 7, nodes_left: 0, bytes_left: 0 }));
    assert!(told.windows(2).all(|pair| pair[0].nodes_done + 1 == pair[1].nodes_done));
}

#[test]
fn an_apply_that_is_ended_at_any_step_leaves_the_rest_pending_and_nothing_hidden() {
    let mut ends = 0;
    for seed in 0..60 {
        let bed = TempTree::new();
        let below = Below { width: [1, 4][seed as usize % 2], ..Below::new(&bed.path("below")) };
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        for round in 0..15 {
            for _ in 0..25 {
                let _ = story.step();
                story.shuffle();
            }
            story.let_go();
            let (asked, place) = (Cell::new(0), format!("seed {seed}, round {round}"));
            let last = story.random.below(30);
            let interrupted = || asked.replace(asked.get() + 1) >= last;
            let last_told = Cell::new(ApplyProgress::default());
            let progress = |now| last_told.set(now);
            let report = below.apply_by(&story.tree, |request| {
                story.tree.apply(&ApplyRequest { interrupted: &interrupted, progress: &progress, ..*request })
            });
            assert_eq!(report.stuck, [], "{place}");
            assert_eq!(report.interrupted, story.tree.pending_len() > 0, "{place}");
            assert!(report.interrupted || last_told.get().nodes_left == 0, "{place}");
            ends += usize::from(report.interrupted);
            let removed = |state: &delegation::NodeState| state.names.is_empty();
            let removed = story.tree.states().iter().filter(|state| removed(state)).count() - 1;
            assert!(hidden_left(&bed.path("below")).len() <= removed, "{place}");
        }
        assert_eq!(below.apply(&story.tree).stuck, [], "seed {seed}");
        assert_eq!(seen_of(&story.tree), below.seen(), "seed {seed}");
        assert!(hidden_left(&bed.path("below")).is_empty(), "seed {seed}");
    }
    assert!(ends > 100, "{ends}");
}

#[test]
fn one_node_is_brought_with_the_directories_above_it_and_nothing_else() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    let outer = directory(&tree, &root, "outer");
    let inner = directory(&tree, &outer, "inner");
    directory(&tree, &root, "other");
    let wanted = file(&tree, &inner, "wanted", 1);
    file(&tree, &inner, "not wanted", 1);
    let number = tree.number_of(&wanted).unwrap();
    let bring = |number| below.apply_by(&tree, |request| tree.apply_node(number, request));
    assert_eq!((bring(number).applied, tree.pending_len()), (4, 2));
    let seen: Vec<_> = below.seen().into_keys().map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(seen, ["outer", "outer/inner", "outer/inner/wanted"]);
    below.calls.take();
    assert_eq!((bring(number).applied, below.calls.take().len()), (0, 0), "the store has it");
    // The name that it gets is that of a file which is to go elsewhere: that one goes as well.
    tree.rename(&ALICE, (&inner, OsStr::new("wanted")), (&outer, OsStr::new("moved")), 0).unwrap();
    let late = file(&tree, &inner, "wanted", 2);
    assert_eq!(bring(tree.number_of(&late).unwrap()).stuck, []);
    let seen: Vec<_> = below.seen().into_keys().map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(seen, ["outer", "outer/inner", "outer/inner/wanted", "outer/moved"]);
    tree.remove(&ALICE, &inner, OsStr::new("wanted"), namespace::NameKind::File).unwrap();
    let report = bring(tree.number_of(&late).unwrap());
    assert_eq!((report.stuck, report.removed), (vec![], 1));
    assert_eq!(below.apply(&tree).stuck, []);
    assert_eq!(seen_of(&tree), below.seen());
}

#[test]
fn random_stories_whose_nodes_are_brought_one_by_one_end_below_as_in_the_tree() {
    for seed in 0..40 {
        let bed = TempTree::new();
        let below = Below::new(&bed.path("below"));
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        for step in 0..300 {
            let _ = story.step();
            (0..seed % 3).for_each(|_| story.shuffle());
            story.let_go();
            let pending = story.tree.pending(None, 50);
            if pending.is_empty() {
                continue;
            }
            let number = pending[story.random.below(pending.len() as u64) as usize].number;
            let report = below.apply_by(&story.tree, |request| story.tree.apply_node(number, request));
            // A directory is not removed before what is in it.
            let is_full = |errno| matches!(errno, libc::ENOTEMPTY | libc::EAGAIN);
            assert!(report.stuck.iter().all(|stuck| is_full(stuck.errno)), "seed {seed}, {step}: {report:?}");
        }
        assert_eq!(below.apply(&story.tree).stuck, [], "seed {seed}");
        assert_eq!(seen_of(&story.tree), below.seen(), "seed {seed}");
        assert!(hidden_left(&bed.path("below")).is_empty(), "seed {seed}");
    }
}
