//! An ext4 image as a private disk for one test, which can be made to fail as a bad disk does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};

use crate::wait::{PATIENCE, wait_until};

/// Mount options of a disk that becomes read-only on an error.
const FAILING: &str = "loop,errors=remount-ro";

/// A mounted ext4 image. Only for a test in a private mount namespace.
pub struct Disk {
    image: PathBuf,
    place: PathBuf,
}

impl Disk {
    /// Creates the image file `image` of `bytes` and mounts it at the directory `place`. Returns `None` after printing
    /// a message if loop devices or tools are missing.
    pub fn new(image: PathBuf, place: PathBuf, bytes: u64) -> Option<Disk> {
        let disk = Disk { image, place };
        let made = disk.make(bytes, &[], FAILING) && disk.trigger().exists();
        disk.or_skipped(made)
    }

    /// Creates a disk that claims more space than the file system of `image` has. The shortage shows only at
    /// write-back. The disk has no journal, which would need space.
    ///
    /// Returns `None` like [`Disk::new`].
    pub fn without_room(image: PathBuf, place: PathBuf, bytes: u64) -> Option<Disk> {
        let disk = Disk { image, place };
        let made = disk.make(bytes, &["-O", "^has_journal"], "loop");
        disk.or_skipped(made)
    }

    /// Mounts the existing image `image` at the directory `place`. Returns `None` like [`Disk::new`].
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
            eprintln!("skipped: this test needs loop devices and mkfs.ext4");
        }
        made.then_some(self)
    }

    /// Returns the directory where the disk is mounted.
    pub fn place(&self) -> &Path {
        &self.place
    }

    fn mount(&self, options: &str) -> bool {
        run(Command::new("mount").args(["-o", options]).arg(&self.image).arg(&self.place))
    }

    /// Returns the sysfs file that reports an error to the disk's file system.
    fn trigger(&self) -> PathBuf {
        let found = Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&self.place).output().expect("findmnt");
        let device = String::from_utf8(found.stdout).expect("the name of a device");
        let name = device.trim().rsplit('/').next().expect("a device");
        PathBuf::from(format!("/sys/fs/ext4/{name}/trigger_fs_error"))
    }

    /// Makes the file system detect an error and become read-only, even with files open for writing. Data that is not
    /// yet on the medium never reaches it.
    pub fn become_read_only(&self) {
        fs::write(self.trigger(), "a test").expect("an error of ext4");
    }

    /// Waits until nobody has a file open on the disk, then checks the file system and mounts it writable again.
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
