//! Applying compared with a plain directory and with a model, with each call failing, and beside programs that go on.

mod story;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use delegation::{ApplyRequest, Contents, DataPlace, DelegatedTree, StoreTree};
use global_store::Access;
use models::MemoryNamespace;
use namespace::{AnchorFor, Attributes, Inode, Names, Namespace};
use rustix::fs::FileType;
use story::below::{Below, Bytes, bytes_of, hidden_left, seen_by, seen_of};
use story::medium::Medium;
use story::{ROOT, Step, Story, World, open};
use testkit::{Random, TempTree};
use types::Timestamp;

/// Takes the times away, except those that a program has set.
fn timeless(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    words.retain(|word| !word.contains('.') || word.starts_with("1234567890."));
    words.join(" ")
}

/// Writes the same bytes in the tree and in the plain directory.
fn write(tree: &DelegatedTree, ours: &Inode, plain: (&dyn Namespace, &Inode), version: u64) {
    let (number, data) = (tree.number_of(ours).unwrap(), DataPlace::Replica(version));
    let mtime = Timestamp { seconds: 1_234_567_890, nanos: version as u32 };
    tree.set_content(number, version * 1000, mtime, data).unwrap();
    let file = plain.0.anchor(plain.1, AnchorFor::Any).unwrap().open(Access::Write).unwrap();
    file.set_len(0).unwrap();
    file.write_at(&bytes_of(number, data), 0).unwrap();
    file.set_mtime(mtime).unwrap();
}

#[test]
fn the_directory_below_is_in_the_end_as_a_plain_one_in_which_the_story_was_told() {
    for seed in 0..40 {
        let bed = TempTree::new();
        let (below, plain) = (Below::new(&bed.path("below")), Below::new(&bed.path("plain")));
        let tree = open(Medium::default(), 64 << 10);
        let mut met = [vec![tree.root().unwrap()], vec![plain.calls.root().unwrap()]];
        let mut random = Random(seed);
        for _ in 0..400 {
            let step = Step::by(&mut random);
            let at = step.files[0] % met[0].len();
            if step.kind == 22 && met[0][at].kind() == FileType::RegularFile {
                write(&tree, &met[0][at], (&*plain.calls, &met[1][at]), step.small);
            }
            let worlds: [&dyn World; 2] = [&tree, &*plain.calls];
            let outcomes = [0, 1].map(|of| step.take(worlds[of], &met[of]));
            for (of, outcome) in outcomes.into_iter().enumerate() {
                met[of].extend(outcome.ok().and_then(|(_, found)| found));
            }
            if random.below(40) == 0 {
                assert_eq!(below.apply(&tree).stuck, [], "seed {seed}");
            }
        }
        assert_eq!(below.apply(&tree).stuck, [], "seed {seed}");
        let seen =
            |of: &Below| -> Vec<_> { of.seen().into_iter().map(|(path, text)| (path, timeless(&text))).collect() };
        assert_eq!(seen(&below), seen(&plain), "seed {seed}");
    }
}

/// Lets the nth call of an apply fail, and applies again. Returns the number of calls of the apply.
fn fail(seed: u64, nth: usize, is_made: bool) -> usize {
    let place = format!("seed {seed}, call {nth}, made {is_made}");
    let bed = TempTree::new();
    let below = Below { width: 1 + nth % 3, strict: nth % 5 == 4, ..Below::new(&bed.path("below")) };
    let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
    let tell = |story: &mut Story| {
        for _ in 0..150 {
            let _ = story.step();
            (0..seed % 2).for_each(|_| story.shuffle());
        }
    };
    tell(&mut story);
    assert_eq!(below.apply(&story.tree).stuck, []);
    tell(&mut story);
    below.calls.take();
    if is_made {
        below.calls.fail_after(nth, libc::EIO);
    } else {
        below.calls.fail(nth, libc::EIO);
    }
    let report = below.apply(&story.tree);
    let calls = below.calls.take().len();
    assert!(!report.stuck.is_empty() || story.tree.pending_len() == 0, "{place}");
    (0..nth % 4 * 10).for_each(|_| drop(story.step()));
    below.calls.fail(usize::MAX / 2, libc::EIO);
    assert_eq!(below.apply(&story.tree).stuck, [], "{place}");
    assert_eq!(seen_of(&story.tree), below.seen(), "{place}");
    assert_eq!(story.tree.pending_len(), 0, "{place}");
    assert!(hidden_left(&bed.path("below")).is_empty(), "{place}");
    calls
}

