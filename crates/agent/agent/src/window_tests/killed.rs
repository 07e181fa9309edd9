//! Tests that kill agent and program together, at random moments and at every fault point. A file outside of them
//! records the acknowledged writes.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::SeqCst;

use testkit::{PATIENCE, Random, wait_until};
use window::ring::Writer;
use window::sequence::Sequence;
use window::{Mapping, Memory, WindowMedium};

use super::replay::recovered;
use super::{Stand, WRITE, agent_over};
use crate::{Replayed, WriteHow};
use windows::fault;

const FILE: u64 = 256 << 10;
const PROGRAM: &str = windows::testing::SMALL_BATCHES;
/// Word of that file with the number of the last write made through the kernel.
const THROUGH_KERNEL: usize = 8;

/// Returns the write with this number, which is equal in the killed process and in the check.
fn write(seed: u64, number: u64) -> (u64, Vec<u8>) {
    let mut rng = Random(seed ^ number << 32);
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
    let acknowledged = Mapping::open(&root.join("acknowledged"), WindowMedium::Volatile).unwrap();
    // The rings are small, so that they are often full.
    let stand = Stand::new(root, &["window=64KiB"]);
    let mut number = acknowledged.word(0).load(SeqCst);
    for boot_verifier in 0.. {
        // To the agent these look like two programs.
        let opens = [stand.windowed("file"), stand.windowed("file")];
        let windows = opens.each_ref().map(|open| stand.attach(open));
        for _ in 0..50 + seed % 100 {
            let (offset, bytes) = write(seed, number);
            if (number + boot_verifier).is_multiple_of(17) {
                acknowledged.word(THROUGH_KERNEL).store(number, SeqCst);
                stand.agent.write(&opens[0], &bytes, offset, WriteHow::default()).unwrap();
            } else {
                windows[(seed + number * 7 / 3) as usize % 2].append(offset, &bytes).unwrap();
            }
            number += 1;
            acknowledged.word(0).store(number, SeqCst);
        }
    }
}

fn start(root: &Path, seed: u64, fault: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "window_tests::killed::program", "--ignored"]);
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

fn difference(found: &[u8], last: &[u8], next: &[u8]) -> String {
    let len = found.len().max(next.len());
    let of = |file: &[u8]| {
        let wrong: Vec<_> = (0..len).filter(|at| found.get(*at) != file.get(*at)).collect();
        format!("{} bytes from {:?} to {:?}", wrong.len(), wrong.first(), wrong.last())
    };
    format!("{} differ without the next write, {} with it", of(last), of(next))
}

/// A directory for one story, with an empty record of acknowledged writes.
pub(super) struct Story {
    pub tree: tempfile::TempDir,
    acknowledged: Mapping,
}

impl Story {
    fn new() -> Story {
        let tree = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let acknowledged = Mapping::create(&tree.path().join("acknowledged"), 4096, WindowMedium::Volatile).unwrap();
        Story { tree, acknowledged }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.word(0).load(SeqCst)
    }

    /// Checks that a new agent finds all acknowledged writes, byte for byte. One more write may be there.
    pub fn check(&self, seed: u64) {
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
        let next = apply(acknowledged);
        let whole = found == last || found == next;
        // A write through the kernel that was not acknowledged may be torn, as on any file system; an append may not.
        let torn = self.acknowledged.word(THROUGH_KERNEL).load(SeqCst) == acknowledged
            && (last.len()..=next.len()).contains(&found.len())
            && found
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == last.get(at).copied().unwrap_or(0) || *byte == next[at]);
        assert!(
            whole || torn,
            "seed {seed}: after {acknowledged} acknowledged writes: {}",
            difference(&found, &last, &next)
        );
        assert_eq!(windows::testing::unfinished(&self.tree.path().join("buffer")), 1);
    }
}

