//! Explores a client that uses several connections, sends some requests again, and gets some answers or none, in many
//! orders. No request is executed twice or beside one that it must wait for, and every waiter is woken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use concurrency::{Mutex, below, explore, spawn, yield_now};
use wire::Message;

use super::{DuplicateRequestCache, Targets, Verdict};

const CONNECTIONS: usize = 3;
const REQUESTS: u64 = 4;
/// Requests that each connection sends.
const DEEDS: usize = 5;
const FILES: u64 = 2;

type DoneWith = (u64, BTreeSet<u64>);

/// State of the client and its server according to the test.
#[derive(Default)]
struct World {
    begun: u64,
    targets: BTreeMap<u64, Targets>,
    /// Requests that the client no longer waits for: answered or given up.
    answered: BTreeSet<u64>,
    /// Requests that the server was told the client is done with.
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

    /// Returns the number below which the client is done with all requests, and the exceptions.
    fn done_with(&self) -> DoneWith {
        (self.begun + 1, (1..=self.begun).filter(|number| !self.answered.contains(number)).collect())
    }

    /// Picks a new request or one that was sent before. A request that is waited for comes with the client's current
    /// `DoneWith`; a copy delayed on its way comes without.
    fn request(&mut self) -> (u64, u64, Targets, Option<DoneWith>) {
        if self.begun == 0 || (self.begun < REQUESTS && below(2) == 0) {
            self.begun += 1;
            self.targets.insert(self.begun, [below(FILES as usize) as u64, below(FILES as usize) as u64]);
        } else if below(4) == 0 {
            // The program waits no longer; the request may still run.
            self.answered.insert(1 + below(self.begun as usize) as u64);
        }
        let number = 1 + below(self.begun as usize) as u64;
        // A delayed copy names the oldest request of its own time.
        let lost = self.answered.contains(&number);
        let oldest = if lost { 1 } else { self.oldest().min(number) };
        (number, oldest, self.targets[&number], (!lost).then(|| self.done_with()))
    }
}

fn answer(number: u64) -> Message {
    Message::Written { offset: number }
}

fn connection(duplicate_requests: &DuplicateRequestCache, world: &Mutex<World>) {
    for _ in 0..DEEDS {
        let (number, oldest, targets, done_with) = world.lock().request();
        if let Some((below, open)) = done_with.clone() {
            duplicate_requests.done_with(below, open.clone());
            world.lock().told.extend((1..below).filter(|number| !open.contains(number)));
        }
        let stale = world.lock().told.contains(&number);
        match duplicate_requests.enter(number, oldest, targets) {
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
                duplicate_requests.leave(number, Some(&answer(number)));
                // The connection may break before the answer reaches the client.
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
    let (duplicate_requests, world) =
        (Arc::new(DuplicateRequestCache::default()), Arc::new(Mutex::new(World::default())));
    world.lock().left = CONNECTIONS;
    for _ in 0..CONNECTIONS {
        let (duplicate_requests, world) = (Arc::clone(&duplicate_requests), Arc::clone(&world));
        let run = move || {
            connection(&duplicate_requests, &world);
            world.lock().left -= 1;
        };
        spawn("connection", run).unwrap();
    }
    if closes {
        (0..below(20)).for_each(|_| yield_now());
        world.lock().closing = true;
        duplicate_requests.close();
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
