//! Recovery: a log gives the tree back, wherever it ends and whatever fails.

mod story;

use std::collections::BTreeMap;

use delegation::layout::{self, FileHeader, HEADER_BYTES};
use delegation::{Applied, BelowCopy, BelowState, Cleaning, DelegatedTree, DelegationSettings, InodeNumbers};
use namespace::{NameKind, Names};
use std::sync::Arc;
use story::medium::Medium;
use story::{ALICE, Snapshot, Story, errno, new_file, open, snapshot, try_open};
use testkit::Random;
use types::Identity;

/// Bytes of a log file: so few that a story fills many.
const FILE_BYTES: u64 = 2 << 10;

/// Ends of all whole transactions, by file and byte, with their sequences.
fn boundaries(files: &BTreeMap<u32, Vec<u8>>) -> Vec<(u32, usize, u64)> {
    let mut found = Vec::new();
    for (number, bytes) in files {
        let (header, mut at) = (FileHeader::decode(bytes).unwrap(), HEADER_BYTES);
        found.push((*number, at, header.first - 1));
        while let Some(frame) = layout::decode_frame(&bytes[at..], &header.file) {
            at += frame.length;
            found.push((*number, at, frame.sequence));
        }
    }
    found
}

/// Returns the log up to a byte of a file.
fn cut(files: &BTreeMap<u32, Vec<u8>>, number: u32, at: usize) -> BTreeMap<u32, Vec<u8>> {
    let mut left: BTreeMap<u32, Vec<u8>> =
        files.range(..=number).map(|(number, bytes)| (*number, bytes.clone())).collect();
    left.get_mut(&number).unwrap().truncate(at);
    left
}

/// Tells a story, and returns the snapshot after each transaction.
fn tell(story: &mut Story, steps: usize, mut between: impl FnMut(&mut Story)) -> BTreeMap<u64, Snapshot> {
    let mut snapshots = BTreeMap::from([(story.tree.log().end(), snapshot(&story.tree))]);
    for _ in 0..steps {
        let _ = story.step();
        let (end, now) = (story.tree.log().end(), snapshot(&story.tree));
        assert!(
            snapshots.insert(end, now).is_none_or(|before| before == snapshots[&end]),
            "unlogged changes are not kept"
        );
        between(story);
        snapshots.insert(story.tree.log().end(), snapshot(&story.tree));
    }
    snapshots
}

#[test]
fn a_log_cut_after_any_transaction_gives_the_tree_of_that_moment() {
    for seed in 0..8 {
        let medium = Medium::default();
        let mut story = Story::new(open(medium.clone(), FILE_BYTES), seed);
        let snapshots = tell(&mut story, 400, Story::let_go);
        let (files, mut random) = (medium.files(), Random(seed));
        assert!(files.len() > 2, "the story fills files");
        for (number, at, sequence) in boundaries(&files).into_iter().filter(|(.., sequence)| *sequence > 0) {
            let again = open(Medium::of_files(cut(&files, number, at)), FILE_BYTES);
            assert_eq!(snapshot(&again), snapshots[&sequence], "seed {seed}, transaction {sequence}");
            // A torn end behind it changes nothing.
            let torn = (at + 1 + random.below(40) as usize).min(files[&number].len());
            let again = open(Medium::of_files(cut(&files, number, torn)), FILE_BYTES);
            assert_eq!(snapshot(&again), snapshots[&sequence], "seed {seed}, behind transaction {sequence}");
        }
    }
}

