//! Bytes that the next opening reads again: none after an orderly end, and never too many.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record, State};
use support::{Random, identity, record};
use types::Identity;

/// Writes some megabytes of journal: small commits, as an agent makes them. Records become dirty and clean, and some
/// are removed.
fn fill(catalogue: &FjallCatalogue, records: u64) {
    let mut random = Random(5);
    let commit = |change| catalogue.commit(vec![change], Durability::Process).unwrap();
    for number in 0..records {
        commit(Change::Put(identity(number), Record { state: State::Dirty, ..record(&mut random) }));
        match number % 10 {
            0 => {}
            1 => commit(Change::Remove(identity(number))),
            _ => commit(Change::Put(identity(number), Record { state: State::Clean, ..record(&mut random) })),
        }
    }
}

type Contents = (BTreeMap<Identity, Record>, BTreeMap<Identity, Record>);

fn contents(catalogue: &FjallCatalogue) -> Contents {
    let (mut all, mut unclean) = (BTreeMap::new(), BTreeMap::new());
    catalogue.scan(&mut |who, record| all.insert(who, record).is_none(), &mut |error| panic!("{error}")).unwrap();
    catalogue.unclean(&mut |who, record| _ = unclean.insert(who, record)).unwrap();
    assert!(unclean.iter().all(|(who, record)| record.state != State::Clean && all.get(who) == Some(record)));
    (all, unclean)
}

fn journals(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory.join("db")).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).collect()
}

fn open(directory: &Path) -> FjallCatalogue {
    FjallCatalogue::open(directory).unwrap()
}

#[test]
fn an_orderly_end_leaves_nothing_to_read_again_and_all_records() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = open(directory.path());
    fill(&catalogue, 5000);
    let before = contents(&catalogue);
    assert_eq!((before.0.len(), before.1.len()), (4500, 500));
    assert!(catalogue.replay_bytes() > 1 << 20, "{}", catalogue.replay_bytes());
    catalogue.close().unwrap();
    assert!(catalogue.get(&identity(0)).is_err(), "it is closed");
    assert!(catalogue.commit(Vec::new(), Durability::Process).is_err(), "it is closed");
    drop(catalogue);
    let catalogue = open(directory.path());
    assert_eq!(catalogue.replay_bytes(), 0);
    assert_eq!(contents(&catalogue), before);
    // Later changes count from there, also if the catalogue is dropped without `close`.
    catalogue.commit(vec![Change::Remove(identity(0))], Durability::Process).unwrap();
    drop(catalogue);
    let catalogue = open(directory.path());
    assert!((1..1000).contains(&catalogue.replay_bytes()), "{}", catalogue.replay_bytes());
    assert_eq!(contents(&catalogue).0.len(), 4499);
    assert_eq!(contents(&catalogue).1.len(), 499);
}

#[test]
fn an_agent_that_is_killed_after_it_was_idle_leaves_little_to_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = open(directory.path());
    fill(&catalogue, 2000);
    let before = contents(&catalogue);
    catalogue.condense().unwrap();
    assert_eq!(catalogue.replay_bytes(), 0);
    assert_eq!(contents(&catalogue), before);
    let image = support::image_of(directory.path());
    let after = open(image.path());
    assert_eq!(after.replay_bytes(), 0);
    assert_eq!(contents(&after), before);
}

#[test]
fn what_is_committed_and_read_meanwhile_is_not_lost() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = open(directory.path());
    let ended = AtomicBool::new(false);
    let condensed = std::thread::scope(|scope| {
        let condensing = scope.spawn(|| {
            let mut count = 0;
            while !ended.load(Ordering::Acquire) {
                catalogue.condense().unwrap();
                count += 1;
            }
            count
        });
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let catalogue = &catalogue;
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for number in 0..1000 {
                        let (who, what) = (identity(thread * 1000 + number), record(&mut random));
                        let durability = if number % 50 == 0 { Durability::Machine } else { Durability::Process };
                        catalogue.commit(vec![Change::Put(who.clone(), what.clone())], durability).unwrap();
                        assert_eq!(catalogue.get(&who).unwrap(), Some(what));
                    }
                })
            })
            .collect();
        // Joins before the assertion, even if a writer panicked: the other thread would condense for ever.
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::Release);
        let condensed = condensing.join().unwrap();
        written.into_iter().for_each(|writer| writer.unwrap());
        condensed
    });
    assert!(condensed > 1, "{condensed}");
    let before = contents(&catalogue);
    assert_eq!(before.0.len(), 3000);
    drop(catalogue);
    assert_eq!(contents(&open(directory.path())), before);
}

/// A machine that crashes at this point may keep the old journal, the new one, or both.
#[test]
fn a_crash_between_the_tables_and_the_new_journal_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = open(directory.path());
    fill(&catalogue, 2000);
    let before = contents(&catalogue);
    let [old] = &journals(directory.path())[..] else { panic!("more than one journal") };
    let kept = tempfile::tempdir().unwrap();
    let copy = kept.path().join("journal");
    support::copy_sparse(old, &copy).unwrap();
    catalogue.close().unwrap();
    drop(catalogue);
    let [new] = &journals(directory.path())[..] else { panic!("more than one journal") };
    assert_ne!(new, old);
    for both in [true, false] {
        let image = tempfile::tempdir().unwrap();
        support::copy_directory(directory.path(), image.path()).unwrap();
        support::copy_sparse(&copy, &image.path().join("db").join(old.file_name().unwrap())).unwrap();
        if !both {
            fs::remove_file(image.path().join("db").join(new.file_name().unwrap())).unwrap();
        }
        for round in 0..3 {
            let catalogue = open(image.path());
            assert_eq!(contents(&catalogue), before, "both {both}, round {round}");
            if round == 1 {
                catalogue.close().unwrap();
            }
        }
    }
}

#[test]
fn a_few_changes_are_left_in_the_journal_by_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = open(directory.path());
    fill(&catalogue, 20);
    let (before, journal) = (contents(&catalogue), journals(directory.path()));
    catalogue.close().unwrap();
    drop(catalogue);
    assert_eq!(journals(directory.path()), journal);
    let catalogue = open(directory.path());
    assert!(catalogue.replay_bytes() > 0);
    assert_eq!(contents(&catalogue), before);
}
