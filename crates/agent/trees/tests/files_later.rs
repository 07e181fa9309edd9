//! Work for the files of a delegated tree that no program waits for.

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use data_store::WriteWhere;
use delegation::DataPlace;
use namespace::{NameKind, Names};
use support::{ALICE, Bed};
use testkit::{PATIENCE, wait_until};
use types::Version;

fn bed() -> Bed {
    let bed = Bed::new();
    bed.files.settle_later();
    bed
}

#[test] // S8, S71
fn a_file_has_its_size_at_once_after_its_close_and_the_tree_has_it_soon() {
    let bed = bed();
    for round in 0..20 {
        let (inode, number, data) = bed.create(&round.to_string());
        data.write_at(b"bytes", WriteWhere::At(0)).unwrap();
        drop(data);
        if round % 2 == 0 {
            assert_eq!((bed.stat(&inode).size, bed.tree.content(number).unwrap().size), (5, 5));
        } else {
            wait_until("the size", PATIENCE, || bed.tree.content(number).unwrap().size == 5);
        }
        assert!(!bed.files.is_written_to(number));
        assert_eq!(bed.read(number), b"bytes");
    }
    assert_eq!((bed.files.writers(), bed.files.usage().open), (Vec::new(), 0));
}

#[test] // S71
fn everything_that_was_closed_is_settled_before_a_tree_is_brought_or_ends() {
    let bed = bed();
    let files: Vec<_> = (0..1500).map(|n| bed.make(&n.to_string(), b"bytes")).collect();
    bed.files.settle_all().unwrap();
    assert!(files.iter().all(|(_, number)| bed.tree.content(*number).unwrap().size == 5));
    let (_, number) = bed.make("last", b"last");
    assert!(bed.files.end_writing(|| bed.tree.content(number).unwrap().size == 4));
}

#[test] // S4, S71
fn a_file_that_is_removed_right_after_its_close_leaves_nothing() {
    let bed = bed();
    for round in 0..20 {
        let (inode, number) = bed.make("a", b"bytes");
        bed.tree.remove(&ALICE, &bed.tree.root().unwrap(), "a".as_ref(), NameKind::File).unwrap();
        if round % 2 == 0 {
            bed.files.unlinked(number);
            drop(inode);
        } else {
            drop(inode);
            bed.files.unlinked(number);
        }
    }
    bed.sync_names();
    wait_until("the drops", PATIENCE, || bed.files.usage().files == 0);
}

#[test] // S71
fn a_file_that_was_mapped_is_settled_though_nobody_asks() {
    let bed = bed();
    let (_, number, data) = bed.create("a");
    let passthrough = data.passthrough().unwrap();
    assert!(passthrough.begin());
    let fd = passthrough.backing().unwrap();
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mapping = File::options().read(true).write(true).open(path).unwrap();
    drop((data, fd));
    mapping.write_at(b"mapped", 0).unwrap();
    assert!(bed.files.is_written_to(number));
    drop(mapping);
    wait_until("the size", PATIENCE, || bed.tree.content(number).unwrap().size == 6);
}

#[test] // S71
fn a_local_file_that_is_ready_was_told_of_before_it_is_given() {
    let bed = bed();
    let told: [Arc<Mutex<Vec<Version>>>; 2] = Default::default();
    let [ready, removed] = told.clone();
    bed.files.observe_ready(Box::new(move |version, _, _| ready.lock().unwrap().push(version)));
    bed.files.observe_removals(Box::new(move |version| removed.lock().unwrap().push(version)));
    let take = || match bed.files.new_place() {
        DataPlace::Replica(number) => Some(number),
        _ => None,
    };
    let mut number = take();
    wait_until("a ready file", PATIENCE, || {
        number = number.or_else(take);
        number.is_some()
    });
    let number = number.unwrap();
    assert!(told[0].lock().unwrap().contains(&Version(number)));
    bed.files.return_place(DataPlace::Replica(number));
    bed.files.close();
    let sorted = |at: usize| {
        let mut all = told[at].lock().unwrap().clone();
        all.sort();
        all
    };
    assert_eq!(sorted(0), sorted(1), "a file that nobody gets is not kept registered");
}
