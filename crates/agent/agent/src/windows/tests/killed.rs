//! Agent and program killed together, at random moments and at every fault point; a ledger outside of them says what was
//! acknowledged.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::SeqCst;

use testkit::{PATIENCE, wait_until};
use window::{Mapping, Medium, Memory};

use super::{Stand, WRITE};
use crate::windows::fault;

const FILE: u64 = 1 << 20;
const PROGRAM: &str = "FOREBAY_WINDOW_TEST";

/// A generator that is the same for the same seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// The write with this number: the same in the killed process and in the check.
fn write(seed: u64, number: u64) -> (u64, Vec<u8>) {
    let mut rng = Rng(seed ^ number << 32);
    let len = 1 + rng.below(6_000);
    (rng.below(FILE - len), rng.bytes(len as usize))
}

/// Not a test: agent and program in one process, which writes until it is killed.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn program() {
    let Ok(arguments) = std::env::var(PROGRAM) else { return };
    let (seed, root) = arguments.split_once(' ').unwrap();
    let (seed, root): (u64, &Path) = (seed.parse().unwrap(), root.as_ref());
    let acknowledged = Mapping::open(&root.join("acknowledged"), Medium::Volatile).unwrap();
    let stand = Stand::new(root, &[]);
    let mut number = acknowledged.word(0).load(SeqCst);
    for life in 0.. {
        let mut opened = None;
        // Not while a stage-out reads the replica: nobody could tell that from a mapping.
        wait_until("an open that may have a window", PATIENCE, || {
            opened = Some(stand.open("file", WRITE)).filter(|open| open.has_window_right());
            opened.is_some()
        });
        let open = opened.unwrap();
        let window = stand.attach(&open);
        for _ in 0..50 + seed % 100 {
            let (offset, bytes) = write(seed, number);
            if (number + life).is_multiple_of(17) {
                stand.agent.write(&open, &bytes, offset, crate::WriteHow::default()).unwrap();
            } else {
                window.append(offset, &bytes).unwrap();
            }
            number += 1;
            acknowledged.word(0).store(number, SeqCst);
        }
    }
}

fn start(root: &Path, seed: u64, fault: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "windows::tests::killed::program", "--ignored"]);
    command.env(PROGRAM, format!("{seed} {}", root.display())).stdout(Stdio::null());
    if let Some(fault) = fault {
        command.env("FOREBAY_FAULT", fault).env("FOREBAY_FAULT_LOG", root.join("faults"));
    }
    command.spawn().unwrap()
}

fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the kill", PATIENCE, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// A directory for one story, with an empty ledger.
struct Story {
    tree: tempfile::TempDir,
    acknowledged: Mapping,
}

impl Story {
    fn new() -> Story {
        let tree = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let acknowledged = Mapping::create(&tree.path().join("acknowledged"), 4096, Medium::Volatile).unwrap();
        Story { tree, acknowledged }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.word(0).load(SeqCst)
    }

    /// What an agent that starts now finds is what was acknowledged, byte for byte; one write more may be there.
    fn check(&self, seed: u64) {
        let acknowledged = self.acknowledged();
        let stand = Stand::new(self.tree.path(), &[]);
        let found = match stand.agent.lookup(stand.agent.root(), "file".as_ref()) {
            Ok(_) => stand.content(&stand.unannounced("file", WRITE)),
            Err(_) => Vec::new(),
        };
        let mut expected: Vec<u8> = Vec::new();
        let mut apply = |number| {
            let (offset, bytes) = write(seed, number);
            let end = offset as usize + bytes.len();
            expected.resize(expected.len().max(end), 0);
            expected[offset as usize..end].copy_from_slice(&bytes);
            expected.clone()
        };
        let mut last = Vec::new();
        (0..acknowledged).for_each(|number| last = apply(number));
        let last_len = last.len();
        if found != last {
            let next = apply(acknowledged);
            let place = write(seed, acknowledged);
            let place = place.0 as usize..place.0 as usize + place.1.len();
            // The write that was not acknowledged may be there, or be torn if it went through the kernel.
            let wrong = |at: &usize| {
                let (old, new) = (last.get(*at).copied().unwrap_or(0), next.get(*at).copied());
                let found = found.get(*at).copied().unwrap_or(0);
                found != old && (!place.contains(at) || Some(found) != new)
            };
            let wrong: Vec<usize> = (0..next.len().max(found.len())).filter(wrong).collect();
            let (first, last) = (wrong.first(), wrong.last());
            assert!(
                wrong.is_empty(),
                "seed {seed}: after {acknowledged} acknowledged writes {} bytes from {first:?} to {last:?} are wrong, beside {place:?}",
                wrong.len()
            );
            assert!(found.len() >= last_len && found.len() <= next.len(), "seed {seed}: {} bytes long", found.len());
        }
        assert!(super::super::place::Session::unfinished(&self.tree.path().join("buffer")).unwrap().len() == 1);
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill_of_program_and_agent_at_random_moments() {
    let mut acknowledged = 0;
    for seed in 0..8 {
        let story = Story::new();
        for life in 0..2 {
            let target = story.acknowledged() + 1 + Rng(seed + life).below(1500);
            let mut child = start(story.tree.path(), seed, None);
            wait_until("writes", PATIENCE, || {
                assert!(child.try_wait().unwrap().is_none(), "the program ended");
                story.acknowledged() >= target
            });
            child.kill().unwrap();
            wait(&mut child);
            story.check(seed);
        }
        acknowledged += story.acknowledged();
    }
    println!("{acknowledged} acknowledged writes, none lost");
}

#[test]
fn what_was_acknowledged_survives_a_kill_at_every_fault_point() {
    for (number, point) in fault::POINTS.iter().enumerate() {
        let story = Story::new();
        let seed = 100 + number as u64;
        for (life, nth) in [1, 3].into_iter().enumerate() {
            let mut child = start(story.tree.path(), seed, Some(&format!("{point}:{nth}")));
            assert_eq!(wait(&mut child).signal(), Some(libc::SIGKILL), "{point} was not reached");
            let log = std::fs::read_to_string(story.tree.path().join("faults")).unwrap();
            assert_eq!(log.lines().filter(|line| line == point).count(), life + 1);
            if life == 1 {
                story.check(seed);
            }
        }
    }
}
