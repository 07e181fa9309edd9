//! Scratch directories.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// Mounts on one another that are taken away.
const MOUNTS_OVER_EACH_OTHER_MAX: usize = 16;

/// A directory of its own for one test, removed with everything below at the end. What is mounted below, by whomever, is unmounted first, and
/// if anything stays mounted there nothing is removed: it may be a directory of the machine.
///
/// It lies in the directory that `FOREBAY_TEST_DIR` names, else in the system's temporary directory.
pub struct TempTree {
    root: TempDir,
}

impl TempTree {
    /// A new empty directory.
    #[expect(clippy::new_without_default, reason = "a default that touches the disk would surprise")]
    pub fn new() -> TempTree {
        let parent = std::env::var_os("FOREBAY_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let root = tempfile::Builder::new().prefix("forebay-test-").tempdir_in(&parent);
        let root = root.unwrap_or_else(|error| panic!("a directory in {}: {error}", parent.display()));
        TempTree { root }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A path below it; nothing is created.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root().join(relative)
    }

    /// A directory below it, created with its parents if missing.
    pub fn dir(&self, relative: impl AsRef<Path>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        path
    }

    /// A file below it with `content`, its directories created if missing.
    pub fn file(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        self.dir(path.parent().expect("a file is in a directory"));
        fs::write(&path, content).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        path
    }

    /// A tmpfs of `bytes` mounted at a new directory below: a store that can be filled. Only for a test in a private
    /// mount namespace; unmounted with the tree.
    pub fn mount_tmpfs(&self, relative: impl AsRef<Path>, bytes: u64) -> PathBuf {
        let path = self.dir(relative);
        let options = std::ffi::CString::new(format!("size={bytes},mode=0755")).expect("no zero byte");
        mount("testkit-memory", &path, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))
            .unwrap_or_else(|error| panic!("mount a tmpfs on {}: {error}", path.display()));
        path
    }
}

impl Drop for TempTree {
    fn drop(&mut self) {
        // Some may be seen only when those over them have gone.
        for _ in 0..MOUNTS_OVER_EACH_OTHER_MAX {
            let Some(mounts) = mounts_below(self.root()).filter(|mounts| !mounts.is_empty()) else { break };
            // The outer ones take those within with them, whose paths nobody needs to walk.
            mounts.iter().for_each(|path| _ = unmount(path, UnmountFlags::DETACH));
        }
        if mounts_below(self.root()).is_none_or(|mounts| !mounts.is_empty()) {
            self.root.disable_cleanup(true);
        }
    }
}

/// What this process sees mounted below `root`, or there; `None` if nobody can tell.
fn mounts_below(root: &Path) -> Option<Vec<PathBuf>> {
    let root = fs::canonicalize(root).ok()?;
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescaped);
    Some(points.filter(|point| point.starts_with(&root)).collect())
}

/// A path as the table writes it, with `\040` for a space and the like.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let value = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_below_by_others_is_unmounted_and_not_emptied() {
        crate::in_private_namespace(|| {
            let (tree, other) = (TempTree::new(), TempTree::new());
            let kept = other.file("kept", "content");
            for at in ["one", "one", "one/two words"] {
                fs::create_dir_all(other.path("two words")).unwrap();
                rustix::mount::mount_bind_recursive(other.root(), tree.dir(at)).unwrap();
            }
            let root = tree.root().to_owned();
            assert!(root.join("one/two words/kept").exists());
            drop(tree);
            assert!(kept.exists() && !root.exists());
        });
    }

    #[test]
    fn a_tree_goes_with_its_files() {
        let tree = TempTree::new();
        let file = tree.file("a/b/c", "content");
        assert_eq!(fs::read(&file).unwrap(), b"content");
        assert_eq!(file, tree.path("a/b/c"));
        drop(tree);
        assert!(!file.exists());
    }
}