#[test]
fn a_crash_of_the_machine_loses_nothing_that_was_synced_and_keeps_a_moment_of_the_past() {
    let mut torn = 0;
    for seed in 0..200 {
        let (mut medium, mut random) = (Medium::default(), Random(seed));
        let (mut snapshots, mut synced) = (BTreeMap::new(), 0);
        for life in 0..4 {
            let place = format!("seed {seed}, life {life}");
            let (tree, report) = try_open(Box::new(medium.clone()), FILE_BYTES).unwrap();
            assert!(report.damage.is_none_or(|damage| !damage.synced), "{place}: {report:?}");
            tree.assert_invariants();
            torn += u32::from(report.damage.is_some());
            if life > 0 && synced > 0 {
                let last = tree.log().end();
                assert!(last >= synced, "{place}: {last} of {synced}");
                assert_eq!(snapshot(&tree), snapshots[&last], "{place}: {last}, synced {synced}");
            }
            let mut story = Story::new(tree, seed * 10 + life);
            synced = story.tree.log().end();
            let (steps, mut last_sync) = (1 + random.below(150) as usize, 0);
            snapshots = tell(&mut story, steps, |story| {
                if random.below(10) == 0 {
                    story.tree.sync().unwrap();
                    last_sync = story.tree.log().end();
                }
                if seed % 2 == 0 && random.below(3) == 0 {
                    story.tree.clean().unwrap();
                }
                story.let_go();
            });
            // The root of a new tree may be lost as all else.
            synced = if life == 0 { last_sync } else { synced.max(last_sync) };
            if synced == 0 {
                break;
            }
            medium = medium.crash(&mut random);
        }
    }
    assert!(torn > 10, "crashes leave gaps, which are told: {torn}");
}

#[test]
fn a_call_that_fails_changes_nothing_and_the_next_succeeds() {
    for seed in 0..3 {
        for nth in 1..80 {
            let medium = Medium::default();
            let mut story = Story::new(open(medium.clone(), FILE_BYTES), seed);
            for _ in 0..10 {
                let _ = story.step();
            }
            medium.fail(nth);
            while !medium.has_failed() {
                let (before, end) = (snapshot(&story.tree), story.tree.log().end());
                let _ = story.step();
                if medium.has_failed() && story.tree.log().end() == end {
                    assert_eq!(snapshot(&story.tree), before, "seed {seed}, call {nth}");
                }
            }
            story.tree.assert_invariants();
            let again = open(Medium::of_files(medium.files()), FILE_BYTES);
            assert_eq!(snapshot(&again), snapshot(&story.tree), "seed {seed}, call {nth}");
            for _ in 0..20 {
                let failed = story.step().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC));
                assert!(!failed, "the medium works again");
            }
            let again = open(Medium::of_files(medium.files()), FILE_BYTES);
            assert_eq!(snapshot(&again), snapshot(&story.tree), "seed {seed}, later");
        }
    }
}

#[test]
fn cleaning_that_fails_at_any_call_loses_nothing_and_can_be_tried_again() {
    let (mut failures, mut failed_syncs) = (0, 0);
    for nth in 1..120 {
        let medium = Medium::default();
        let mut story = Story::new(open(medium.clone(), FILE_BYTES), 5);
        (0..800).for_each(|_| drop(story.step()));
        medium.fail(nth);
        let mut failed = Ok(Cleaning::Progress);
        while matches!(failed, Ok(Cleaning::Progress)) {
            failed = story.tree.clean();
        }
        story.tree.assert_invariants();
        let again = open(Medium::of_files(medium.files()), FILE_BYTES);
        assert_eq!(snapshot(&again), snapshot(&story.tree), "call {nth}");
        if failed.is_ok() {
            continue;
        }
        // After a failed sync only the next opening goes on.
        let is_over = errno(story.tree.sync()) == libc::EIO;
        let tree = if is_over { again } else { story.tree };
        clean_all(&tree);
        tree.assert_invariants();
        (failures, failed_syncs) = (failures + 1, failed_syncs + u32::from(is_over));
    }
    assert!(failed_syncs > 1 && failures - failed_syncs > 10, "{failures} failures, {failed_syncs} of syncs");
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    let medium = Medium::default();
    let tree = open(medium.clone(), FILE_BYTES);
    let root = tree.root().unwrap();
    tree.create(&ALICE, &root, new_file("a")).unwrap();
    medium.fail(1);
    assert_eq!(errno(tree.sync()), libc::ENOSPC);
    assert_eq!(errno(tree.sync()), libc::EIO);
    assert_eq!(errno(tree.create(&ALICE, &root, new_file("b"))), libc::EIO);
    assert!(tree.lookup(&root, "a".as_ref()).is_ok() && tree.lookup(&root, "b".as_ref()).is_err());
}

