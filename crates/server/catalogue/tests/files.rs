//! Opening a catalogue, and refusing other files in its directory.

mod support;

use std::fs;

use catalogue::{Catalogue, Change, Durability, Error, FjallCatalogue};
use support::{Random, identity, record};

#[test]
fn a_second_opener_is_refused_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let first = FjallCatalogue::open(directory.path()).unwrap();
    assert!(matches!(FjallCatalogue::open(directory.path()), Err(Error::Open { .. })));
    drop(first);
    FjallCatalogue::open(directory.path()).unwrap();
}

#[test] // S18
fn another_format_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(FjallCatalogue::open(directory.path()).unwrap());
    for (text, named) in [("forebay catalogue 2\n", "2"), ("", "unreadable"), ("\u{fffd}binary", "unreadable")] {
        fs::write(directory.path().join("FORMAT"), text).unwrap();
        match FjallCatalogue::open(directory.path()).err().unwrap() {
            Error::Format { found, known: 1, .. } => assert_eq!(found, named),
            other => panic!("{other}"),
        }
        assert_eq!(fs::read_to_string(directory.path().join("FORMAT")).unwrap(), text);
    }
}

#[test]
fn records_without_a_format_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let catalogue = FjallCatalogue::open(directory.path()).unwrap();
    let put = Change::Put(identity(1), record(&mut Random(1)));
    catalogue.commit(vec![put], Durability::Machine).unwrap();
    drop(catalogue);
    fs::remove_file(directory.path().join("FORMAT")).unwrap();
    assert!(matches!(FjallCatalogue::open(directory.path()), Err(Error::Format { .. })));
}

#[test]
fn a_database_that_vanished_is_not_silently_replaced() {
    let directory = tempfile::tempdir().unwrap();
    drop(FjallCatalogue::open(directory.path()).unwrap());
    fs::remove_dir_all(directory.path().join("db")).unwrap();
    assert!(matches!(FjallCatalogue::open(directory.path()), Err(Error::Open { .. })));
}

#[test]
fn a_creation_cut_short_at_any_point_is_done_again() {
    let directory = tempfile::tempdir().unwrap();
    drop(FjallCatalogue::open(directory.path()).unwrap());
    fs::remove_file(directory.path().join("FORMAT")).unwrap();
    drop(FjallCatalogue::open(directory.path()).unwrap());
    fs::remove_file(directory.path().join("FORMAT")).unwrap();
    fs::rename(directory.path().join("db"), directory.path().join("db.new")).unwrap();
    fs::remove_file(directory.path().join("db.new/version")).unwrap();
    drop(FjallCatalogue::open(directory.path()).unwrap());
}
