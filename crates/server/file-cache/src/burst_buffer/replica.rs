//! Replica files: flat, sparse, offset for offset the image of the file.
//!
//! `replicas/xx/<version>` holds the data, and `sums/xx/<version>` the block checksums of its clean content.
//! `sums/xx/<version>.end` holds the checksums that an orderly end left of dirty content (`damage.rs`). `xx` is the
//! version's last byte.
//!
//! A dirty replica carries its file's identity in an extended attribute, the *identity attribute*, so that a lost
//! catalogue can be rebuilt. The attribute is removed when the replica becomes clean.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use config::Atime;
use global_store::posix::is_kernel_from;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use types::{ByteRange, Timestamp, Version};

use super::identity_attribute::IdentityAttribute;
use super::noting::{Noting, to_atime};
use crate::errors::os;
use crate::limits::{IDENTITY_ATTRIBUTE_BYTES_MAX, PIECE_BYTES};

/// First kernel version whose `syncfs` reports failed write-backs.
const SYNCFS_TELLS: (u32, u32) = (5, 8);

const REPLICAS: &str = "replicas";
const SUMS: &str = "sums";
const IDENTITY_ATTRIBUTE: &str = "user.forebay.identity";

/// Capacity for a replica's path without growing, in bytes.
const PLACE_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Write,
    /// For a program's reads, which the policy has noted.
    Noted(Atime),
    /// `O_PATH`: the kernel gets this for passthrough, and notes reads as the policy says. It prevents no lease.
    Handle(Atime),
}

/// The directory of the replicas of one burst buffer. Operations on a replica start at its descriptor: the walk to the
/// burst buffer would cost more than most of the calls themselves.
pub(crate) struct Replicas {
    root: PathBuf,
    /// Directory, open for reading. Its descriptor reports every failed write-back as long as the agent lives.
    dir: OwnedFd,
    /// A second descriptor of the directory, asked meanwhile.
    watch: OwnedFd,
    failed: AtomicBool,
    noting: Noting,
    /// Called for each replica that is about to be removed.
    pub(crate) before_removal: OnceLock<Box<dyn Fn(Version) + Send + Sync>>,
    /// For tests: identity attributes of more bytes fail with this error.
    #[cfg(test)]
    pub(crate) refused_identity_attributes: parking_lot::Mutex<Option<(usize, rustix::io::Errno)>>,
}

