//! Applying beside crashes of machines: what is durable before what.

mod story;

use std::os::unix::fs::FileExt;

use delegation::{DataPlace, NodeNumber};
use namespace::Names;
use story::below::{Below, bytes_of, hidden_left, seen_of};
use story::medium::Medium;
use story::{ALICE, Story, new_file, open, try_open};
use testkit::{Random, TempTree};
use types::Timestamp;

#[test]
fn nothing_is_recorded_as_applied_before_the_store_is_synced() {
    let bed = TempTree::new();
    let (below, tree) = (Below::new(&bed.path("below")), open(Medium::default(), 64 << 10));
    let root = tree.root().unwrap();
    let (found, _) = tree.create(&ALICE, &root, new_file("one")).unwrap();
    let number = tree.number_of(&found.inode).unwrap();
    let mtime = Timestamp { seconds: 1_500_000_000, nanos: 7 };
    tree.set_content(number, 5000, mtime, DataPlace::Replica(5)).unwrap();
    below.apply(&tree);
    let calls = below.calls.take();
    let sync = calls.iter().position(|call| *call == "sync").unwrap();
    assert_eq!(calls[sync..], ["sync"], "one for all: {calls:?}");
    assert_eq!(calls[0], "sync_point", "opened before the writes");

    tree.set_content(number, 6000, mtime, DataPlace::Replica(6)).unwrap();
    tree.create(&ALICE, &root, new_file("two")).unwrap();
    let pending = tree.pending_len();
    below.apply(&tree);
    let sync = below.calls.take().iter().position(|call| *call == "sync").unwrap();
    tree.set_content(number, 4000, mtime, DataPlace::Replica(4)).unwrap();
    tree.create(&ALICE, &root, new_file("three")).unwrap();
    below.calls.fail(sync, libc::EIO);
    let report = below.apply(&tree);
    assert_eq!(below.calls.take().last(), Some(&"sync"));
    assert_eq!((report.applied, report.synced, report.stuck.len(), tree.pending_len()), (0, false, pending, pending));
    // The store has lost what it had acknowledged; size and time do not tell.
    let file = std::fs::File::options().write(true).open(bed.path("below/one")).unwrap();
    let times = std::fs::metadata(bed.path("below/one")).unwrap().modified().unwrap();
    file.write_at(&[0; 4000], 0).unwrap();
    file.set_modified(times).unwrap();
    let report = below.apply(&tree);
    assert_eq!((report.stuck, report.synced, tree.pending_len()), (vec![], true, 0));
    assert_eq!(std::fs::read(bed.path("below/one")).unwrap(), bytes_of(number, DataPlace::Replica(4)));
    let copies = tree.states().into_iter().filter(|state| state.number != NodeNumber::ROOT);
    assert!(copies.into_iter().all(|state| format!("{:?}", state.below).contains("doubtful: false")));
}

/// The machine crashes at the nth call of an apply: the log loses what was not synced. Returns the number of calls.
fn crash(seed: u64, nth: usize) -> usize {
    let (bed, medium) = (TempTree::new(), Medium::default());
    let below = Below { width: 1 + nth % 3, strict: nth % 5 == 4, ..Below::new(&bed.path("below")) };
    let mut story = Story::over_store(open(medium.clone(), 64 << 10), seed);
    for round in 0..2 {
        for _ in 0..120 {
            let _ = story.step();
            (0..seed % 2).for_each(|_| story.shuffle());
        }
        below.calls.take();
        if round == 1 {
            below.calls.die(nth);
        }
        let _ = below.apply(&story.tree);
    }
    let calls = below.calls.take().len();
    let left = medium.crash(&mut Random(seed * 1000 + nth as u64));
    let (tree, report) = try_open(Box::new(left), 64 << 10).unwrap();
    assert!(report.damage.is_none_or(|damage| !damage.synced));
    below.calls.heal();
    let place = format!("seed {seed}, call {nth}");
    assert_eq!(below.apply(&tree).stuck, [], "{place}");
    assert_eq!(seen_of(&tree), below.seen(), "{place}");
    assert_eq!(tree.pending_len(), 0, "{place}");
    assert!(hidden_left(&bed.path("below")).is_empty(), "{place}");
    calls
}

#[test]
fn a_crash_of_the_machine_at_any_call_leaves_nothing_in_the_store_that_the_log_does_not_know() {
    let mut crashes = 0;
    for seed in 0..12 {
        let mut nth = 0;
        while crash(seed, nth) > nth {
            nth += 1;
        }
        crashes += nth;
    }
    println!("{crashes} crashes");
    assert!(crashes > 300, "{crashes}");
}
