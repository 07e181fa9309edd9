//! Directories of the global store that are read into a tree.

mod story;

use std::sync::Arc;

use delegation::{BelowState, DataPlace, FoundBelow, NodeKind, NodeNumber, ShortName, Xattrs};
use namespace::{Attributes, Caller, FileAttributes, Inode, NameKind, Names, NewMode, NewName};
use story::medium::Medium;
use types::{Identity, Timestamp};

fn found(name: &str, kind: NodeKind, number: u64) -> FoundBelow {
    let time = Timestamp { seconds: 1_600_000_000 + number as i64, nanos: 7 };
    let attributes = FileAttributes {
        ino: 1000 + number,
        size: 10 * number,
        blocks: 1,
        atime: time,
        mtime: time,
        ctime: time,
        mode: kind.file_type().as_raw_mode() | 0o640,
        nlink: if kind == NodeKind::Directory { 5 } else { 1 },
        uid: 7,
        gid: 8,
        rdev: 0,
        blksize: 4096,
    };
    FoundBelow {
        name: ShortName::new(name.as_bytes()).unwrap(),
        identity: Identity::new(number.to_le_bytes()).unwrap(),
        kind,
        attributes,
        xattrs: Xattrs::new(),
        target: Box::default(),
        stays_outside: false,
    }
}

/// Opens a tree whose root's names are still to be read.
fn unread(medium: &Medium) -> delegation::DelegatedTree {
    let root = delegation::NodeState { data: DataPlace::BelowOnly, size: 9, ..story::root_state() };
    let settings = delegation::DelegationSettings::default();
    let below = Arc::new(story::NothingBelow);
    let (tree, report) = delegation::DelegatedTree::open(Box::new(medium.clone()), below, settings, root).unwrap();
    assert_eq!(report.damage, None);
    tree.assert_invariants();
    tree
}

fn look(tree: &delegation::DelegatedTree, parent: &Inode, name: &str) -> (Inode, FileAttributes) {
    let found = tree.lookup(parent, name.as_ref()).unwrap();
    (found.inode, found.attributes)
}

#[test] // S71
fn what_was_read_is_as_the_store_has_it_and_nothing_of_it_is_pending() {
    let medium = Medium::default();
    let tree = unread(&medium);
    let root = tree.root().unwrap();
    assert_eq!((tree.is_unread(&root).unwrap(), tree.attributes(&root).unwrap().nlink), (true, 9));
    let outside = FoundBelow { stays_outside: true, ..found("outside", NodeKind::File, 3) };
    let names = vec![found("file", NodeKind::File, 1), found("sub", NodeKind::Directory, 2), outside];
    tree.take_up(NodeNumber::ROOT, names).unwrap();
    for tree in [tree, unread(&medium)] {
        let root = tree.root().unwrap();
        assert!(!tree.is_unread(&root).unwrap());
        let (file, sub) = (look(&tree, &root, "file"), look(&tree, &root, "sub"));
        let expected = found("file", NodeKind::File, 1).attributes;
        let as_told = |found: &FileAttributes| {
            (found.ino, found.size, found.mtime, found.ctime, found.mode, found.uid, found.gid)
        };
        assert_eq!(as_told(&file.1), as_told(&expected));
        assert_eq!((file.0.ino(), sub.1.nlink, tree.is_unread(&sub.0).unwrap()), (1001, 5, true));
        assert_eq!((tree.attributes(&root).unwrap().nlink, tree.pending_len()), (3, 0));
        let places: Vec<_> =
            ["file", "sub", "outside"].map(|name| tree.named(&root, name.as_bytes()).unwrap().unwrap().1).into();
        assert_eq!(places, [DataPlace::BelowOnly, DataPlace::BelowOnly, DataPlace::Outside]);
        let state = tree.state(tree.number_of(&file.0).unwrap()).unwrap();
        let BelowState::At(copy) = &state.below else { panic!("{state:?}") };
        assert_eq!(
            (copy.identity.as_ref(), &copy.names),
            (Some(&Identity::new(1_u64.to_le_bytes()).unwrap()), &state.names)
        );
    }
}

