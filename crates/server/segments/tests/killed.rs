//! A process that dies at every fault point: its successor finds what was acknowledged.
//!
//! The child writes a line before and after each change; what it was about when it died may have happened or not.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use segments::{CompactionStep, ObjectKey, SegmentSettings, SegmentStore, fault};
use testkit::Random;

const SETTINGS: SegmentSettings = SegmentSettings { segment_bytes: 32 << 10, compact_below_percent: 50 };
const DIRECTORY: &str = "FOREBAY_TEST_DIRECTORY";
const KEYS: u64 = 30;

fn key(number: u64) -> ObjectKey {
    ObjectKey(u128::from(number).to_be_bytes())
}

/// The bytes of one version of an object.
fn content(number: u64, version: u64) -> Vec<u8> {
    let mut random = Random(number << 32 | version);
    let len = random.below(3000) as usize;
    random.bytes(len)
}

fn say(words: &str) {
    // One write(2) a line, so that a line is whole or absent.
    std::io::stderr().write_all(format!("{words}\n").as_bytes()).unwrap();
}

/// Changes a store until it is killed, or comes to an end. Run by the test below.
#[test]
#[ignore = "a child of the test below"]
fn child_changes_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let store = SegmentStore::open(Path::new(&directory), SETTINGS).unwrap();
    let mut random = Random(1);
    for version in 1..400 {
        let number = random.below(KEYS);
        if random.below(3) == 0 {
            say(&format!("remove {number} {version}"));
            store.remove(&key(number));
        } else {
            say(&format!("put {number} {version}"));
            store.put(key(number), &content(number, version)).unwrap();
        }
        say("done");
        if random.below(12) == 0 {
            store.sync().unwrap();
        }
        if random.below(6) == 0 {
            store.compact_step().unwrap();
        }
    }
    while store.compact_step().unwrap() != CompactionStep::Nothing {}
}

/// Changes that the child told, by key: `Some(version)` of the last put, `None` after a removal.
#[derive(Default)]
struct Said {
    last: HashMap<u64, Option<u64>>,
    /// Key and version of the change during which it died. No version: a removal.
    unfinished: Option<(u64, Option<u64>)>,
    ever: HashMap<u64, Vec<u64>>,
}

impl Said {
    fn of(lines: &str) -> Said {
        let mut said = Said::default();
        for line in lines.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["done"] => {
                    let (number, version) = said.unfinished.take().unwrap();
                    said.last.insert(number, version);
                }
                [what @ ("put" | "remove"), number, version] => {
                    let (number, version) = (number.parse().unwrap(), version.parse().unwrap());
                    let put = (what == "put").then_some(version);
                    said.ever.entry(number).or_default().extend(put);
                    said.unfinished = Some((number, put));
                }
                _ => {}
            }
        }
        said
    }

    fn check(&self, store: &SegmentStore, context: &str) {
        for number in 0..KEYS {
            let found = store.get(&key(number)).map(|object| object.read_verified().unwrap());
            let is = |version: &u64| found.as_ref() == Some(&content(number, *version));
            let unfinished = self.unfinished.filter(|(of, _)| *of == number);
            let fits = match self.last.get(&number) {
                Some(Some(version)) if !matches!(unfinished, Some((_, None))) => {
                    is(version) || unfinished.is_some_and(|(_, version)| version.as_ref().is_some_and(is))
                }
                // A removal is not durable.
                _ => found.is_none() || self.ever[&number].iter().any(is),
            };
            assert!(fits, "{context}: key {number}, last {:?}, unfinished {unfinished:?}", self.last.get(&number));
        }
    }
}

#[test]
fn a_process_that_dies_at_any_fault_point_loses_nothing_acknowledged() {
    for point in fault::POINTS {
        for nth in [1, 2, 9] {
            let directory = tempfile::tempdir().unwrap();
            let log = directory.path().join("log");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "child_changes_until_killed", "--ignored", "--nocapture"]);
            command.env(DIRECTORY, directory.path().join("segments"));
            command.env("FOREBAY_FAULT", format!("{point}:{nth}")).env("FOREBAY_FAULT_LOG", &log);
            let ended =
                command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
            let context = format!("{point}:{nth}");
            assert_eq!(ended.status.signal(), Some(9), "{context}: {}", String::from_utf8_lossy(&ended.stderr));
            assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{point}\n"));
            let said = Said::of(&String::from_utf8(ended.stderr).unwrap());

            let store = SegmentStore::open(&directory.path().join("segments"), SETTINGS).unwrap();
            let found = store.opening();
            assert!(found.unreadable.is_empty() && found.damaged_objects == 0, "{context}: {found:?}");
            said.check(&store, &context);
            // Its successor goes on where it died.
            let before: Vec<_> = (0..KEYS).map(|number| store.get(&key(number)).map(|found| found.len())).collect();
            store.put(key(KEYS), b"after").unwrap();
            while store.compact_step().unwrap() != CompactionStep::Nothing {}
            said.check(&store, &context);
            let after: Vec<_> = (0..KEYS).map(|number| store.get(&key(number)).map(|found| found.len())).collect();
            assert_eq!(before, after, "{context}");
        }
    }
}
