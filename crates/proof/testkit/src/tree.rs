//! Scratch directories.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

/// A directory of its own for one test, removed with everything below at the end, mounts made here included.
///
/// It lies in the directory that `FOREBAY_TEST_DIR` names, else in the system's temporary directory.
pub struct TempTree {
    root: TempDir,
    mounts: std::sync::Mutex<Vec<PathBuf>>,
}

impl TempTree {
    /// A new empty directory.
    #[expect(clippy::new_without_default, reason = "a default that touches the disk would surprise")]
    pub fn new() -> TempTree {
        let parent = std::env::var_os("FOREBAY_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let root = tempfile::Builder::new().prefix("forebay-test-").tempdir_in(&parent);
        let root = root.unwrap_or_else(|error| panic!("a directory in {}: {error}", parent.display()));
        TempTree { root, mounts: std::sync::Mutex::default() }
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
        self.mounts.lock().expect("no panic under the lock").push(path.clone());
        path
    }
}

impl Drop for TempTree {
    fn drop(&mut self) {
        let mounts = self.mounts.get_mut().map(std::mem::take).unwrap_or_default();
        for path in mounts.iter().rev() {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
