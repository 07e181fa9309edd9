//! Windows at a server: rings that killed agents of this node have left.
//!
//! An agent at a server has no burst buffer in which to note its rings. It notes them in its own directory, beside
//! those of the user's other agents, with the identity of the directory that it serves. It holds a lock there as long
//! as it lives. The next agent for the same directory replays the rings of dead agents, whatever their server's
//! address was. Agents that start at once do that one after the other.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use durable::sync_directory;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::place;

/// File in an agent's directory: locked by the agent as long as it lives.
const ALIVE: &str = "alive";
/// File in an agent's directory: identity of the directory that it serves.
const SERVES: &str = "serves";
/// File in an agent's directory: its sessions of windows that have not ended.
const WINDOWS: &str = "windows";

/// Mark that an agent lives, as long as this value exists.
#[derive(Debug)]
pub struct Alive {
    _lock: Lock,
}

/// Lock that is held until dropped. A process forked meanwhile shares it and must not drop it.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlocked explicitly: a child that has not executed its program yet has the descriptor too.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Directories that were found, and the locks that keep other agents from looking at them.
#[derive(Debug)]
pub struct Left {
    /// Directories of killed agents.
    pub dirs: Vec<PathBuf>,
    _only: Vec<Lock>,
    _dead: Vec<Lock>,
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(false).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Marks `own` as the directory of a live agent that serves `directory`. Called before the first ring exists.
pub fn begin(own: &Path, directory: &str) -> io::Result<Alive> {
    let file = create(&own.join(ALIVE))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let lock = Lock(file);
    let serves = own.join(SERVES);
    fs::write(&serves, directory)?;
    // The directory may lie on persistent memory.
    File::open(&serves)?.sync_all()?;
    sync_directory(own)?;
    Ok(Alive { _lock: lock })
}

/// Returns whether an agent has noted windows that it has not ended. Its directory must then stay.
pub fn has_windows(dir: &Path) -> bool {
    fs::metadata(dir.join(WINDOWS)).is_ok_and(|found| found.len() > 0)
}

/// Returns whether `dir` is the directory of an agent at a server that noted some windows.
pub fn is_of_agent(dir: &Path) -> bool {
    dir.join(SERVES).exists() && has_windows(dir)
}

/// Whether it is a directory, and no link to one, in which nobody else makes or reads anything.
pub fn is_ours_alone(all: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(all)?;
    Ok(found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0)
}

/// Finds the directories that killed agents for `directory` have left, beside `own` or in `lasting`. Waits while another
/// agent looks at them.
pub fn find(own: &Path, lasting: Option<&Path>, directory: &str) -> io::Result<Left> {
    let all = own.parent().unwrap_or(own);
    // Where several users have windows others may have made it, and would have us replay what they like.
    let lasting = lasting.filter(|all| is_ours_alone(all).unwrap_or(false));
    // Whoever waited for himself would wait for ever.
    let place = |dir: &Path| fs::metadata(dir).map(|found| (found.dev(), found.ino()));
    let here = place(all)?;
    let lasting = lasting.filter(|dir| place(dir).is_ok_and(|there| there != here));
    let mut left = Left { dirs: Vec::new(), _only: Vec::new(), _dead: Vec::new() };
    // Always in this order. An agent whose first directory is elsewhere, as in each job of a cluster, meets this one
    // at the second.
    for dir in [Some(all), lasting].into_iter().flatten() {
        left._only.push(the_only_one(dir, directory)?);
    }
    let lasting = lasting.map(fs::read_dir).transpose()?;
    for entry in fs::read_dir(all)?.chain(lasting.into_iter().flatten()) {
        let dir = entry?.path();
        let serves = fs::read(dir.join(SERVES)).is_ok_and(|bytes| bytes == directory.as_bytes());
        if dir == own || !serves || !has_windows(&dir) {
            continue;
        }
        if let Some(lock) = of_dead(&dir)? {
            left.dirs.push(dir);
            left._dead.push(lock);
        }
    }
    Ok(left)
}

/// Takes the lock for looking at what was left in `dir` for a directory. Waits for it.
fn the_only_one(dir: &Path, directory: &str) -> io::Result<Lock> {
    let file = create(&dir.join(format!("replay-{:016x}", place::hash(directory.bytes()))));
    // The file system may be full: then the lock is on `dir` itself, whatever directory others look for.
    let file = file.or_else(|_| File::open(dir))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(Lock(file))
}

/// Takes the lock of an agent's directory. Returns `None` while that agent lives, or somebody else looks.
pub fn of_dead(dir: &Path) -> io::Result<Option<Lock>> {
    let file = create(&dir.join(ALIVE))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test] // S46
    fn what_a_dead_agent_left_is_found_by_the_next_for_the_same_directory() {
        let tree = tempfile::tempdir().unwrap();
        let agent = |name: &str| {
            let dir = tree.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        };
        let (dead, other, ended, living, own) =
            (agent("dead"), agent("other"), agent("ended"), agent("living"), agent("own"));
        drop(begin(&dead, "one").unwrap());
        drop(begin(&other, "two").unwrap());
        drop(begin(&ended, "one").unwrap());
        let _lives = begin(&living, "one").unwrap();
        for dir in [&dead, &other, &living] {
            fs::write(dir.join(WINDOWS), "a session").unwrap();
        }
        fs::write(ended.join(WINDOWS), "").unwrap();
        let left = find(&own, None, "one").unwrap();
        assert_eq!(left.dirs, std::slice::from_ref(&dead));
        assert_eq!(begin(&dead, "one").unwrap_err().kind(), io::ErrorKind::WouldBlock, "held while it is replayed");
        drop(left);
        assert_eq!(find(&own, None, "two").unwrap().dirs, [other]);
    }