#[test]
fn each_call_of_an_apply_may_fail_before_or_after_it_takes_place() {
    let mut failures = 0;
    for (seed, is_made) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut nth = 0;
        while fail(seed, nth, is_made) > nth {
            nth += 1;
        }
        failures += nth;
    }
    println!("{failures} calls have failed");
    assert!(failures > 500);
}

#[test]
fn a_model_of_the_store_ends_as_the_tree() {
    for seed in 0..20 {
        let memory = MemoryNamespace::new(0, 0);
        let root = Arc::new(memory.root().unwrap());
        memory.set_mode(&ROOT, &root, 0o777).unwrap();
        let namespace: Arc<dyn Namespace> = Arc::new(memory);
        let store = StoreTree { namespace: Arc::clone(&namespace), root: Arc::clone(&root), agent: "agent".into() };
        let (store, contents) = (Arc::new(store), Arc::new(Bytes) as Arc<dyn Contents>);
        let request = ApplyRequest { width: 2, ..ApplyRequest::new(&store, &contents) };
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        for _ in 0..200 {
            let _ = story.step();
            story.shuffle();
            story.let_go();
            if story.random.below(25) == 0 {
                assert_eq!(story.tree.apply(&request).stuck, [], "seed {seed}");
            }
        }
        assert_eq!(story.tree.apply(&request).stuck, [], "seed {seed}");
        assert_eq!(seen_of(&story.tree), seen_by(&*namespace, &root), "seed {seed}");
    }
}

#[test]
fn programs_go_on_while_changes_are_applied() {
    for seed in 0..10 {
        let bed = TempTree::new();
        let below = Below { width: 2, ..Below::new(&bed.path("below")) };
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        let applier = story.tree.share();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let contents: Arc<dyn Contents> = Arc::new(Bytes);
                    applier.apply(&ApplyRequest { width: 2, ..ApplyRequest::new(&below.store, &contents) });
                }
            });
            for _ in 0..1500 {
                let _ = story.step();
                story.shuffle();
                story.let_go();
            }
            ended.store(true, Ordering::Relaxed);
        });
        assert_eq!(below.apply(&story.tree).stuck, [], "seed {seed}");
        assert_eq!(seen_of(&story.tree), below.seen(), "seed {seed}");
        assert_eq!(story.tree.pending_len(), 0, "seed {seed}");
    }
}

#[test]
fn names_of_others_are_kept_whatever_the_story() {
    let mut conflicts = 0;
    for seed in 0..30 {
        let bed = TempTree::new();
        let below = Below::new(&bed.path("below"));
        let mut story = Story::over_store(open(Medium::default(), 64 << 10), seed);
        let mut foreign = Vec::new();
        for round in 0..12 {
            for _ in 0..30 {
                let _ = story.step();
                story.shuffle();
            }
            let path = bed.path("below").join(["a", "b", "d", "e", "f", "link 1"][round % 6]);
            if std::fs::symlink_metadata(&path).is_err() {
                std::fs::write(&path, format!("theirs {round}")).unwrap();
                foreign.push((path, format!("theirs {round}")));
            }
            let stuck = below.apply(&story.tree).stuck;
            assert!(stuck.iter().all(|stuck| matches!(stuck.errno, libc::EEXIST | libc::EAGAIN)), "{stuck:?}");
            assert_eq!(stuck.is_empty(), story.tree.pending_len() == 0, "seed {seed}");
            conflicts += stuck.len();
            for (path, text) in &foreign {
                assert_eq!(&std::fs::read_to_string(path).unwrap(), text, "seed {seed}: {path:?}");
            }
        }
        foreign.iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
        assert_eq!(below.apply(&story.tree).stuck, [], "seed {seed}");
        assert_eq!(seen_of(&story.tree), below.seen(), "seed {seed}");
        assert_eq!(story.tree.pending_len(), 0, "seed {seed}");
        assert!(hidden_left(&bed.path("below")).is_empty(), "seed {seed}");
    }
    assert!(conflicts > 100, "{conflicts}");
}