#[test] // S38
fn what_was_acknowledged_survives_a_kill_of_program_and_agent_at_random_moments() {
    let mut acknowledged = 0;
    for seed in 0..8 {
        let story = Story::new();
        for boot_verifier in 0..2 {
            let target = story.acknowledged() + 1 + Random(seed + boot_verifier).below(1500);
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

#[test] // S38
fn what_was_acknowledged_survives_a_kill_at_every_fault_point() {
    for (number, point) in fault::POINTS.iter().enumerate() {
        let story = Story::new();
        let seed = 100 + number as u64;
        for (boot_verifier, nth) in [1, 3].into_iter().enumerate() {
            let mut child = start(story.tree.path(), seed, Some(&format!("{point}:{nth}")));
            assert_eq!(wait(&mut child).signal(), Some(libc::SIGKILL), "{point} was not reached");
            let log = std::fs::read_to_string(story.tree.path().join("faults")).unwrap();
            assert_eq!(log.lines().filter(|line| line == point).count(), boot_verifier + 1);
            if boot_verifier == 1 {
                story.check(seed);
            }
        }
    }
}

/// Kills an agent after records were written to the replica and before their room was released.
pub(super) fn left_with_records(seed: u64, durable: bool) -> Story {
    let story = Story::new();
    if durable {
        std::fs::write(story.tree.path().join(super::DURABLE), "").unwrap();
    }
    let mut child = start(story.tree.path(), seed, Some("window.written:2"));
    assert_eq!(wait(&mut child).signal(), Some(libc::SIGKILL));
    story
}

/// Returns the only entry of a directory.
pub(super) fn only(dir: &Path) -> std::path::PathBuf {
    std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path()
}

#[test] // S38
fn what_another_version_left_is_named_and_stays_until_it_can_be_replayed() {
    let story = left_with_records(200, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let place = only(&only(&root.join("w")).join("files"));
    let record = std::fs::read_to_string(place.join("file")).unwrap();
    std::fs::write(place.join("file"), record.replace("\"format\":3", "\"format\":4")).unwrap();
    let agent = agent_over(root, &[]);
    let refused = recovered(&agent, &buffer).unwrap_err().to_string();
    assert!(refused.contains(place.to_str().unwrap()) && refused.contains("of another version"), "{refused}");
    agent.data().shutdown();
    std::fs::write(place.join("file"), record).unwrap();
    story.check(200);
}

/// Name of a file, and the damage done to it.
type Damage = (&'static str, fn(&Path));

#[test] // S38
fn what_is_damaged_beside_a_ring_is_told_as_lost_and_kept_and_stops_no_start() {
    let cut = |path: &Path| std::fs::write(path, "{").unwrap();
    let scribble = |path: &Path| Mapping::open(path, WindowMedium::Volatile).unwrap().word(0).store(5000, SeqCst);
    let cases: [Damage; 6] = [
        ("file", cut),
        ("drained", |path| std::fs::remove_file(path).unwrap()),
        ("drained", |path| std::fs::write(path, "").unwrap()),
        ("drained", scribble),
        ("0.grant", cut),
        ("0", scribble),
    ];
    for (number, (name, damage)) in cases.into_iter().enumerate() {
        let story = left_with_records(210 + number as u64, false);
        let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
        let session = only(&root.join("w"));
        let place = only(&session.join("files"));
        let (ring, capacity) = windows::testing::first_ring(&place).expect("a ring");
        let first = Mapping::open(&place.join("0"), WindowMedium::Volatile).unwrap().word(0).load(SeqCst);
        damage(&place.join(name));
        let agent = agent_over(root, &[]);
        let left = recovered(&agent, &buffer).unwrap();
        assert!(recovered(&agent, &buffer).unwrap().is_empty());
        agent.data().shutdown();
        let [file] = &left[..] else { panic!("{left:?}") };
        let aside = only(&root.join("w"));
        assert_eq!(file.path.to_str(), Some(if name == "file" { "unknown file" } else { "file" }), "{name}");
        let told = |part: &str| file.lost.iter().any(|lost| lost.contains(part));
        assert!(told(&format!("/{name}: ")) && told(aside.to_str().unwrap()), "{file:?}");
        assert!(!session.exists() && aside.to_str().unwrap().contains(".damaged-"), "{aside:?}");
        let memory = |name: &str| Mapping::open(&aside.join(name), WindowMedium::Volatile).unwrap();
        memory("0").word(0).store(first, SeqCst);
        let writer = Writer::new(memory("0"), ring, capacity, Sequence::new(memory("sequence"))).unwrap();
        assert!(writer.is_ending(), "{name}: a program that lives goes on through the kernel");
    }
}

#[test] // S38
fn what_no_agent_made_is_kept_beside_the_session_and_stops_no_start() {
    let story = left_with_records(250, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let session = only(&root.join("w"));
    let files = session.join("files");
    std::fs::write(files.join("7"), "a file").unwrap();
    std::fs::write(files.join("foreign"), "another").unwrap();
    std::fs::create_dir(files.join("directory")).unwrap();
    std::fs::write(files.join("directory/0"), "a third").unwrap();
    let agent = agent_over(root, &[]);
    let told: Vec<String> = recovered(&agent, &buffer).unwrap().into_iter().flat_map(|file| file.lost).collect();
    agent.data().shutdown();
    assert_eq!(told.iter().filter(|lost| lost.contains("nothing that an agent made")).count(), 3, "{told:?}");
    assert!(!session.exists());
    let kept = std::fs::read_dir(root.join("w")).unwrap().map(|entry| entry.unwrap().path());
    let mut kept: Vec<String> =
        kept.map(|path| std::fs::read_to_string(if path.is_dir() { path.join("0") } else { path }).unwrap()).collect();
    kept.sort();
    assert_eq!(kept, ["a file", "a third", "another"]);
    for entry in std::fs::read_dir(root.join("w")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    }
    story.check(250);
}

#[test] // S38
fn a_copy_among_the_rings_is_not_replayed_and_nothing_is_removed_that_no_agent_made() {
    let story = left_with_records(251, false);
    let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
    let files = only(&root.join("w")).join("files");
    let place = only(&files);
    let copy = files.join("1.bak");
    assert!(Command::new("cp").arg("-a").arg(&place).arg(&copy).status().unwrap().success());
    let long = "x".repeat(250);
    for name in ["007", "+7", "70", &long] {
        std::fs::create_dir(files.join(name)).unwrap();
        std::fs::write(files.join(name).join("notes"), "kept").unwrap();
    }
    // As left by an agent that was killed while it made a directory, or while it removed one.
    for (name, left) in [("71", "file.new"), ("72", "sequence"), ("73", "0.grant")] {
        std::fs::create_dir(files.join(name)).unwrap();
        std::fs::write(files.join(name).join(left), "").unwrap();
    }
    let agent = agent_over(root, &[]);
    let told = recovered(&agent, &buffer).unwrap();
    agent.data().shutdown();
    let foreign = |file: &Replayed| file.lost.iter().any(|lost| lost.contains("nothing that an agent made"));
    let (foreign, ours): (Vec<_>, Vec<_>) = told.iter().partition(|file| foreign(file));
    assert_eq!((foreign.len(), ours.len()), (5, 1), "{told:?}");
    let kept: Vec<_> = std::fs::read_dir(root.join("w")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.iter().filter(|path| path.join("notes").exists()).count(), 4, "{kept:?}");
    assert_eq!(kept.iter().filter(|path| path.join("drained").exists()).count(), 1, "{kept:?}");
    kept.iter().for_each(|path| std::fs::remove_dir_all(path).unwrap());
    story.check(251);
}

#[test] // S38
fn what_an_earlier_life_of_the_machine_left_is_not_replayed_over_newer_data() {
    for crashed in [false, true] {
        let story = left_with_records(300, false);
        let (root, buffer) = (story.tree.path(), story.tree.path().join("buffer"));
        if crashed {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let list = std::fs::read_to_string(buffer.join("windows")).unwrap();
            std::fs::write(buffer.join("windows"), list.replace(boot.trim(), "an-earlier-one")).unwrap();
        }
        let agent = agent_over(root, &[]);
        assert_eq!(recovered(&agent, &buffer).unwrap().is_empty(), crashed);
        assert!(recovered(&agent, &buffer).unwrap().is_empty());
        agent.data().shutdown();
        assert_eq!(std::fs::read_dir(root.join("w")).unwrap().count(), 0, "nothing is left");
    }
}

#[test] // S46
fn what_a_window_holds_of_a_file_that_was_removed_before_it_had_that_window_is_known_to_go_with_it() {
    let tree = testkit::TempTree::new();
    let stand = Stand::new(tree.root(), &[]);
    let kept = stand.windowed("kept");
    let removed = stand.windowed("removed");
    stand.agent.unlink(&crate::Caller::own(), stand.agent.root(), "removed".as_ref()).unwrap();
    let _windows = [&kept, &removed].map(|open| stand.attach(open));
    let session = std::fs::read_dir(tree.root().join("w")).unwrap().next().unwrap().unwrap().path();
    let places = std::fs::read_dir(session.join("files")).unwrap();
    let noted = places.filter(|place| place.as_ref().unwrap().path().join("removed").exists());
    assert_eq!(noted.count(), 1);
}
