//! Scratch directories.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// Most mounts stacked on one another that are unmounted.
const MOUNTS_OVER_EACH_OTHER_MAX: usize = 16;

/// A scratch directory for one test, removed with everything below it at the end.
///
/// Whatever is mounted below is unmounted first, whoever mounted it. If any mount remains, nothing is removed: it may
/// be a directory of the machine.
///
/// The directory lies in the directory that `FOREBAY_TEST_DIR` names, otherwise in the system's temporary directory.
pub struct TempTree {
    root: TempDir,
}

impl TempTree {
    /// Creates a new empty directory.
    #[expect(clippy::new_without_default, reason = "a default that touches the disk would surprise")]
    pub fn new() -> TempTree {
        let parent = std::env::var_os("FOREBAY_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let root = tempfile::Builder::new().prefix("forebay-test-").tempdir_in(&parent);
        let root = root.unwrap_or_else(|error| panic!("a directory in {}: {error}", parent.display()));
        TempTree { root }
    }

    /// Returns the path of the scratch directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns a path below the scratch directory; nothing is created.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root().join(relative)
    }

    /// Creates a directory below the scratch directory, with its parents if missing, and returns its path.
    pub fn dir(&self, relative: impl AsRef<Path>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        path
    }

    /// Writes a file with `content` below the scratch directory, creates its parents if missing, and returns its path.
    pub fn file(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        self.dir(path.parent().expect("a file is in a directory"));
        fs::write(&path, content).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        path
    }

    /// Mounts a tmpfs of `bytes` at a new directory below, as a store that can be filled. Unmounted with the tree.
    ///
    /// Only for a test in a private mount namespace.
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
        // A mount can be hidden until the mounts above it are gone.
        for _ in 0..MOUNTS_OVER_EACH_OTHER_MAX {
            let Some(mounts) = mounts_below(self.root()).filter(|mounts| !mounts.is_empty()) else { break };
            // Unmounting an outer mount detaches the inner ones too, without walking their paths.
            mounts.iter().for_each(|path| _ = unmount(path, UnmountFlags::DETACH));
        }
        if mounts_below(self.root()).is_none_or(|mounts| !mounts.is_empty()) {
            self.root.disable_cleanup(true);
        }
    }
}

/// Returns the mount points at or below `root` that this process sees; `None` if that cannot be determined.
fn mounts_below(root: &Path) -> Option<Vec<PathBuf>> {
    let root = fs::canonicalize(root).ok()?;
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescaped);
    Some(points.filter(|point| point.starts_with(&root)).collect())
}

/// Decodes a path as mountinfo encodes it, with `\040` for a space and so on.
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
