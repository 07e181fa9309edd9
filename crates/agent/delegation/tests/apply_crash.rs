//! An agent that dies at every fault point while it brings changes to the global store, and what its successor makes of it.

mod story;

use std::path::Path;

use delegation::fault;
use story::below::{Below, hidden_left, seen_of};
use story::killed::run_child;
use story::unsynced::Unsynced;
use story::{Story, open};
use testkit::TempTree;

const FILE_BYTES: u64 = 64 << 10;

#[test]
fn child() {
    let Some(dir) = std::env::var_os("FOREBAY_CRASH_DIR") else { return };
    let (dir, seed): (_, u64) = (Path::new(&dir), std::env::var("FOREBAY_CRASH_SEED").unwrap().parse().unwrap());
    let below = Below { width: 1 + seed as usize / 3, ..Below::new(&dir.join("below")) };
    let mut story = Story::over_store(open(Unsynced::new(&dir.join("log")), FILE_BYTES), seed);
    for step in 0..600 {
        let _ = story.step();
        (0..seed % 3).for_each(|_| story.shuffle());
        story.let_go();
        if step % 20 == 0 {
            below.apply(&story.tree);
        }
    }
}

#[test]
fn an_agent_that_dies_at_any_fault_point_has_a_successor_that_finishes() {
    for point in fault::APPLY_POINTS {
        let mut hits = 0;
        for (seed, nth) in (0..3).flat_map(|seed| [1, 2, 3, 5, 8, 13, 21, 55].map(|nth| (seed, nth))) {
            let bed = TempTree::new();
            if !run_child(bed.root(), seed, point, nth) {
                continue;
            }
            hits += 1;
            let tree = open(Unsynced::new(&bed.path("log")), FILE_BYTES);
            let below = Below::new(&bed.path("below"));
            let mut story = Story::over_store(tree, seed + 100);
            // Every other successor serves programs first: what was begun may have another name by then, or none.
            if nth % 2 == 0 {
                story.met.extend((0..200).filter_map(|number| {
                    let state = story.tree.states().into_iter().nth(number)?;
                    story.tree.inode(state.number)
                }));
                (0..30).for_each(|_| drop(story.step()));
                (0..30).for_each(|_| story.shuffle());
            }
            let place = format!("{point}:{nth}, seed {seed}");
            assert_eq!(below.apply(&story.tree).stuck, [], "{place}");
            assert_eq!(seen_of(&story.tree), below.seen(), "{place}");
            assert_eq!(story.tree.pending_len(), 0, "{place}");
            assert!(hidden_left(&bed.path("below")).is_empty(), "{place}");
        }
        println!("{point}: {hits} deaths");
        assert!(hits > 0, "{point} is not passed");
    }
}
