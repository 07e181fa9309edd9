//! Helpers of several tests of the catalogue.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use catalogue::{Record, State};
pub use testkit::Random;
use types::{Epoch, Fingerprint, Identity, Timestamp, Version};

/// Returns an identity as long as that of a file of ext4.
pub fn identity(number: u64) -> Identity {
    let mut bytes = vec![1, 1, 0, 0];
    bytes.extend_from_slice(&number.to_be_bytes());
    Identity::new(bytes).unwrap()
}

pub fn record(random: &mut Random) -> Record {
    let states = [State::Clean, State::Dirty, State::Draining, State::Conflict, State::Failed];
    let time = Timestamp { seconds: random.below(1 << 40) as i64, nanos: random.below(1_000_000_000) as u32 };
    Record {
        state: states[random.below(5) as usize],
        version: Version(random.below(u64::MAX)),
        epoch: Epoch(random.below(u64::MAX)),
        base: Fingerprint {
            size: random.below(1 << 50),
            mtime: time,
            ctime: time,
            attributes: random.below(1 << 32) as u32,
        },
        was_clean: random.below(2) == 0,
        racy: random.below(2) == 0,
        shown: (random.below(2) == 0).then_some(time),
        sum: (random.below(2) == 0).then(|| random.below(u64::MAX)),
        pinned: random.below(2) == 0,
        orphaned: random.below(2) == 0,
        removing: random.below(2) == 0,
        synced: random.below(2) == 0,
        synced_len: random.below(3),
        damaged: random.below(8) == 0,
        hint: format!("run/{}/out", random.below(1000)).into(),
        used_s: random.below(1 << 33),
        reason: String::new(),
    }
}

const CHILD: &str = "FOREBAY_TEST_DIRECTORY";

/// Makes a command that runs one ignored test of this program in its own process, on a directory.
pub fn child(test: &str, directory: &std::path::Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(CHILD, directory);
    command
}

/// Returns the directory in such a process.
pub fn child_directory() -> Option<std::ffi::OsString> {
    std::env::var_os(CHILD)
}

/// Copies a directory with its content.
pub fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            copy_sparse(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Copies a file and keeps the holes of journals, which consist mostly of holes.
pub fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("--sparse=always").arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp: {status}"))) }
}

/// Copies the files as kill -9 leaves them: at one moment, with no later writes. The database's own threads still tidy
/// up after writes, so a copy counts only if nothing changed meanwhile.
pub fn image_of(directory: &Path) -> tempfile::TempDir {
    testkit::wait_for("a copy while nothing changes", testkit::PATIENCE, || {
        let before = listing(directory).ok()?;
        let image = tempfile::tempdir().unwrap();
        copy_directory(directory, image.path()).ok()?;
        (listing(directory).ok()? == before).then_some(image)
    })
}

/// Lists the files below a directory, with sizes and times.
pub fn listing(directory: &Path) -> io::Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_dir() {
            all.append(&mut listing(&entry.path())?);
        } else {
            all.insert(entry.path(), (about.len(), about.modified()?));
        }
    }
    Ok(all)
}
