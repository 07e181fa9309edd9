//! Crashes of the process (kill -9 of a child that commits) and of the machine (images with a torn journal).

mod support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record};
use support::{Random, child, identity, image_of, record};

const THREADS: u64 = 4;

/// Commits pairs of records without end and prints each acknowledgement. Run by the test below.
#[test]
#[ignore = "a child of kill_9"]
fn child_commits_until_killed() {
    let Some(directory) = support::child_directory() else { return };
    let catalogue = FjallCatalogue::open(directory).unwrap();
    std::thread::scope(|scope| {
        // Begins the journal anew again and again meanwhile.
        scope.spawn(|| {
            loop {
                catalogue.condense().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        for thread in 0..THREADS {
            let catalogue = &catalogue;
            scope.spawn(move || {
                let mut random = Random(thread);
                let first = catalogue.get(&identity(thread)).unwrap().map_or(0, |record| record.used_s);
                for round in first + 1.. {
                    let record = Record { used_s: round, reason: "x".repeat(1000), ..record(&mut random) };
                    // The second of the pair is new each round, so that tables are written as well.
                    let other = identity(1000 + thread + round * THREADS);
                    let pair = vec![Change::Put(identity(thread), record.clone()), Change::Put(other, record)];
                    let durability = if random.below(16) == 0 { Durability::Machine } else { Durability::Process };
                    catalogue.commit(pair, durability).unwrap();
                    // One write(2) per line, so that a line is whole or absent.
                    std::io::stderr().write_all(format!("ack {thread} {round}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn whatever_was_acknowledged_is_there_after_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..8 {
        let mut child = child("child_commits_until_killed", directory.path()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut hear = |line: String| {
            let Some(words) = line.strip_prefix("ack ") else { return };
            let (thread, round) = words.split_once(' ').unwrap();
            acknowledged.insert(thread.parse().unwrap(), round.parse().unwrap());
        };
        lines.by_ref().take(1 + random.below(3000) as usize).for_each(&mut hear);
        child.kill().unwrap();
        lines.for_each(hear);
        child.wait().unwrap();

        let catalogue = FjallCatalogue::open(directory.path()).unwrap();
        for (&thread, &round) in &acknowledged {
            let last = catalogue.get(&identity(thread)).unwrap().unwrap();
            assert!(last.used_s >= round, "thread {thread}: {} but {round} was acknowledged", last.used_s);
            for round in 1..=last.used_s {
                let other = catalogue.get(&identity(1000 + thread + round * THREADS)).unwrap();
                assert_eq!(other.map(|other| other.used_s), Some(round), "thread {thread}");
            }
            let beyond = catalogue.get(&identity(1000 + thread + (last.used_s + 1) * THREADS)).unwrap();
            assert_eq!(beyond, None, "half of a pair");
        }
    }
    assert_eq!(acknowledged.len() as u64, THREADS);
}

fn newest_journal(directory: &Path) -> PathBuf {
    let journals = fs::read_dir(directory.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    journals.filter(|path| path.extension().is_some_and(|e| e == "jnl")).max_by_key(number).unwrap()
}

/// Returns the offset one past the last written byte.
fn written(journal: &Path) -> u64 {
    let file = fs::File::open(journal).unwrap();
    let (mut at, mut end) = (0, 0);
    let mut chunk = [0; 4096];
    // Most of a journal is a hole.
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let count = file.read_at(&mut chunk, data).unwrap();
        if let Some(last) = chunk[..count].iter().rposition(|&byte| byte != 0) {
            end = data + last as u64 + 1;
        }
        at = data + count as u64;
    }
    end
}

/// Loses some of the data written after the last sync, as a disk may: an end, pages, or both.
fn tear(journal: &Path, synced: u64, end: u64, random: &mut Random) {
    let file = OpenOptions::new().read(true).write(true).open(journal).unwrap();
    let lost = end - synced;
    match random.below(3) {
        0 => file.set_len(synced + random.below(lost + 1)).unwrap(),
        kind => {
            let page = if random.below(2) == 0 { 4096 } else { 512 };
            for at in (synced / page..end.div_ceil(page)).filter(|_| random.below(3) == 0) {
                let (start, stop) = ((at * page).max(synced), ((at + 1) * page).min(end));
                file.write_all_at(&vec![0; stop.saturating_sub(start) as usize], start).unwrap();
            }
            if kind == 2 {
                file.set_len(end - random.below(lost + 1)).unwrap();
            }
        }
    }
}

#[test] // S15
fn a_machine_crash_leaves_a_prefix_with_every_durable_commit() {
    let mut random = Random(12);
    for _ in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join("work");
        // State after each commit, and the first state that a crash may leave.
        let mut states = vec![BTreeMap::new()];
        let mut catalogue = FjallCatalogue::open(&work).unwrap();
        let mut durable = 0;
        let mut synced = written(&newest_journal(&work));
        for _ in 0..10 {
            for _ in 0..random.below(8) {
                let mut state = states.last().unwrap().clone();
                let mut changes = Vec::new();
                for _ in 0..1 + random.below(3) {
                    let put = Record { reason: "y".repeat(random.below(1000) as usize), ..record(&mut random) };
                    let who = identity(random.below(20));
                    state.insert(who.clone(), put.clone());
                    changes.push(Change::Put(who, put));
                }
                let machine = random.below(6) == 0;
                catalogue.commit(changes, if machine { Durability::Machine } else { Durability::Process }).unwrap();
                states.push(state);
                if machine {
                    (durable, synced) = (states.len() - 1, written(&newest_journal(&work)));
                }
            }
            for _ in 0..4 {
                let copy = image_of(&work);
                let image = copy.path();
                let journal = newest_journal(image);
                tear(&journal, synced, written(&journal), &mut random);
                let found = read_all(&FjallCatalogue::open(image).unwrap());
                let prefix = states.iter().rposition(|state| *state == found);
                assert!(prefix.is_some_and(|prefix| prefix >= durable), "{prefix:?} of {} < {durable}", states.len());
                // The remaining database can be written to and opened again.
                let reopened = FjallCatalogue::open(image).unwrap();
                let last = Record { used_s: 42, ..record(&mut random) };
                reopened.commit(vec![Change::Put(identity(99), last.clone())], Durability::Process).unwrap();
                drop(reopened);
                assert_eq!(FjallCatalogue::open(image).unwrap().get(&identity(99)).unwrap(), Some(last));
            }
            if random.below(3) == 0 {
                match random.below(3) {
                    0 => catalogue.condense().unwrap(),
                    1 => {
                        drop(catalogue);
                        catalogue = FjallCatalogue::open(&work).unwrap();
                    }
                    _ => {
                        catalogue.condense().unwrap();
                        catalogue.close().unwrap();
                        drop(catalogue);
                        catalogue = FjallCatalogue::open(&work).unwrap();
                    }
                }
                // Opening syncs the data that it found.
                (durable, synced) = (states.len() - 1, written(&newest_journal(&work)));
            }
        }
    }
}

fn read_all(catalogue: &FjallCatalogue) -> BTreeMap<types::Identity, Record> {
    let mut all = BTreeMap::new();
    let mut insert = |identity, record| all.insert(identity, record).is_none();
    catalogue.scan(&mut insert, &mut |error| panic!("{error}")).unwrap();
    all
}
