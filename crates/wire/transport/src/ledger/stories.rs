//! A client that sends its requests over several connections, sends some again, and is answered or not, in many orders: nothing is done twice,
//! nothing beside what it must wait for, and whoever waits is woken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use concurrency::{Mutex, below, explore, spawn, yield_now};
use wire::Message;

use super::{DuplicateRequestCache, Verdict};
use crate::session::Targets;

const CONNECTIONS: usize = 3;
const REQUESTS: u64 = 4;
/// What each connection does.
const DEEDS: usize = 5;
const FILES: u64 = 2;

type DoneWith = (u64, BTreeSet<u64>);

/// What the client and its server know, by the story.
#[derive(Default)]
struct World {
    begun: u64,
    targets: BTreeMap<u64, Targets>,
    /// The client has its answer, or has given it up, and waits for it no more.
    answered: BTreeSet<u64>,
    /// The server has heard that.
    told: BTreeSet<u64>,
    running: BTreeSet<u64>,
    done: BTreeSet<u64>,
    closing: bool,
    closed: bool,
    left: usize,
}

impl World {
    fn oldest(&self) -> u64 {
        (1..=self.begun + 1).find(|number| !self.answered.contains(number)).unwrap()
    }

    /// All below are done with, but those that are not.
    fn done_with(&self) -> DoneWith {
        (self.begun + 1, (1..=self.begun).filter(|number| !self.answered.contains(number)).collect())
    }

    /// A new request, or one that was sent before: of those that are waited for, with what its client is done with, or a copy that was lost on
    /// its way for long.
    fn request(&mut self) -> (u64, u64, Targets, Option<DoneWith>) {
        if self.begun == 0 || (self.begun < REQUESTS && below(2) == 0) {
            self.begun += 1;
            self.targets.insert(self.begun, [below(FILES as usize) as u64, below(FILES as usize) as u64]);
        } else if below(4) == 0 {
            // Its program waits no longer; it may run still.
            self.answered.insert(1 + below(self.begun as usize) as u64);
        }
        let number = 1 + below(self.begun as usize) as u64;
        // A lost copy says what was the oldest then.
        let lost = self.answered.contains(&number);
        let oldest = if lost { 1 } else { self.oldest().min(number) };
        (number, oldest, self.targets[&number], (!lost).then(|| self.done_with()))
    }
}

fn answer(number: u64) -> Message {
    Message::Written { offset: number }
}

fn connection(ledger: &DuplicateRequestCache, world: &Mutex<World>) {
    for _ in 0..DEEDS {
        let (number, oldest, targets, done_with) = world.lock().request();
        if let Some((below, open)) = done_with.clone() {
            ledger.done_with(below, open.clone());
            world.lock().told.extend((1..below).filter(|number| !open.contains(number)));
        }
        let stale = world.lock().told.contains(&number);
        match ledger.enter(number, oldest, targets) {
            Verdict::Execute => {
                {
                    let mut world = world.lock();
                    assert!(!world.closed, "{number} after the end");
                    assert!(!stale, "{number}, of which its client has told that it is done with it");
                    assert!(!world.done.contains(&number), "{number} is done twice");
                    assert!(world.running.insert(number), "two copies of {number} at once");
                    let shares = |other: &&u64| world.targets[other].iter().any(|one| targets.contains(one));
                    let is_over = |other: &&u64| {
                        let told = |(below, open): &DoneWith| **other < *below && !open.contains(other);
                        **other < oldest || done_with.as_ref().is_some_and(told)
                    };
                    let given_up = world.running.iter().filter(is_over).find(shares);
                    assert_eq!(given_up, None, "{number} beside what its client has given up");
                }
                yield_now();
                {
                    let mut world = world.lock();
                    world.running.remove(&number);
                    world.done.insert(number);
                }
                ledger.leave(number, Some(&answer(number)));
                // The connection may break before the client has it.
                if below(3) > 0 {
                    world.lock().answered.insert(number);
                }
            }
            Verdict::Answer(told) => {
                assert_eq!(told, answer(number));
                let mut world = world.lock();
                assert!(world.done.contains(&number));
                world.answered.insert(number);
            }
            Verdict::Stale => {
                let world = world.lock();
                assert!(world.closing || world.answered.contains(&number), "{number} is waited for");
            }
            other => panic!("{number}: {other:?}"),
        }
    }
}

fn told(closes: bool) {
    let (ledger, world) = (Arc::new(DuplicateRequestCache::default()), Arc::new(Mutex::new(World::default())));
    world.lock().left = CONNECTIONS;
    for _ in 0..CONNECTIONS {
        let (ledger, world) = (Arc::clone(&ledger), Arc::clone(&world));
        let run = move || {
            connection(&ledger, &world);
            world.lock().left -= 1;
        };
        spawn("connection", run).unwrap();
    }
    if closes {
        (0..below(20)).for_each(|_| yield_now());
        world.lock().closing = true;
        ledger.close();
        let mut world = world.lock();
        assert!(world.running.is_empty(), "{:?} run after the end", world.running);
        world.closed = true;
    }
    while world.lock().left > 0 {
        yield_now();
    }
}

#[test]
fn nothing_is_done_twice_or_too_early_in_every_order() {
    explore(20_000, || told(false));
}

#[test]
fn nothing_runs_once_a_session_is_closed() {
    explore(20_000, || told(true));
}