    #[test]
    fn what_lies_where_others_could_have_made_it_is_not_believed() {
        let tree = testkit::TempTree::new();
        let (own, all) = (tree.dir("run/own"), tree.dir("pmem/forebay-agents"));
        let dead = tree.dir("pmem/forebay-agents/dead");
        drop(begin(&dead, "one").unwrap());
        tree.file("pmem/forebay-agents/dead/windows", "a session");
        let mode = |bits: u32| fs::set_permissions(&all, fs::Permissions::from_mode(bits)).unwrap();
        let found = |all: &Path| find(&own, Some(all), "one").unwrap().dirs;
        mode(0o700);
        assert_eq!(found(&all), std::slice::from_ref(&dead));
        let link = tree.path("pmem/link");
        std::os::unix::fs::symlink(&all, &link).unwrap();
        assert!(found(&link).is_empty() && found(&tree.path("pmem/none")).is_empty());
        mode(0o755);
        assert!(found(&all).is_empty());
        mode(0o700);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&all, Some(12345), None).unwrap();
            assert!(found(&all).is_empty());
        }
    }

    #[test]
    fn who_looks_elsewhere_first_waits_for_who_looks_at_what_outlives_the_machine() {
        let tree = testkit::TempTree::new();
        let (one, other) = (tree.dir("one/own"), tree.dir("other/own"));
        let (all, dead) = (tree.dir("pmem/forebay-agents"), tree.dir("pmem/forebay-agents/dead"));
        fs::set_permissions(&all, fs::Permissions::from_mode(0o700)).unwrap();
        drop(begin(&dead, "one").unwrap());
        tree.file("pmem/forebay-agents/dead/windows", "a session");
        let left = find(&one, Some(&all), "one").unwrap();
        assert_eq!(left.dirs, std::slice::from_ref(&dead));
        std::thread::scope(|scope| {
            assert!(find(&other, Some(&all), "two").unwrap().dirs.is_empty(), "of another directory");
            let found = scope.spawn(|| find(&other, Some(&all), "one").unwrap().dirs);
            let lock = fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
            let held = |path: PathBuf| flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockShared).is_err();
            assert_eq!(lock.map(held).filter(|held| *held).count(), 1);
            drop(left);
            assert_eq!(found.join().unwrap(), std::slice::from_ref(&dead), "it did not take it for one that lives");
        });
        // By another name, too.
        let link = tree.path("link");
        std::os::unix::fs::symlink(tree.path("pmem"), &link).unwrap();
        let own = tree.dir("pmem/forebay-agents/own");
        for all in [&all, &link.join("forebay-agents")] {
            assert_eq!(find(&own, Some(all), "one").unwrap().dirs, std::slice::from_ref(&dead));
        }
    }

    #[test]
    fn a_child_that_shares_a_lock_does_not_keep_it() {
        let tree = tempfile::tempdir().unwrap();
        let alive = begin(tree.path(), "one").unwrap();
        let _shared = alive._lock.0.try_clone().unwrap();
        drop(alive);
        let dead = of_dead(tree.path()).unwrap().unwrap();
        let _shared = dead.0.try_clone().unwrap();
        drop(dead);
        begin(tree.path(), "two").unwrap();
    }

    #[test] // S38
    fn no_lock_is_made_where_a_link_leads() {
        let tree = tempfile::tempdir().unwrap();
        let made = tree.path().join("made");
        std::os::unix::fs::symlink(&made, tree.path().join(ALIVE)).unwrap();
        assert!(of_dead(tree.path()).is_err() && begin(tree.path(), "one").is_err());
        assert!(!made.exists());
    }
}
