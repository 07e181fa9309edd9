//! The directory below, and how the agent reaches it after it is mounted over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use global_store::clones;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use types::Shown;

use crate::exit::reason;
use crate::{apart, mounts};

/// Opens a descriptor of the directory below that mounts on top of it do not hide. With privilege, a clone of its
/// mount alone, so that submounts do not show either. Without privilege, the directory itself, which works as long as
/// nothing is mounted over it in this namespace.
pub fn open(dir: &Path) -> io::Result<OwnedFd> {
    match open_tree(CWD, dir, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC) {
        Ok(clone) => {
            // Before Linux 5.12 clones of shared mounts remain peers, and nothing can be done about it.
            let _ = clones::make_own(clone.as_fd(), 0, 0);
            Ok(clone)
        }
        Err(_) => Ok(rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?),
    }
}

/// File systems that are mounted below a directory, held so that they can be moved on top.
#[derive(Debug)]
pub struct Submounts(Vec<(PathBuf, OwnedFd)>);

impl Submounts {
    /// Clones the mounts below `dir`, each with everything mounted inside it. Also returns those that cannot be
    /// cloned and will be hidden.
    pub fn take(dir: &Path) -> io::Result<(Submounts, Vec<String>)> {
        let (mut taken, mut lost) = (Vec::new(), Vec::new());
        for point in mounts::below(&mounts::all()?, dir, None) {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            match open_tree(CWD, &point, flags) {
                Ok(clone) => taken.push((point, clone)),
                Err(error) => lost.push(format!("{}: {}", point.shown(), reason(&error.into()))),
            }
        }
        Ok((Submounts(taken), lost))
    }

    /// Mounts the clones at their old paths, now on top of the mount over the directory. Another thread or process
    /// must serve that mount, since the paths lead through it. Returns those that cannot be mounted.
    pub fn put(self) -> Vec<String> {
        let mut lost = Vec::new();
        for (point, clone) in self.0 {
            if let Err(error) = apart::put_on(clone.as_fd(), &point) {
                lost.push(format!("{}: {}", point.shown(), reason(&error)));
            }
        }
        lost
    }
}
