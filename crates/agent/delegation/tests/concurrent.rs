//! Many threads in one tree.

mod story;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use delegation::Cleaning;
use namespace::{NameKind, Names, NewName};
use story::medium::Medium;
use story::{ALICE, ROOT, Story, mode, names_of, new_file, open, snapshot};
use testkit::Random;

#[test]
fn threads_that_change_one_tree_leave_it_whole_and_the_log_agrees() {
    let medium = Medium::default();
    let tree = open(medium.clone(), 16 << 10);
    let root = tree.root().unwrap();
    for name in ["one", "two"] {
        tree.make(&ROOT, &root, name.as_ref(), NewName::Directory(mode(0o777))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|of| {
                let tree = &tree;
                scope.spawn(move || {
                    let mut random = Random(of);
                    let root = tree.root().unwrap();
                    let directories = ["one", "two"].map(|name| tree.lookup(&root, name.as_ref()).unwrap().inode);
                    for _ in 0..1500 {
                        let [from, to] = [0, 1].map(|_| &directories[random.below(2) as usize]);
                        let [a, b] = [0, 1].map(|_| format!("{}", random.below(12)));
                        let (a, b): (&OsStr, &OsStr) = (a.as_ref(), b.as_ref());
                        match random.below(6) {
                            0 | 1 => drop(tree.create(&ROOT, from, new_file(a.to_str().unwrap()))),
                            2 => drop(tree.rename(&ROOT, (from, a), (to, b), random.below(2) as u32 * 2)),
                            3 => drop(tree.remove(&ROOT, from, a, NameKind::File)),
                            4 => drop(tree.lookup(from, a).map(|found| tree.link(&ROOT, &found.inode, to, b))),
                            _ => drop(names_of(tree, &ROOT, from).unwrap()),
                        }
                        if random.below(200) == 0 {
                            tree.sync().unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if tree.clean().unwrap() == Cleaning::Idle {
                    thread::yield_now();
                }
                let pending = tree.pending(None, 16);
                assert!(pending.is_sorted_by_key(|node| node.stamp));
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    tree.assert_invariants();
    let again = open(Medium::of_files(medium.files()), 16 << 10);
    assert_eq!(snapshot(&again), snapshot(&tree));
}

#[test]
fn a_reading_shows_each_unchanged_name_once_whatever_changes_beside_it() {
    let tree = open(Medium::default(), 1 << 20);
    let root = tree.root().unwrap();
    for number in 0..2000 {
        let kind = if number % 2 == 0 { "stays" } else { "goes" };
        tree.create(&ALICE, &root, new_file(&format!("{kind} {number}"))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (tree, is_over) = (&tree, &is_over);
        scope.spawn(move || {
            let (root, mut random) = (tree.root().unwrap(), Random(1));
            while !is_over.load(Ordering::Relaxed) {
                let (name, new) =
                    (format!("goes {}", random.below(1000) * 2 + 1), format!("comes {}", random.below(50)));
                let _ = tree.remove(&ALICE, &root, name.as_ref(), NameKind::File);
                let _ = tree.create(&ALICE, &root, new_file(&new));
                let _ = tree.rename(&ALICE, (&root, new.as_ref()), (&root, name.as_ref()), 0);
            }
        });
        for round in 0..40 {
            let directory = tree.open_directory(&ALICE, &root).unwrap();
            let (mut seen, mut offset) = (BTreeMap::<Vec<u8>, u32>::new(), 0);
            loop {
                let (mut taken, before) = (0, offset);
                directory
                    .read(offset, &mut |entry| {
                        if taken == 100 + round {
                            return false;
                        }
                        (taken, offset) = (taken + 1, entry.next);
                        *seen.entry(entry.name.as_bytes().to_vec()).or_default() += 1;
                        true
                    })
                    .unwrap();
                if offset == before {
                    break;
                }
            }
            let stays = seen.iter().filter(|(name, _)| name.starts_with(b"stays"));
            assert_eq!(stays.clone().count(), 1000);
            assert!(stays.into_iter().all(|(_, times)| *times == 1));
            assert!(seen[&b"."[..]] == 1 && seen[&b".."[..]] == 1);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_removed_node_stays_for_those_who_hold_it_and_no_longer() {
    let tree = open(Medium::default(), 1 << 20);
    let root = tree.root().unwrap();
    for _ in 0..3 {
        let (found, anchor) = tree.create(&ALICE, &root, new_file("a")).unwrap();
        let again = tree.lookup(&root, "a".as_ref()).unwrap();
        tree.remove(&ALICE, &root, "a".as_ref(), NameKind::File).unwrap();
        assert_eq!(tree.len(), 2);
        drop((found, again));
        assert_eq!((tree.len(), anchor.attributes().unwrap().links), (2, 0));
        drop(anchor);
        assert_eq!(tree.len(), 1);
        let unnamed = namespace::NewFile { name: None, mode: mode(0o600), exclusive: false };
        let (found, anchor) = tree.create(&ALICE, &root, unnamed).unwrap();
        drop(anchor);
        tree.link(&ALICE, &found.inode, &root, "b".as_ref()).unwrap();
        drop(found);
        assert_eq!(tree.len(), 2, "a file that got its first name stays");
        tree.remove(&ALICE, &root, "b".as_ref(), NameKind::File).unwrap();
        assert_eq!(tree.len(), 1);
        drop(tree.create(&ALICE, &root, unnamed).unwrap());
        assert_eq!(tree.len(), 1);
    }
}

#[test]
fn a_long_story_leaves_nothing_behind_when_all_is_let_go() {
    let mut story = Story::new(open(Medium::default(), 1 << 20), 9);
    for _ in 0..3000 {
        let _ = story.step();
        story.let_go();
    }
    story.met.clear();
    story.tree.assert_invariants();
    let states = story.tree.states();
    let names: usize = states.iter().map(|state| state.names.len().max(1)).sum();
    assert_eq!(story.tree.len(), names, "nodes without a name are gone");
}