fn clean_all(tree: &DelegatedTree) {
    while tree.clean().unwrap() == Cleaning::Progress {}
}

#[test]
fn cleaning_gives_back_the_space_of_what_is_superseded_and_keeps_the_rest() {
    for seed in 0..8 {
        let medium = Medium::default();
        let mut story = Story::new(open(medium.clone(), FILE_BYTES), seed);
        let root = story.tree.root().unwrap();
        for number in 0..300 {
            let _ = story.step();
            story.let_go();
            // Churn beside the story.
            let name = format!("churn {}", number % 7);
            let _ = story.tree.remove(&ALICE, &root, name.as_ref(), NameKind::File);
            let _ = story.tree.create(&ALICE, &root, new_file(&name));
            if number % 3 == 0 {
                story.tree.clean().unwrap();
            }
            if number % 60 == 0 {
                let again = open(Medium::of_files(medium.files()), FILE_BYTES);
                assert_eq!(snapshot(&again), snapshot(&story.tree), "seed {seed}, step {number}");
            }
        }
        clean_all(&story.tree);
        story.tree.assert_invariants();
        let (records, live): (u64, u64) =
            story.tree.log_files().iter().fold((0, 0), |sum, (file, live)| (sum.0 + file.records, sum.1 + live));
        assert!(
            live * 100 >= records * 60 || story.tree.log_files().len() == 1,
            "{live} of {records} records are live"
        );
        let again = open(Medium::of_files(medium.files()), FILE_BYTES);
        assert_eq!(snapshot(&again), snapshot(&story.tree), "seed {seed}");
    }
}

#[test]
fn stable_names_in_old_files_do_not_keep_the_log_growing() {
    let medium = Medium::default();
    let tree = open(medium.clone(), FILE_BYTES);
    let (root, changes) = (tree.root().unwrap(), tree.changes());
    for number in 0..200 {
        tree.create(&ALICE, &root, new_file(&format!("stable {number}"))).unwrap();
    }
    let before = tree.log_files().len();
    for _ in 0..3000 {
        tree.create(&ALICE, &root, new_file("x")).unwrap();
        tree.remove(&ALICE, &root, "x".as_ref(), NameKind::File).unwrap();
        tree.clean().unwrap();
    }
    clean_all(&tree);
    // What was cleaned is in the log again, and is no change.
    assert_eq!(tree.changes(), changes + 200 + 2 * 3000);
    assert!(tree.log().end() > tree.changes());
    assert!(tree.log_files().len() <= 2 * before + 2, "{} files, {before} before", tree.log_files().len());
    let again = open(Medium::of_files(medium.files()), FILE_BYTES);
    assert_eq!(snapshot(&again), snapshot(&tree));
}

#[test]
fn inode_numbers_are_of_their_range_and_no_two_nodes_have_one() {
    for numbers in [InodeNumbers::Wide, InodeNumbers::Narrow] {
        let (medium, mut seen) = (Medium::default(), std::collections::BTreeSet::new());
        for life in 0..4 {
            let settings = DelegationSettings { inode_numbers: numbers, root_ino: 7, ..DelegationSettings::default() };
            let directory = Box::new(medium.clone());
            let (tree, _) =
                DelegatedTree::open(directory, Arc::new(story::NothingBelow), settings, story::root_state()).unwrap();
            let root = tree.root().unwrap();
            assert_eq!(root.ino(), 7);
            for number in 0..5 {
                let (found, anchor) = tree.create(&ALICE, &root, new_file(&format!("{life} {number}"))).unwrap();
                assert_eq!((found.inode.ino(), found.inode.key()), (found.attributes.ino, anchor.identity()));
                seen.insert(found.attributes.ino);
            }
        }
        let range = if numbers == InodeNumbers::Wide { 1 << 62..1 << 63 } else { 1 << 31..1 << 32 };
        assert!(seen.len() == 20 && seen.iter().all(|ino| range.contains(ino)), "{seen:?}");
    }
}