impl Replicas {
    /// Opens the directory, and makes the subdirectories that are missing.
    pub(crate) fn open(root: &Path) -> io::Result<Replicas> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        [REPLICAS, SUMS, "saved"].iter().try_for_each(|name| builder.create(root.join(name)))?;
        let dir = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Replicas {
            root: root.to_owned(),
            dir,
            watch: rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?,
            failed: AtomicBool::new(false),
            noting: Noting::default(),
            before_removal: OnceLock::new(),
            #[cfg(test)]
            refused_identity_attributes: Default::default(),
        })
    }

    pub(crate) fn path(&self, version: Version) -> PathBuf {
        self.root.join(place(REPLICAS, version))
    }

    pub(crate) fn sums_path(&self, version: Version) -> PathBuf {
        self.root.join(place(SUMS, version))
    }

    /// Returns the path of the checksums that an orderly end left of a dirty replica.
    pub(crate) fn end_path(&self, version: Version) -> PathBuf {
        self.root.join(end_of(version))
    }

    /// Returns the directory in which `resolve` saves replicas that were not chosen.
    pub(crate) fn saved(&self) -> PathBuf {
        self.root.join("saved")
    }

    /// Makes an empty replica, open for reading and writing.
    pub(crate) fn create(&self, version: Version) -> io::Result<OwnedFd> {
        let place = place(REPLICAS, version);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::openat(&self.dir, &place, flags, mode) {
            Err(rustix::io::Errno::NOENT) => {
                // Not by path: the burst buffer may not be mounted there any more.
                match rustix::fs::mkdirat(&self.dir, format!("{REPLICAS}/{}", part_of(version)), Mode::RWXU) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(rustix::fs::openat(&self.dir, &place, flags, mode)?)
            }
            result => Ok(result?),
        }
    }

    pub(crate) fn open_as(&self, version: Version, how: How) -> io::Result<OwnedFd> {
        let place = place(REPLICAS, version);
        let by = |dir, flags| rustix::fs::openat(dir, &place, flags | OFlags::CLOEXEC, Mode::empty());
        let open = |flags| by(self.dir.as_fd(), flags);
        let noting = |atime| self.noting(atime).unwrap_or(self.dir.as_fd());
        Ok(match how {
            // Our reads are no program's reads, and noting them is a write. Only the owner may suppress that.
            How::Read => match open(OFlags::RDONLY | OFlags::NOATIME) {
                Err(rustix::io::Errno::PERM) => open(OFlags::RDONLY)?,
                opened => opened?,
            },
            How::Write => open(OFlags::RDWR)?,
            How::Noted(atime) => by(noting(atime), OFlags::RDONLY)?,
            How::Handle(atime) => by(noting(atime), OFlags::PATH)?,
        })
    }

    /// Returns the burst buffer through a mount that notes reads as a policy says, or `None` if there is none.
    pub(crate) fn noting(&self, atime: Atime) -> Option<BorrowedFd<'_>> {
        match atime {
            Atime::No => Some(self.dir.as_fd()),
            Atime::Relative => self.noting.of(self.dir.as_fd(), false),
            Atime::Strict => self.noting.of(self.dir.as_fd(), true),
        }
    }

    pub(crate) fn set_atime(&self, version: Version, atime: Timestamp) -> io::Result<()> {
        let place = place(REPLICAS, version);
        Ok(rustix::fs::utimensat(&self.dir, place, &to_atime(atime), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Returns a replica's attributes. Errors: `ENOENT` also if the entry is no regular file.
    pub(crate) fn stat(&self, version: Version) -> io::Result<Stat> {
        let stat = rustix::fs::statat(&self.dir, place(REPLICAS, version), AtFlags::SYMLINK_NOFOLLOW)?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return os(libc::ENOENT);
        }
        Ok(stat)
    }

    /// Removes a replica and its checksums. A missing file is no error.
    pub(crate) fn remove(&self, version: Version) -> io::Result<()> {
        self.before_removal.get().iter().for_each(|tell| tell(version));
        for file in [place(REPLICAS, version), place(SUMS, version), end_of(version)] {
            match rustix::fs::unlinkat(&self.dir, file, AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes the identity attribute of a replica, in at most `most` bytes if possible. The former value is replaced,
    /// or stays if this fails. Errors: `EOPNOTSUPP` if the file system has no such attributes.
    pub(crate) fn identity_attribute(
        &self,
        replica: BorrowedFd<'_>,
        identity_attribute: &IdentityAttribute,
        most: usize,
    ) -> io::Result<()> {
        let bytes = identity_attribute.encode(most);
        #[cfg(test)]
        if let Some((_, error)) = self.refused_identity_attributes.lock().filter(|(room, _)| bytes.len() > *room) {
            return Err(error.into());
        }
        Ok(rustix::fs::fsetxattr(replica, IDENTITY_ATTRIBUTE, &bytes, XattrFlags::empty())?)
    }

    pub(crate) fn remove_identity_attribute_of(&self, version: Version) {
        // The attribute or the support for it is missing: nothing to remove.
        let _ = rustix::fs::removexattr(self.path(version), IDENTITY_ATTRIBUTE);
    }

    /// Removes the identity attribute through a descriptor.
    pub(crate) fn remove_identity_attribute(replica: BorrowedFd<'_>) {
        let _ = rustix::fs::fremovexattr(replica, IDENTITY_ATTRIBUTE);
    }

    pub(crate) fn read_identity_attribute(&self, version: Version) -> Option<IdentityAttribute> {
        let mut bytes = vec![0_u8; IDENTITY_ATTRIBUTE_BYTES_MAX];
        let len = rustix::fs::getxattr(self.path(version), IDENTITY_ATTRIBUTE, &mut bytes[..]).ok()?;
        IdentityAttribute::decode(bytes.get(..len)?)
    }

    pub(crate) fn has_identity_attribute(&self, version: Version) -> bool {
        holds_unsaved_data(&self.path(version))
    }

    /// Calls `each` with every replica until it returns `false`. Foreign files among them are skipped.
    pub(crate) fn each(&self, each: &mut dyn FnMut(Version) -> bool) -> io::Result<()> {
        for part in std::fs::read_dir(self.root.join("replicas"))? {
            let part = part?;
            if !part.file_type()?.is_dir() {
                continue;
            }
            for file in std::fs::read_dir(part.path())? {
                let name = file?.file_name();
                let version = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()).map(Version);
                if let Some(version) = version
                    && part.file_name() == part_of(version).as_str()
                    && name == version.to_string().as_str()
                    && !each(version)
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes everything to the medium, at the end. Fails also if any write-back has failed since the start.
    pub(crate) fn sync_at_end(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    /// Returns whether the file system failed to write back anything since the start; true on kernels whose `syncfs`
    /// does not report that (before 5.8). Writes everything to the medium.
    pub(crate) fn have_failed(&self) -> bool {
        if !is_kernel_from(SYNCFS_TELLS) {
            return true;
        }
        if rustix::fs::syncfs(&self.watch).is_err() {
            self.failed.store(true, Ordering::Release);
        }
        self.failed.load(Ordering::Acquire)
    }

    /// Writes everything to the medium.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let root = rustix::fs::open(&self.root, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(rustix::fs::syncfs(&root)?)
    }
}

/// Returns the path below the burst buffer: `replicas/xx/<version>`.
fn place(of: &str, version: Version) -> String {
    use std::fmt::Write;
    let mut place = String::with_capacity(PLACE_BYTES);
    // Writing to memory does not fail.
    let _ = write!(place, "{of}/{:02x}/{version}", version.0 & 0xff);
    place
}

fn end_of(version: Version) -> String {
    place(SUMS, version) + ".end"
}

/// Returns the name of a replica's directory: its version's last byte.
fn part_of(version: Version) -> String {
    format!("{:02x}", version.0 & 0xff)
}

/// Returns whether a replica's identity attribute says that it holds unsaved data, in any format, or cannot be read.
pub fn holds_unsaved_data(replica: &Path) -> bool {
    use rustix::io::Errno;
    let mut none: [u8; 0] = [];
    !matches!(
        rustix::fs::lgetxattr(replica, IDENTITY_ATTRIBUTE, &mut none),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT)
    )
}

/// Returns the replicas of a burst buffer whose identity attributes say that they hold unsaved data.
pub fn with_identity_attribute(burst_buffer: &Path) -> io::Result<Vec<Version>> {
    let (replicas, mut found) = (Replicas::open(burst_buffer)?, Vec::new());
    replicas.each(&mut |version| {
        found.extend(replicas.has_identity_attribute(version).then_some(version));
        true
    })?;
    Ok(found)
}

/// Returns the last version of a replica in the burst buffer; 0 if there is none.
pub fn last_version(burst_buffer: &Path) -> io::Result<Version> {
    let mut last = Version(0);
    Replicas::open(burst_buffer)?.each(&mut |version| {
        last = last.max(version);
        true
    })?;
    Ok(last)
}

pub(crate) fn make_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)
}

pub(crate) fn mtime_of(stat: &Stat) -> Timestamp {
    Timestamp { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

pub(crate) fn ctime_of(stat: &Stat) -> Timestamp {
    Timestamp { seconds: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 }
}

pub(crate) fn set_mtime(fd: BorrowedFd<'_>, mtime: Timestamp) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() },
    };
    Ok(rustix::fs::futimens(fd, &times)?)
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full(fd: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(&fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

pub(crate) fn write_full(fd: impl AsFd, data: &[u8], offset: u64) -> io::Result<()> {
    write_on(fd, data, offset, &mut 0)
}

/// Writes `data` without its first `done` bytes; `data` belongs at `offset`. Updates `done` even if it fails.
pub(crate) fn write_on(fd: impl AsFd, data: &[u8], offset: u64, done: &mut usize) -> io::Result<()> {
    while *done < data.len() {
        match rustix::io::pwrite(&fd, &data[*done..], offset + *done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => *done += written,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes like [`write_full`], in pieces of [`PIECE_BYTES`]. Nobody else may write meanwhile.
pub(crate) fn write_in_pieces(fd: impl AsFd, data: &[u8], offset: u64) -> io::Result<()> {
    let places = (offset..).step_by(PIECE_BYTES);
    data.chunks(PIECE_BYTES).zip(places).try_for_each(|(piece, at)| write_full(&fd, piece, at))
}

/// Returns the first data at or after `from`, ending before `end`; `None` if only a hole follows.
pub(crate) fn next_data(fd: impl AsFd, from: u64, end: u64) -> io::Result<Option<ByteRange>> {
    if from >= end {
        return Ok(None);
    }
    let start = match rustix::fs::seek(&fd, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if start >= end {
        return Ok(None);
    }
    let stop = match rustix::fs::seek(&fd, SeekFrom::Hole(start)) {
        Ok(stop) => stop,
        Err(rustix::io::Errno::NXIO) => end,
        Err(error) => return Err(error.into()),
    };
    Ok(Some(ByteRange::new(start, stop.min(end))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brand_stays_with_its_replica_until_it_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let replicas = Replicas::open(dir.path()).unwrap();
        let version = Version(0x1234);
        let replica = replicas.create(version).unwrap();
        assert_eq!(replicas.read_identity_attribute(version), None);
        let time = Timestamp { seconds: -5, nanos: 7 };
        let identity_attribute = IdentityAttribute {
            identity: types::Identity::new(vec![1, 2, 3]).unwrap(),
            epoch: types::Epoch(4),
            base: types::Fingerprint { size: 9, mtime: time, ctime: time, attributes: 0 },
            hint: "a/b".into(),
        };
        replicas.identity_attribute(replica.as_fd(), &identity_attribute, IDENTITY_ATTRIBUTE_BYTES_MAX).unwrap();
        assert_eq!(replicas.read_identity_attribute(version), Some(identity_attribute));
        Replicas::remove_identity_attribute(replica.as_fd());
        assert_eq!(replicas.read_identity_attribute(version), None);
    }

    #[test]
    fn data_ranges_of_a_sparse_replica_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let replicas = Replicas::open(dir.path()).unwrap();
        let fd = replicas.create(Version(1)).unwrap();
        rustix::fs::ftruncate(&fd, 4 << 20).unwrap();
        write_full(&fd, &[1; 65536], 1 << 20).unwrap();
        let range = ByteRange::at(1 << 20, 65536);
        assert_eq!(next_data(&fd, 0, 4 << 20).unwrap(), Some(range));
        assert_eq!(next_data(&fd, range.end, 4 << 20).unwrap(), None);
    }
}
