//! An agent that dies at every fault point of the name log, and what its successor finds.

mod story;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use delegation::fault;
use delegation::log::MountedLogDirectory;
use namespace::Names;
use story::killed::run_child;
use story::medium::Medium;
use story::{Snapshot, Story, open, snapshot, timeless};
use testkit::TempTree;

const FILE_BYTES: u64 = 2 << 10;
const STEPS: usize = 300;
const SEED: u64 = 11;

/// Tells the story. `after` is called after each acknowledged step.
fn tell(story: &mut Story, mut after: impl FnMut(&Story)) {
    for number in 0..STEPS {
        let _ = story.step();
        after(story);
        if number % 2 == 0 {
            story.tree.clean().unwrap();
            after(story);
        }
        if number % 10 == 0 {
            story.tree.sync().unwrap();
        }
        story.let_go();
    }
}

#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_CRASH_DIR") else { return };
    let dir = Path::new(&dir);
    let mut ledger = std::fs::File::create(dir.join("ledger")).unwrap();
    let mut story = Story::new(open(MountedLogDirectory::new(dir.join("log")).unwrap(), FILE_BYTES), SEED);
    tell(&mut story, |story| writeln!(ledger, "{}", story.tree.log().end()).unwrap());
}

/// Snapshots of the story by the sequence of the last transaction.
fn expected() -> BTreeMap<u64, Snapshot> {
    let mut story = Story::new(open(Medium::default(), FILE_BYTES), SEED);
    let mut snapshots = BTreeMap::from([(story.tree.log().end(), timeless(snapshot(&story.tree)))]);
    tell(&mut story, |story| drop(snapshots.insert(story.tree.log().end(), timeless(snapshot(&story.tree)))));
    snapshots
}

#[test]
fn an_agent_that_dies_at_any_fault_point_loses_nothing_that_was_acknowledged() {
    let snapshots = expected();
    for point in fault::POINTS {
        let mut hits = 0;
        for nth in [1, 2, 3, 5, 8, 20, 50] {
            let tree = TempTree::new();
            if !run_child(tree.root(), SEED, point, nth) {
                break;
            }
            hits += 1;
            let place = format!("{point}:{nth}");
            let ledger = std::fs::read_to_string(tree.path("ledger")).unwrap();
            let acknowledged: u64 = ledger.lines().last().map_or(0, |line| line.parse().unwrap());
            // A successor that dies while it opens the log takes nothing away either.
            for opening in ["names.cut", "names.created"] {
                std::fs::remove_file(tree.path("hits")).unwrap();
                assert!(run_child(tree.root(), SEED, opening, 1), "{place}, then {opening}");
            }
            let again = open(MountedLogDirectory::new(tree.path("log")).unwrap(), FILE_BYTES);
            let end = again.log().end();
            assert!(end >= acknowledged && end <= acknowledged + 1, "{place}: {end} of {acknowledged}");
            let found = timeless(snapshot(&again));
            assert_eq!(found, snapshots[&end], "{place}: transaction {end}");
            // The successor goes on, and so does its own.
            let mut story = Story::new(again, SEED + 1);
            (0..20).for_each(|_| drop(story.step()));
            let last = snapshot(&story.tree);
            drop(story);
            let third = open(MountedLogDirectory::new(tree.path("log")).unwrap(), FILE_BYTES);
            assert_eq!(snapshot(&third), last, "{place}");
        }
        assert!(hits > 0, "{point} is not passed");
    }
}
