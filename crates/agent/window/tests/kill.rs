//! Programs killed with SIGKILL at random moments, over mapped files: every acknowledged write is there.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::{COUNTER, Drain, FILE, Replica, grant, ring_bytes};
use testkit::Random;
use window::drained::Drained;
use window::recover::{Bounds, recover};
use window::ring::{RingReader, Stop, Writer};
use window::sequence::Sequence;
use window::{Mapping, Memory, WindowMedium};

const CAPACITY: u64 = 256 << 10;
const PROGRAMS: usize = 2;
const ROUNDS: u64 = 30;
/// Bytes of each program's own part of the file, so that its content does not depend on the other.
const SHARE: usize = FILE / PROGRAMS;

/// Returns the `number`th write of a program, equal in the program and in the check.
fn write(seed: u64, program: usize, number: u64) -> (u64, Vec<u8>) {
    let mut rng = Random(seed ^ (program as u64) << 32 ^ number << 40);
    let len = [1 + rng.below(300), 1 + rng.below(12_000)][rng.below(2) as usize] as usize;
    let offset = (program * SHARE) as u64 + rng.below((SHARE - len) as u64);
    (offset, rng.bytes(len))
}

fn map(dir: &Path, name: &str) -> Arc<Mapping> {
    Arc::new(Mapping::open(&dir.join(name), WindowMedium::Volatile).unwrap())
}

/// Killed program: writes for ever, and counts acknowledged writes in shared memory.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn program() {
    let Ok(arguments) = std::env::var("WINDOW_TEST_PROGRAM") else { return };
    let mut arguments = arguments.split(' ');
    let (dir, seed, program) = (arguments.next().unwrap(), arguments.next().unwrap(), arguments.next().unwrap());
    let (dir, seed, program): (&Path, u64, usize) = (dir.as_ref(), seed.parse().unwrap(), program.parse().unwrap());
    let ring = map(dir, &format!("ring{program}"));
    let writer = Writer::new(ring, grant_of(program).ring, CAPACITY, Sequence::new(map(dir, "sequence"))).unwrap();
    let acknowledged = map(dir, &format!("acknowledged{program}"));
    for number in 0.. {
        let (offset, bytes) = write(seed, program, number);
        if writer.append(offset, &bytes, &mut || true).is_err() {
            return; // revoked: the rest would go to the kernel
        }
        acknowledged.word(0).store(number + 1, SeqCst);
    }
}

fn grant_of(program: usize) -> window::ring::RingGrant {
    grant(program as u128, CAPACITY)
}

fn start(dir: &Path, seed: u64, program: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--ignored"])
        .env("WINDOW_TEST_PROGRAM", format!("{} {seed} {program}", dir.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the file after the first `acknowledged` writes of each program and `more` writes of each after them.
fn expected(seed: u64, acknowledged: [u64; PROGRAMS], more: [u64; PROGRAMS]) -> Vec<u8> {
    let mut file = vec![0; FILE];
    for program in 0..PROGRAMS {
        for number in 0..acknowledged[program] + more[program] {
            let (offset, bytes) = write(seed, program, number);
            file[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
        }
    }
    file
}

/// Applies records until `enough`, with a time limit.
fn serve(drain: &mut Drain<Arc<Mapping>>, replica: &mut Replica, mut enough: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !enough() {
        assert!(Instant::now() < end, "the programs do not get on");
        let mut idle = true;
        for ring in 0..PROGRAMS {
            let before = drain.readers[ring].held();
            assert_ne!(drain.take(ring), Stop::Revoke);
            idle &= drain.readers[ring].held() == before;
        }
        let mut apply = |offset, bytes: &[u8]| window::recover::Replay::write(replica, offset, bytes, 0).unwrap();
        if !drain.batch(true, &mut apply) && idle {
            drain.readers[0].sleep(Duration::from_millis(1));
        }
    }
}

/// Runs one round. Returns how many writes had been acknowledged. With `agent_too`, recovery finishes the work,
/// otherwise the live agent.
fn round(seed: u64, agent_too: bool) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let create =
        |name: &str, len| Arc::new(Mapping::create(&dir.path().join(name), len, WindowMedium::Volatile).unwrap());
    let readers: Vec<_> = (0..PROGRAMS)
        .map(|program| RingReader::create(create(&format!("ring{program}"), ring_bytes(CAPACITY)), grant_of(program)))
        .collect::<Result<_, _>>()
        .unwrap();
    let counters: Vec<_> = (0..PROGRAMS).map(|program| create(&format!("acknowledged{program}"), COUNTER)).collect();
    let mut drain = Drain::new(readers, Arc::new(create("sequence", COUNTER)), create("drained", COUNTER));
    let mut replica = Replica(vec![0; FILE]);
    let mut children: Vec<_> = (0..PROGRAMS).map(|program| start(dir.path(), seed, program)).collect();
    let mut rng = Random(seed);
    // Both have begun; then, after a random number of acknowledgements, they are killed at any point.
    let target = 1 + rng.below(400);
    let count = |program: usize| counters[program].word(0).load(SeqCst);
    serve(&mut drain, &mut replica, || (0..PROGRAMS).all(|p| count(p) > 0) && count(0) + count(1) >= target);
    if rng.below(3) == 0 {
        // Let the rings fill up, so that writers die while they wait.
        let end = Instant::now() + Duration::from_secs(60);
        while !(0..PROGRAMS).all(|ring| drain.readers[ring].used() == CAPACITY) {
            assert!(Instant::now() < end, "the rings do not fill");
            std::thread::yield_now();
        }
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let acknowledged = [count(0), count(1)];
    let mut apply = replica.clone();
    if agent_too {
        let Drain { readers, drained, .. } = drain;
        drop((readers, drained));
        let mut left: Vec<_> = (0..PROGRAMS)
            .map(|p| RingReader::left_behind(map(dir.path(), &format!("ring{p}")), grant_of(p)).unwrap())
            .collect();
        let report =
            recover(&mut left, &Drained::left_behind(map(dir.path(), "drained")), Bounds::NONE, &mut apply).unwrap();
        assert!(report.lost.is_empty(), "{:?}", report.lost);
    } else {
        (0..PROGRAMS).for_each(|ring| drain.end(ring));
        let mut write = |offset, bytes: &[u8]| window::recover::Replay::write(&mut apply, offset, bytes, 0).unwrap();
        while drain.batch(true, &mut write) {}
        assert!(drain.queue.is_empty(), "the dead leave no gap that stops the drain");
    }
    // A write that was published and not yet counted may be there as well.
    let fits = [[0, 0], [1, 0], [0, 1], [1, 1]].map(|more| expected(seed, acknowledged, more) == apply.0);
    assert!(fits.contains(&true), "round {seed}: after {acknowledged:?} acknowledged writes the file differs");
    acknowledged[0] + acknowledged[1]
}

#[test]
fn what_killed_programs_were_told_is_there_when_the_agent_lives() {
    let acknowledged: u64 = (0..ROUNDS).map(|seed| round(seed, false)).sum();
    println!("{acknowledged} acknowledged writes in {ROUNDS} rounds, none lost");
}

#[test]
fn what_killed_programs_were_told_is_there_when_the_agent_died_too() {
    let acknowledged: u64 = (0..ROUNDS).map(|seed| round(seed + 1000, true)).sum();
    println!("{acknowledged} acknowledged writes in {ROUNDS} rounds, none lost");
}