fn below(identity: Option<u8>) -> BelowState {
    let identity = identity.map(|byte| Identity::new([byte]).unwrap());
    BelowState::At(Arc::new(BelowCopy { identity, names: Vec::new(), doubtful: false }))
}

#[test]
fn a_file_that_comes_and_goes_leaves_nothing_and_one_that_the_store_has_leaves_a_tombstone() {
    let medium = Medium::default();
    let tree = open(medium.clone(), FILE_BYTES);
    let root = tree.root().unwrap();
    tree.create(&ALICE, &root, new_file("a")).unwrap();
    tree.remove(&ALICE, &root, "a".as_ref(), NameKind::File).unwrap();
    let pending = tree.pending(None, 10);
    assert_eq!(pending.len(), 1, "the root was touched: {pending:?}");
    assert_eq!(tree.applied(pending[0], below(Some(1))).unwrap(), Applied::Done);
    assert_eq!((tree.pending_len(), tree.len()), (0, 1));
    let (found, _) = tree.create(&ALICE, &root, new_file("b")).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    let node = *tree.pending(None, 10).iter().find(|node| node.number == number).unwrap();
    assert!(tree.note_below(number, below(None)).unwrap());
    tree.set_mode_as_owner(&found.inode);
    assert_eq!(tree.applied(node, below(Some(2))).unwrap(), Applied::ChangedMeanwhile);
    tree.remove(&ALICE, &root, "b".as_ref(), NameKind::File).unwrap();
    drop(found);
    let again = open(Medium::of_files(medium.files()), FILE_BYTES);
    for tree in [&tree, &again] {
        let state = tree.state(number).expect("a tombstone");
        let BelowState::At(copy) = state.below else { panic!("the store has the file") };
        // What was changed meanwhile may have been the content.
        assert!(state.names.is_empty() && copy.identity == Some(Identity::new([2]).unwrap()) && copy.doubtful);
        assert!(tree.pending(None, 10).iter().any(|node| node.number == number));
        tree.forgotten(number).unwrap();
        assert_eq!(tree.state(number), None);
        tree.assert_invariants();
    }
    assert_eq!(tree.applied(node, below(Some(2))).unwrap(), Applied::Gone);
}

trait Change {
    fn set_mode_as_owner(&self, inode: &namespace::Inode);
}

impl Change for DelegatedTree {
    fn set_mode_as_owner(&self, inode: &namespace::Inode) {
        namespace::Attributes::set_mode(self, &ALICE, inode, 0o600).unwrap();
    }
}

#[test]
fn pending_nodes_come_in_the_order_of_their_first_change_once_each() {
    let tree = open(Medium::default(), FILE_BYTES);
    let root = tree.root().unwrap();
    let node = tree.pending(None, 10);
    assert!(node.is_empty(), "the store has the root");
    let mut numbers = Vec::new();
    for number in 0..50 {
        let (found, _) = tree.create(&ALICE, &root, new_file(&format!("{number}"))).unwrap();
        numbers.push(tree.number_of(&found.inode).unwrap());
    }
    let (found, first) = (tree.lookup(&root, "0".as_ref()).unwrap(), numbers[0]);
    tree.set_mode_as_owner(&found.inode);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let some = tree.pending(after, 7);
        let Some(last) = some.last() else { break };
        after = Some(*last);
        seen.extend(some.iter().map(|node| node.number));
    }
    seen.retain(|number| *number != delegation::NodeNumber::ROOT);
    assert_eq!(seen, numbers, "a later change of a node leaves it its place");
    let node = *tree.pending(None, 10).iter().find(|node| node.number == first).unwrap();
    assert_eq!(tree.applied(node, below(Some(3))).unwrap(), Applied::Done);
    assert!(tree.pending(None, 100).iter().all(|node| node.number != first));
}
