//! A disk of its own for a test: an image with ext4, which can be made to fail as a bad disk makes it fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};

use crate::wait::{PATIENCE, wait_until};

/// How a disk is mounted that an error makes read-only.
const FAILING: &str = "loop,errors=remount-ro";

/// An image with ext4, mounted. Only for a test in a private mount namespace.
pub struct Disk {
    image: PathBuf,
    place: PathBuf,
}

impl Disk {
    /// Makes `bytes` of it at the new file `image`, mounted at the directory `place`. `None`, which is said, where there are no loop
    /// devices or tools for it.
    pub fn new(image: PathBuf, place: PathBuf, bytes: u64) -> Option<Disk> {
        let disk = Disk { image, place };
        let made = disk.make(bytes, &[], FAILING) && disk.trigger().exists();
        disk.or_skipped(made)
    }

    /// One of which more is promised than the file system of `image` has: it finds out when it writes back. It has no journal, which
    /// would take room.
    pub fn without_room(image: PathBuf, place: PathBuf, bytes: u64) -> Option<Disk> {
        let disk = Disk { image, place };
        let made = disk.make(bytes, &["-O", "^has_journal"], "loop");
        disk.or_skipped(made)
    }

    /// What is on `image`, which somebody else has made, mounted at the directory `place`.
    pub fn again(image: PathBuf, place: PathBuf) -> Option<Disk> {
        let disk = Disk { image, place };
        let mounted = disk.mount("loop");
        disk.or_skipped(mounted)
    }

    fn make(&self, bytes: u64, options: &[&str], mounted: &str) -> bool {
        let file = fs::File::create(&self.image).expect("an image");
        file.set_len(bytes).expect("room for an image");
        run(Command::new("mkfs.ext4").arg("-q").args(options).arg(&self.image)) && self.mount(mounted)
    }

    fn or_skipped(self, made: bool) -> Option<Disk> {
        if !made {
            eprintln!("skipped: it takes a loop device, and mkfs.ext4");
        }
        made.then_some(self)
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.place
    }

    fn mount(&self, options: &str) -> bool {
        run(Command::new("mount").args(["-o", options]).arg(&self.image).arg(&self.place))
    }

    /// What tells its file system of an error.
    fn trigger(&self) -> PathBuf {
        let found = Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&self.place).output().expect("findmnt");
        let device = String::from_utf8(found.stdout).expect("the name of a device");
        let name = device.trim().rsplit('/').next().expect("a device");
        PathBuf::from(format!("/sys/fs/ext4/{name}/trigger_fs_error"))
    }

    /// The file system finds an error in itself and becomes read-only, whoever has files open for writing; nothing that is not on the
    /// medium reaches it any more.
    pub fn become_read_only(&self) {
        fs::write(self.trigger(), "a test").expect("an error of ext4");
    }

    /// When nobody has anything open there any more it is checked, and takes writes again.
    pub fn mend(&self) {
        wait_until("nobody uses the disk", PATIENCE, || unmount(&self.place, UnmountFlags::empty()).is_ok());
        let checked = Command::new("e2fsck").args(["-fp"]).arg(&self.image).output().expect("e2fsck");
        assert!(checked.status.code().is_some_and(|code| code < 4), "e2fsck: {checked:?}");
        assert!(self.mount(FAILING), "mount the disk again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.place, UnmountFlags::DETACH);
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}
