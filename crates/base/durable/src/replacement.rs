//! The replacement of a small file's content.
//!
//! D1. A reader of the name sees the former content or the new one, never a part.
//! D2. A failure before the rename leaves the former content under the name, and no temporary file that this call opened.
//! D3. A link under the temporary file's name is neither followed nor removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::sync_directory;

/// How much of a replacement survives a crash of the machine. The death of the process alone loses none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// No sync: after a crash the file may be the former one, the new one, or empty.
    Volatile,
    /// The content is synced before the rename: after a crash the file is the former one or the new one.
    Synced,
    /// The directory is synced as well: after a successful return the file is the new one, whatever crashes.
    SyncedName,
}

/// A step of a replacement, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Open,
    SetMode,
    Write,
    Sync,
    Rename,
    SyncDirectory,
}

/// Replaces the content of the file `path` by `content`, or creates it, with the permission bits `mode` whatever the umask says.
///
/// The content is written to [`temporary`]`(path)`, which takes its place by a rename. A temporary file left by a crash is reused.
/// Two replacements of one path must not run at the same time.
///
/// Errors: those of the system calls; `ELOOP` if somebody put a link under the temporary name. After an error of the directory's
/// sync the new content is in place, without being durable; after any other the former content is, and the temporary file is removed.
pub fn replace(path: &Path, content: &[u8], durability: Durability, mode: u32) -> io::Result<()> {
    replace_in_steps(path, content, durability, mode, |_| Ok(()))
}

/// Returns the name of the temporary file of a [replacement](replace) of `path`: a sibling with `.new` appended.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Does what [`replace`] promises; `before` is asked before each step, whose failure it may pretend.
fn replace_in_steps(
    path: &Path,
    content: &[u8],
    durability: Durability,
    mode: u32,
    before: impl Fn(Step) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
    before(Step::Open)?;
    let file = options.open(&temporary)?;
    let placed = fill(&file, content, durability, mode, &before).and_then(|()| {
        before(Step::Rename)?;
        fs::rename(&temporary, path)
    });
    if let Err(error) = placed {
        // The first error is the one to tell; a file that stays is reused by the next replacement.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    if durability == Durability::SyncedName {
        before(Step::SyncDirectory)?;
        sync_directory(parent(path))?;
    }
    Ok(())
}

fn fill(
    mut file: &File,
    content: &[u8],
    durability: Durability,
    mode: u32,
    before: &impl Fn(Step) -> io::Result<()>,
) -> io::Result<()> {
    before(Step::SetMode)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    before(Step::Write)?;
    file.write_all(content)?;
    if durability != Durability::Volatile {
        before(Step::Sync)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Returns the directory that holds `path`; a bare name is in the current one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    const ALL: [Durability; 3] = [Durability::Volatile, Durability::Synced, Durability::SyncedName];

    fn steps(durability: Durability) -> Vec<Step> {
        let tree = tempfile::tempdir().unwrap();
        let seen = RefCell::new(Vec::new());
        let note = |step| {
            seen.borrow_mut().push(step);
            Ok(())
        };
        replace_in_steps(&tree.path().join("file"), b"new", durability, 0o600, note).unwrap();
        seen.into_inner()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_created_and_replaced_without_a_temporary_one_left() {
        for durability in ALL {
            let tree = tempfile::tempdir().unwrap();
            let path = tree.path().join("file.toml");
            for content in ["first, and longer", "second"] {
                replace(&path, content.as_bytes(), durability, 0o600).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), content);
            }
            assert_eq!(names(tree.path()), ["file.toml"]);
        }
    }

    #[test]
    fn content_is_replaced_at_once() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("file");
        replace(&path, b"former", Durability::Volatile, 0o600).unwrap();
        let held = File::open(&path).unwrap();
        let until_the_rename = |step| {
            let seen = fs::read(&path).unwrap();
            assert_eq!(seen, if step == Step::SyncDirectory { &b"new"[..] } else { b"former" }, "{step:?}");
            Ok(())
        };
        replace_in_steps(&path, b"new", Durability::SyncedName, 0o600, until_the_rename).unwrap();
        assert_eq!(io::read_to_string(held).unwrap(), "former", "a reader keeps what it opened");
    }

    #[test]
    fn durability_says_what_is_synced() {
        use Step::*;
        assert_eq!(steps(Durability::Volatile), [Open, SetMode, Write, Rename]);
        assert_eq!(steps(Durability::Synced), [Open, SetMode, Write, Sync, Rename]);
        assert_eq!(steps(Durability::SyncedName), [Open, SetMode, Write, Sync, Rename, SyncDirectory]);
    }

    #[test]
    fn a_failure_at_each_step_leaves_the_former_content_and_no_temporary_file() {
        for failing in steps(Durability::SyncedName) {
            for exists in [false, true] {
                let tree = tempfile::tempdir().unwrap();
                let path = tree.path().join("file");
                if exists {
                    fs::write(&path, "former").unwrap();
                }
                let fail = |step| if step == failing { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) };
                let error = replace_in_steps(&path, b"new", Durability::SyncedName, 0o600, fail).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                let found = fs::read_to_string(&path).ok();
                let former = exists.then_some("former");
                // The name is changed then, as the documentation says.
                let expected = if failing == Step::SyncDirectory { Some("new") } else { former };
                assert_eq!(found.as_deref(), expected, "{failing:?}");
                assert!(!temporary(&path).exists(), "{failing:?}");
            }
        }
    }

    #[test]
    fn what_the_file_system_refuses_leaves_no_temporary_file() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("directory");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"new", Durability::Volatile, 0o600).is_err());
        assert_eq!(names(tree.path()), ["directory"]);
        fs::create_dir(tree.path().join("file.new")).unwrap();
        assert!(replace(&tree.path().join("file"), b"new", Durability::Volatile, 0o600).is_err());
        assert_eq!(names(tree.path()), ["directory", "file.new"]);
    }

    #[test]
    fn the_mode_is_the_one_asked_for_whatever_a_former_file_had() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("file");
        fs::write(temporary(&path), "left by a crash, and longer than the new one").unwrap();
        fs::set_permissions(temporary(&path), Permissions::from_mode(0o644)).unwrap();
        for mode in [0o600, 0o666, 0o640] {
            replace(&path, b"new", Durability::Volatile, mode).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
            assert_eq!(fs::read(&path).unwrap(), b"new");
        }
    }

    #[test]
    fn nothing_is_written_where_a_link_leads_that_somebody_put_in_the_way() {
        let tree = tempfile::tempdir().unwrap();
        let (path, other) = (tree.path().join("file"), tree.path().join("other"));
        fs::write(&other, "kept").unwrap();
        symlink(&other, temporary(&path)).unwrap();
        let error = replace(&path, b"new", Durability::Synced, 0o600).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        assert_eq!(names(tree.path()), ["file.new", "other"]);
    }

    #[test]
    fn a_bare_name_is_in_the_current_directory() {
        assert_eq!(parent(Path::new("file")), Path::new("."));
        assert_eq!(parent(Path::new("a/file")), Path::new("a"));
        assert_eq!(parent(Path::new("/")), Path::new("/"));
    }
}
