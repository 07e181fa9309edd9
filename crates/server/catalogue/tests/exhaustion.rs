//! The catalogue when the machine runs out of a resource: it reports that in time and loses nothing.

mod support;

use std::time::{Duration, Instant};

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Random, child, identity, record};

/// Sets a limit of the whole process. The test therefore needs a process of its own.
fn limit(resource: Resource, current: u64) {
    setrlimit(resource, Rlimit { current: Some(current), maximum: getrlimit(resource).maximum }).unwrap();
}

/// Commits until a commit fails. Returns the number of acknowledged commits, and the error.
fn commit_until_error(catalogue: &FjallCatalogue, first: u64) -> (u64, String) {
    let mut random = Random(1);
    for number in first..first + 100_000 {
        let record = Record { used_s: number, reason: "x".repeat(1000), ..record(&mut random) };
        if let Err(error) = catalogue.commit(vec![Change::Put(identity(number), record)], Durability::Process) {
            return (number, error.to_string());
        }
    }
    panic!("100 MB were written without an error");
}

fn survives(resource: Resource, heals: bool, scarce: impl Fn() -> u64) {
    let Some(directory) = support::child_directory() else { return };
    let plenty = getrlimit(resource).current.unwrap_or(u64::MAX);
    let catalogue = FjallCatalogue::open(&directory).unwrap();
    let start = Instant::now();
    limit(resource, scarce());
    let (acknowledged, error) = commit_until_error(&catalogue, 0);
    assert!(acknowledged > 0, "{error}");
    assert!(start.elapsed() < Duration::from_secs(100), "it hung");
    // Further commits are refused at once, and records in memory can still be read.
    let again = catalogue.commit(vec![Change::Remove(identity(0))], Durability::Process).unwrap_err().to_string();
    assert!(again.contains("an earlier commit failed"), "{again}");
    assert!(catalogue.trouble().is_some());
    limit(resource, plenty);
    if heals {
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = catalogue.commit(vec![], Durability::Machine) {
            assert!(Instant::now() < deadline, "it stays refused: {error}");
            std::thread::yield_now();
        }
        assert_eq!(catalogue.trouble(), None);
        assert_eq!(catalogue.get(&identity(acknowledged)).unwrap(), None, "who made it was told that it failed");
    }
    let check = |catalogue: &FjallCatalogue| {
        for number in 0..acknowledged {
            assert_eq!(catalogue.get(&identity(number)).unwrap().map(|record| record.used_s), Some(number));
        }
    };
    if heals {
        check(&catalogue);
    }
    drop(catalogue);
    let catalogue = FjallCatalogue::open(&directory).unwrap();
    check(&catalogue);
    catalogue.commit(vec![Change::Remove(identity(0))], Durability::Machine).unwrap();
}

#[test]
#[ignore = "a child"]
fn child_without_descriptors() {
    // Descriptors in use, without the one that counts them.
    survives(Resource::Nofile, false, || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1);
}

#[test]
#[ignore = "a child"]
fn child_without_space() {
    // SAFETY: ignoring a signal touches no memory.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    survives(Resource::Fsize, false, || 3 << 20);
}

#[test]
#[ignore = "a child"]
fn child_that_heals_without_descriptors() {
    survives(Resource::Nofile, true, || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1);
}

#[test]
#[ignore = "a child"]
fn child_that_heals_without_space() {
    // SAFETY: ignoring a signal touches no memory.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    survives(Resource::Fsize, true, || 3 << 20);
}

#[test] // S17
fn a_catalogue_that_refused_commits_takes_them_again_when_the_cause_is_gone() {
    for name in ["child_that_heals_without_descriptors", "child_that_heals_without_space"] {
        let directory = tempfile::tempdir().unwrap();
        assert!(child(name, directory.path()).status().unwrap().success(), "{name}");
    }
}

#[test]
fn without_descriptors_a_commit_fails_and_a_reopen_has_everything() {
    let directory = tempfile::tempdir().unwrap();
    assert!(child("child_without_descriptors", directory.path()).status().unwrap().success());
}

#[test]
fn without_space_a_commit_fails_and_a_reopen_has_everything() {
    let directory = tempfile::tempdir().unwrap();
    assert!(child("child_without_space", directory.path()).status().unwrap().success());
}
