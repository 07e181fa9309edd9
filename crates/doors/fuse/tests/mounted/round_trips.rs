//! Requests that the kernel makes for an operation of a program, as a table in the book says.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use testkit::in_private_namespace;

use crate::stand::{EXCLUSIVE, How, PASSTHROUGH, Stand};

/// Page with the tables, whose first columns are the operations and whose second are their requests.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/book/inside/round-trips.md");
const FILES: u64 = 20;
/// Heading of the table for directories that nobody else changes.
const DELEGATED: &str = "## In a delegated tree";

/// Operation of a program on one file of a directory: the operation of the table, and the work.
type Operation = (&'static str, fn(&Path));

const OPERATIONS: [Operation; 17] = [
    ("create, write, close", |path| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
        file.write_all(b"content").unwrap();
    }),
    ("stat after a write", |path| _ = fs::metadata(path).unwrap()),
    ("stat again", |path| _ = fs::metadata(path).unwrap()),
    ("open, read, close", |path| File::open(path).unwrap().read_exact(&mut [0; 7]).unwrap()),
    ("list, stat of each", list),
    ("list again", list),
    ("stat of an absent name", |path| assert!(!new(path).exists())),
    ("stat of it again", |path| assert!(!new(path).exists())),
    ("create of it, close", |path| drop(File::create(new(path)).unwrap())),
    ("rename", |path| fs::rename(path, renamed(path)).unwrap()),
    ("link", |path| fs::hard_link(renamed(path), path).unwrap()),
    ("unlink", |path| fs::remove_file(path).unwrap()),
    ("chmod", |path| fs::set_permissions(renamed(path), fs::Permissions::from_mode(0o600)).unwrap()),
    ("unlink of the last name", |path| fs::remove_file(renamed(path)).unwrap()),
    ("symlink", |path| std::os::unix::fs::symlink("target", renamed(path)).unwrap()),
    ("mkdir", |path| fs::create_dir(path).unwrap()),
    ("rmdir", |path| fs::remove_dir(path).unwrap()),
];

fn list(path: &Path) {
    let listing = fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(listing.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>(), 7 * FILES);
}

fn new(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn renamed(path: &Path) -> PathBuf {
    path.with_extension("renamed")
}

/// Returns the requests for one of FILES operations, by the kernel's names.
fn requests(stand: &Stand, operate: fn(&Path)) -> BTreeMap<String, u64> {
    let before = stand.requests();
    (0..FILES).for_each(|number| operate(&stand.path(format!("d/{number}"))));
    let after = stand.requests().into_iter();
    let made = after.map(|(kind, count)| (kind, count - before.get(&kind).copied().unwrap_or(0)));
    // The first of the operations may need one more, or one less.
    let each = made.map(|(kind, count)| (format!("{kind:?}").to_uppercase(), (count + FILES / 2) / FILES));
    each.filter(|(_, each)| *each > 0).collect()
}

/// Returns the requests that a part of the page says of each operation.
fn table(part: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let rows = part.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let kinds = |cells: &str| {
        let mut kinds = BTreeMap::new();
        let cell = cells.split('|').next().unwrap_or("").trim();
        for kind in cell.split(", ").filter(|kind| !kind.is_empty()) {
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        kinds
    };
    rows.map(|(operation, requests)| (operation.to_owned(), kinds(requests))).collect()
}

/// Compares the requests of each operation with a part of the page.
fn compare(how: How, part: &str) {
    if !how.is_served() {
        return;
    }
    let stand = Stand::new(how);
    fs::create_dir(stand.path("d")).unwrap();
    let table = table(part);
    for (operation, operate) in OPERATIONS {
        assert_eq!(Some(&requests(&stand, operate)), table.get(operation), "{operation}");
    }
}

#[test]
fn each_operation_makes_the_requests_of_the_table() {
    let page = fs::read_to_string(PAGE).unwrap();
    in_private_namespace(|| compare(PASSTHROUGH, page.split_once(DELEGATED).unwrap().0));
}

#[test]
fn each_operation_in_a_delegated_tree_makes_the_requests_of_its_table() {
    let page = fs::read_to_string(PAGE).unwrap();
    in_private_namespace(|| {
        compare(How { rule: Some("revalidate=1h"), ..EXCLUSIVE }, page.split_once(DELEGATED).unwrap().1)
    });
}
