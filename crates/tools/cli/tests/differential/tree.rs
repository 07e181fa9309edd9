//! Whole trees, compared name by name.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::outcome::first_difference;

/// Properties of one name that must be equal.
struct Entry {
    what: String,
    content: Vec<u8>,
    mtime: Option<i64>,
    inode: u64,
}

/// Compares two trees: names, kinds, modes, owners, links, sizes, contents, extended attributes, hard-link groups and
/// explicit modification times. `stored`: inode numbers on the second side whose time is not compared. Returns what
/// differs.
pub fn differences(one: &Path, two: &Path, stored: &dyn Fn(u64) -> bool) -> Vec<String> {
    let (one, two) = (read(one), read(two));
    let mut found = Vec::new();
    let mut pairs: BTreeMap<u64, u64> = BTreeMap::new();
    for (path, ours) in &one {
        let Some(theirs) = two.get(path) else {
            found.push(format!("{}: only on the first side", path.display()));
            continue;
        };
        if ours.what != theirs.what {
            found.push(format!("{}: {} against {}", path.display(), ours.what, theirs.what));
        }
        if ours.content != theirs.content {
            found.push(format!("{}: {}", path.display(), first_difference(&ours.content, &theirs.content)));
        }
        if ours.mtime != theirs.mtime && !stored(theirs.inode) {
            found.push(format!("{}: mtime {:?} against {:?}", path.display(), ours.mtime, theirs.mtime));
        }
        if *pairs.entry(theirs.inode).or_insert(ours.inode) != ours.inode {
            found.push(format!("{}: not the hard link that it is on the other side", path.display()));
        }
    }
    for path in two.keys().filter(|path| !one.contains_key(*path)) {
        found.push(format!("{}: only on the second side", path.display()));
    }
    found
}

fn read(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut entries = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        let listing = std::fs::read_dir(root.join(&directory)).expect("read a directory");
        for name in listing.map(|entry| entry.expect("a directory entry").file_name()) {
            let path = directory.join(name);
            let entry = look(&root.join(&path));
            if entry.what.starts_with("directory") {
                left.push(path.clone());
            }
            entries.insert(path, entry);
        }
    }
    entries
}

fn look(path: &Path) -> Entry {
    let meta = path.symlink_metadata().unwrap_or_else(|error| panic!("stat {}: {error}", path.display()));
    let kind = meta.file_type();
    let (name, content) = match () {
        () if kind.is_dir() => ("directory", Vec::new()),
        () if kind.is_symlink() => {
            let target = std::fs::read_link(path).expect("read a link");
            ("link", target.into_os_string().into_encoded_bytes())
        }
        () if kind.is_file() => {
            let content = std::fs::read(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
            ("file", content)
        }
        () if kind.is_fifo() => ("fifo", Vec::new()),
        () => ("other", Vec::new()),
    };
    let xattrs = if kind.is_symlink() { Vec::new() } else { crate::names::xattrs(path).expect("list xattrs") };
    let size = if kind.is_file() { meta.len() } else { 0 };
    let what =
        format!("{name} {:o} {}:{} links {} size {size} {xattrs:?}", meta.mode(), meta.uid(), meta.gid(), meta.nlink());
    let explicit = kind.is_file() && meta.mtime() < 1_000_000_000;
    Entry { what, content, mtime: explicit.then(|| meta.mtime()), inode: meta.ino() }
}
