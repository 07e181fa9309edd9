//! Checks of a burst buffer's file system, by trying each feature.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, SeekFrom, XattrFlags};
use types::Shown;

use super::Check;
use crate::exit::reason;

/// Free space below which a burst buffer is of little use.
const FREE_WARN_BYTES: u64 = 1 << 30;
/// End of the probed hole: beyond every block and page size.
const HOLE_BYTES: u64 = 4 << 20;

pub fn checks(dir: &Path) -> Vec<Check> {
    let file = match probe_file(dir) {
        Ok(file) => file,
        Err(error) => {
            let found = format!("cannot write in {}: {}", dir.shown(), reason(&error));
            return vec![Check::missing("burst buffer", found, "name a directory that exists and can be written")];
        }
    };
    let mut checks = vec![kind(dir), space(dir)];
    checks.push(tried(
        "xattrs",
        rustix::fs::fsetxattr(&file, "user.forebay.probe", b"1", XattrFlags::empty()),
        "replicas carry their identity",
        "without user xattrs a lost catalogue cannot be rebuilt from the replicas; use ext4, XFS or btrfs",
    ));
    checks.push(tried("holes", hole(&file), "sparse files", "holes would take space: use ext4, XFS, btrfs or tmpfs"));
    checks.push(tried(
        "leases",
        lease(&file),
        "mapped writers are noticed",
        "a program that maps a file and closes it cannot be noticed: such files stay dirty until the end",
    ));
    checks
}

/// Creates a file, without a name where the file system supports that, so that nothing is left behind.
fn probe_file(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
            let path = dir.join(format!(".forebay-probe-{}", std::process::id()));
            let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

fn tried(name: &'static str, result: rustix::io::Result<()>, found: &str, remedy: &str) -> Check {
    match result {
        Ok(()) => Check::ok(name, found),
        Err(error) => Check::limited(name, format!("not here: {}", reason(&error.into())), remedy),
    }
}

fn kind(dir: &Path) -> Check {
    let seen = crate::mounts::all().unwrap_or_default();
    let path = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let kind = crate::mounts::covering(&seen, &path).map_or("unknown", |mount| mount.kind.as_str());
    let found = format!("{} on {kind}", dir.shown());
    match kind {
        "tmpfs" | "ramfs" => {
            Check::limited("burst buffer", found, "it is memory: a crash of the machine loses what is not drained")
        }
        "nfs" | "nfs4" | "ceph" | "lustre" | "cifs" | "9p" => {
            Check::limited("burst buffer", found, "it is a network file system: a local NVMe device is what pays")
        }
        _ if kind.starts_with("fuse") => {
            Check::limited("burst buffer", found, "FUSE below FUSE is slow: use a local device")
        }
        _ => Check::ok("burst buffer", found),
    }
}

fn space(dir: &Path) -> Check {
    let Ok(stat) = rustix::fs::statvfs(dir) else {
        return Check::limited("free space", "unknown", "");
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} of {} MiB", free >> 20, stat.f_blocks.saturating_mul(stat.f_frsize) >> 20);
    if free < FREE_WARN_BYTES {
        Check::limited(
            "free space",
            found,
            "less than 1 GiB: new files go to the global store when it is full, and one that outgrows it while the kernel writes it fails",
        )
    } else {
        Check::ok("free space", found)
    }
}

fn hole(file: &OwnedFd) -> rustix::io::Result<()> {
    rustix::fs::ftruncate(file, HOLE_BYTES)?;
    rustix::io::pwrite(file, b"x", HOLE_BYTES)?;
    let data = rustix::fs::seek(file, SeekFrom::Data(0))?;
    if data == 0 { Err(rustix::io::Errno::OPNOTSUPP) } else { Ok(()) }
}

fn lease(file: &OwnedFd) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reader = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: fcntl with a valid descriptor and an integer argument.
    let refused = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } < 0;
    let error = io::Error::last_os_error();
    match (refused, error.raw_os_error()) {
        // The file is open for writing here, which is exactly what a lease has to notice.
        (true, Some(libc::EAGAIN)) => Ok(()),
        (true, Some(errno)) => Err(rustix::io::Errno::from_raw_os_error(errno)),
        _ => Err(rustix::io::Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn an_ordinary_directory_is_probed_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let checks = checks(dir.path());
        assert_eq!(checks.len(), 5);
        assert!(checks.iter().all(|check| check.verdict != Verdict::Missing), "{checks:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_burst_buffer_that_is_not_there_is_missing() {
        let checks = checks(Path::new("/nonexistent/bb"));
        assert_eq!(checks[0].verdict, Verdict::Missing);
    }
}
