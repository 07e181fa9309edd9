//! Every interleaving of small stories about cuts, by `loom`: tests/suites/interleavings.sh
//!
//! The replica and its size are `loom`'s words, of which a load returns any value that the memory model allows: no more is asked of the kernel
//! than that it cuts between the two calls that count it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::sync::Ordering::Relaxed;

/// What was written, and what is there where nothing was.
const WRITTEN: u64 = 7;
const ZERO: u64 = 0;

/// Blocks of the replica, of which the second is cut off.
const LONG: u64 = 2;
const SHORT: u64 = 1;

const THREAD: u64 = 5;

/// What an agent says in its page.
struct Page {
    begun: AtomicU64,
    over: AtomicU64,
    tenure: AtomicU64,
}

impl Page {
    fn of(thread: u64) -> Page {
        Page { begun: AtomicU64::new(0), over: AtomicU64::new(0), tenure: AtomicU64::new(thread) }
    }

    fn words(&self) -> Words<'_> {
        Words { begun: &self.begun, over: &self.over, tenure: &self.tenure }
    }
}

struct Replica {
    size: AtomicU64,
    second: AtomicU64,
}

impl Replica {
    fn new() -> Replica {
        Replica { size: AtomicU64::new(LONG), second: AtomicU64::new(WRITTEN) }
    }

    fn cut(&self) {
        self.size.store(SHORT, Relaxed);
        self.second.store(ZERO, Relaxed);
    }
}

/// An agent, the one after it, a replica, and whether the caller was answered.
struct World {
    page: Page,
    next: Page,
    replica: Replica,
    answered: AtomicU64,
}

/// What a program read of the second block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    /// Cuts that were begun when it took the size.
    begun: u64,
    /// It knew that the cut had been answered before it copied.
    knew: bool,
    bytes: u64,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            page: Page::of(THREAD),
            next: Page::of(0),
            replica: Replica::new(),
            answered: AtomicU64::new(0),
        })
    }

    fn answer(&self) {
        self.answered.store(1, Release);
    }

    /// A program takes the size, and reads the second block, if there is one and it believes what it copied.
    fn read(&self) -> Option<Read> {
        let words = self.page.words();
        let size = || Some(self.replica.size.load(Relaxed));
        let (standing, size) = words.stand_before(0, size)?;
        let knew = self.answered.load(Acquire) == 1;
        let mut bytes = None;
        let copy = || {
            bytes = Some(self.replica.second.load(Relaxed));
            true
        };
        let believed = size == LONG && words.believes(standing, copy);
        believed.then_some(Read { begun: standing.begun, knew, bytes: bytes? })
    }
}

/// What is true of each read that is believed of a replica that was cut once, and of whose group no other was.
fn judge(read: Read) {
    if read.begun == 0 {
        assert_eq!(read.bytes, WRITTEN, "zeroes of a cut: {read:?}");
        assert!(!read.knew, "the cut was over and answered: {read:?}");
    } else {
        assert_eq!(read.bytes, ZERO, "from before a cut that was over when the size was taken: {read:?}");
    }
}

/// A program reads while each of `acts` is done by a thread. What it believed, in all ways that this went.
fn story(acts: &'static [fn(&World)], judge: fn(Read)) -> BTreeSet<Option<Read>> {
    let ways = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let all = std::sync::Arc::clone(&ways);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = World::new();
        let threads = acts.iter().map(|act| {
            let world = Arc::clone(&world);
            thread::spawn(move || act(&world))
        });
        let threads: Vec<_> = threads.collect();
        let read = world.read();
        read.into_iter().for_each(judge);
        all.lock().unwrap().insert(read);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let ways = ways.lock().unwrap();
    ways.clone()
}

fn cut(world: &World) {
    world.page.words().begin();
    world.replica.cut();
    world.page.words().end();
    world.answer();
}

fn cut_and_extend(world: &World) {
    cut(world);
    world.replica.size.store(LONG, Relaxed);
}

fn cut_another(world: &World) {
    world.page.words().begin();
    world.page.words().end();
}

/// The kernel marks the agent's word, and then what the agent had locked is free for the next one.
fn end(world: &World) {
    world.page.tenure.store(THREAD | MARKED, Relaxed);
    world.next.tenure.store(THREAD, Release);
}

fn cut_by_the_next(world: &World) {
    if world.next.tenure.load(Acquire) == THREAD {
        world.next.words().begin();
        world.replica.cut();
        world.next.words().end();
        world.answer();
    }
}

const BEFORE: Option<Read> = Some(Read { begun: 0, knew: false, bytes: WRITTEN });

#[test]
fn what_a_cut_took_away_is_never_believed() {
    assert_eq!(story(&[cut], judge), BTreeSet::from([None, BEFORE]));
}

#[test]
fn zeroes_are_believed_by_who_took_the_size_of_a_file_that_has_grown_again() {
    let ways = story(&[cut_and_extend], judge);
    let grown = Some(Read { begun: 1, knew: true, bytes: ZERO });
    assert!([None, BEFORE, grown].iter().all(|way| ways.contains(way)), "not all was tried: {ways:?}");
}

#[test]
fn a_cut_of_another_replica_of_the_group_hides_none() {
    let ways = story(&[cut, cut_another], |read| assert!(!read.knew && read.bytes == WRITTEN, "{read:?}"));
    let after_the_other = Some(Read { begun: 1, knew: false, bytes: WRITTEN });
    assert_eq!(ways, BTreeSet::from([None, BEFORE, after_the_other]));
}

#[test]
fn what_the_next_agent_cut_is_never_believed() {
    assert_eq!(story(&[end, cut_by_the_next], judge), BTreeSet::from([None, BEFORE]));
}
