//! Random commits, reopens and crashes against a map.

mod support;

use std::collections::BTreeMap;

use catalogue::{Catalogue, Change, Durability, FjallCatalogue, Record, State};
use models::MemoryCatalogue;
use support::{Random, identity, record};
use types::Identity;

type Model = BTreeMap<Identity, Record>;

fn apply(model: &mut Model, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(identity, record) => model.insert(identity.clone(), record.clone()),
            Change::Remove(identity) => model.remove(identity),
        };
    }
}

fn random_changes(random: &mut Random) -> Vec<Change> {
    let one = |random: &mut Random| {
        let identity = identity(random.below(50));
        if random.below(4) == 0 { Change::Remove(identity) } else { Change::Put(identity, record(random)) }
    };
    (0..random.below(6)).map(|_| one(random)).collect()
}

/// Asserts that all ways to read agree with the model.
fn agrees(catalogue: &dyn Catalogue, model: &Model) {
    let mut all = Model::new();
    let mut damaged = Vec::new();
    let mut insert = |identity, record| all.insert(identity, record).is_none();
    catalogue.scan(&mut insert, &mut |error| damaged.push(error.to_string())).unwrap();
    assert_eq!(&all, model);
    assert_eq!(damaged, Vec::<String>::new());
    let mut unclean = Model::new();
    catalogue.unclean(&mut |identity, record| assert!(unclean.insert(identity, record).is_none())).unwrap();
    let expected: Model =
        model.iter().filter(|(_, r)| r.state != State::Clean).map(|(i, r)| (i.clone(), r.clone())).collect();
    assert_eq!(unclean, expected);
    for number in 0..50 {
        assert_eq!(catalogue.get(&identity(number)).unwrap().as_ref(), model.get(&identity(number)));
    }
}

#[test]
fn records_on_disk_are_those_of_a_map_through_every_reopen() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let mut model = Model::new();
    for _ in 0..12 {
        let catalogue = FjallCatalogue::open(directory.path()).unwrap();
        agrees(&catalogue, &model);
        for _ in 0..random.below(40) {
            let changes = random_changes(&mut random);
            apply(&mut model, &changes);
            let durability = if random.below(8) == 0 { Durability::Machine } else { Durability::Process };
            catalogue.commit(changes, durability).unwrap();
        }
        agrees(&catalogue, &model);
    }
}

#[test]
fn memory_keeps_what_it_promised_through_a_crash() {
    let catalogue = MemoryCatalogue::new();
    let mut random = Random(8);
    let (mut model, mut durable) = (Model::new(), Model::new());
    for _ in 0..2000 {
        let changes = random_changes(&mut random);
        apply(&mut model, &changes);
        if random.below(3) == 0 {
            catalogue.commit(changes, Durability::Machine).unwrap();
            durable = model.clone();
        } else {
            catalogue.commit(changes, Durability::Process).unwrap();
        }
        if random.below(10) == 0 {
            catalogue.crash();
            model = durable.clone();
        }
        agrees(&catalogue, &model);
    }
}

#[test]
fn a_failed_commit_in_memory_changes_nothing() {
    let catalogue = MemoryCatalogue::new();
    let mut random = Random(9);
    let put = Change::Put(identity(1), record(&mut random));
    catalogue.fail_commits(1, 1);
    catalogue.commit(vec![put.clone()], Durability::Process).unwrap();
    assert!(catalogue.commit(vec![Change::Remove(identity(1))], Durability::Process).is_err());
    assert_eq!((catalogue.len(), catalogue.commits()), (1, 2));
    catalogue.commit(vec![Change::Remove(identity(1))], Durability::Process).unwrap();
    assert!(catalogue.is_empty());
}

#[test]
fn commits_of_many_threads_are_all_there_and_the_last_of_each_wins() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = FjallCatalogue::open(directory.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let catalogue = &catalogue;
            scope.spawn(move || {
                let mut random = Random(thread);
                for round in 0..50 {
                    let last = Record { used_s: round, ..record(&mut random) };
                    let durability = if thread == 0 { Durability::Machine } else { Durability::Process };
                    catalogue.commit(vec![Change::Put(identity(thread), last.clone())], durability).unwrap();
                    assert_eq!(catalogue.get(&identity(thread)).unwrap(), Some(last));
                }
            });
        }
    });
    drop(catalogue);
    let catalogue = FjallCatalogue::open(directory.path()).unwrap();
    for thread in 0..8 {
        assert_eq!(catalogue.get(&identity(thread)).unwrap().unwrap().used_s, 49);
    }
}

#[test]
fn an_empty_commit_for_the_machine_makes_those_before_it_durable() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = FjallCatalogue::open(directory.path()).unwrap();
    catalogue.commit(vec![], Durability::Machine).unwrap();
    catalogue.commit(vec![], Durability::Process).unwrap();
}

#[test]
fn more_records_than_fit_in_memory_survive_a_reopen() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(10);
    let mut model = Model::new();
    let catalogue = FjallCatalogue::open(directory.path()).unwrap();
    for round in 0..60 {
        let changes: Vec<_> = (0..1000)
            .map(|at| {
                Change::Put(identity(round * 800 + at), Record { reason: "x".repeat(200), ..record(&mut random) })
            })
            .collect();
        apply(&mut model, &changes);
        catalogue.commit(changes, Durability::Process).unwrap();
    }
    agrees(&catalogue, &model);
    drop(catalogue);
    agrees(&FjallCatalogue::open(directory.path()).unwrap(), &model);
}