#[test] // S71
fn files_that_follow_one_are_those_of_its_directory_that_only_the_store_has() {
    let tree = unread(&Medium::default());
    let root = tree.root().unwrap();
    let large = FoundBelow {
        attributes: FileAttributes { size: 500, ..found("c", NodeKind::File, 3).attributes },
        ..found("c", NodeKind::File, 3)
    };
    let names = vec![
        found("a", NodeKind::File, 1),
        found("b", NodeKind::Directory, 2),
        large,
        found("d", NodeKind::File, 4),
        found("e", NodeKind::File, 5),
    ];
    tree.take_up(NodeNumber::ROOT, names).unwrap();
    let number = |name: &str| tree.named(&root, name.as_bytes()).unwrap().unwrap().0;
    let [a, d, e] = ["a", "d", "e"].map(number);
    assert_eq!(tree.unread_after(a, 100, 9), Some((NodeNumber::ROOT, vec![d, e])));
    assert_eq!(
        (tree.unread_after(a, 100, 1), tree.unread_after(e, 100, 9)),
        (Some((NodeNumber::ROOT, vec![d])), Some((NodeNumber::ROOT, vec![])))
    );
    tree.set_place(d, DataPlace::Replica(7)).unwrap();
    assert_eq!((tree.unread_after(a, 100, 9), tree.unread_after(d, 100, 9)), (Some((NodeNumber::ROOT, vec![e])), None));
    assert_eq!(tree.unread_after(number("b"), 100, 9), None);
}

#[test] // S71
fn a_directory_is_taken_up_once() {
    let tree = unread(&Medium::default());
    let root = tree.root().unwrap();
    tree.take_up(NodeNumber::ROOT, vec![found("file", NodeKind::File, 1)]).unwrap();
    tree.remove(&story::ROOT, &root, "file".as_ref(), NameKind::File).unwrap();
    // Who read at the same time comes later.
    tree.take_up(NodeNumber::ROOT, vec![found("file", NodeKind::File, 1)]).unwrap();
    assert_eq!(story::errno(tree.lookup(&root, "file".as_ref())), libc::ENOENT);
    assert_eq!((tree.pending_len() > 0, story::errno(tree.take_up(NodeNumber(77), Vec::new()))), (true, libc::ENOENT));
}

#[test] // S71
fn a_reading_that_failed_at_any_moment_is_done_again() {
    let names = || (1..3000).map(|number| found(&format!("name {number}"), NodeKind::File, number)).collect::<Vec<_>>();
    for nth in 1.. {
        let medium = Medium::default();
        let tree = unread(&medium);
        medium.fail(nth);
        let failed = tree.take_up(NodeNumber::ROOT, names()).is_err();
        drop(tree);
        if !medium.has_failed() {
            assert!(nth > 3, "the log was written in one piece");
            return;
        }
        // The agent dies, and the next reads again.
        let tree = unread(&medium);
        let root = tree.root().unwrap();
        assert!(!failed || tree.is_unread(&root).unwrap());
        tree.take_up(NodeNumber::ROOT, names()).unwrap();
        assert_eq!((story::names_of(&tree, &story::ROOT, &root).unwrap().len(), tree.pending_len()), (2999 + 2, 0));
    }
}

#[test] // S71
fn a_directory_of_the_store_that_was_not_read_moves_and_gets_attributes_as_others() {
    let tree = unread(&Medium::default());
    let root = tree.root().unwrap();
    tree.take_up(NodeNumber::ROOT, vec![found("sub", NodeKind::Directory, 2)]).unwrap();
    tree.make(&Caller::own(), &root, "other".as_ref(), NewName::Directory(NewMode { mode: 0o700, umask: 0 })).unwrap();
    let (other, _) = look(&tree, &root, "other");
    tree.rename(&story::ROOT, (&root, "sub".as_ref()), (&other, "moved".as_ref()), 0).unwrap();
    let (sub, _) = look(&tree, &other, "moved");
    tree.set_mode(&story::ROOT, &sub, 0o711).unwrap();
    assert!(tree.is_unread(&sub).unwrap());
    let node = tree.number_of(&sub).unwrap();
    tree.take_up(node, vec![found("file", NodeKind::File, 1), found("deep", NodeKind::Directory, 3)]).unwrap();
    assert_eq!((look(&tree, &sub, "file").1.ino, tree.attributes(&sub).unwrap().nlink), (1001, 3));
    tree.assert_invariants();
}
