//! FUSE connections of a server that hangs. A process waiting in such a mount can only be freed by aborting the
//! connection.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::mount::{MountFlags, mount};

const FUSECTL: &str = "/sys/fs/fuse/connections";

/// Aborts every FUSE connection mounted in the mount namespace of process `pid`, except those that this process sees
/// too. Errors are ignored: a connection that is gone needs no abort.
pub fn abort_connections_of(pid: u32) {
    let theirs = || fuse_devices(&format!("/proc/{pid}/mountinfo"));
    let ours = fuse_devices("/proc/self/mountinfo");
    for minor in theirs().iter().filter(|minor| !ours.contains(minor)) {
        let abort = Path::new(FUSECTL).join(minor).join("abort");
        if !abort.exists() {
            let _ = mount("none", FUSECTL, "fusectl", MountFlags::empty(), None);
        }
        let Ok(mut abort) = File::options().write(true).open(abort) else { continue };
        // The open file belongs to one connection. Check again that it is the child's: the number may have been reused
        // by another test.
        if theirs().contains(minor) {
            let _ = abort.write_all(b"1");
        }
    }
}

/// Returns the device minors of the FUSE mounts in a mountinfo file. A minor is the connection's name.
fn fuse_devices(mountinfo: &str) -> Vec<String> {
    fs::read_to_string(mountinfo).map(|text| text.lines().filter_map(fuse_device).collect()).unwrap_or_default()
}

/// Returns the device minor of a FUSE mount: `36 35 0:52 / /mnt rw,nosuid - fuse.forebay source rw` gives `52`.
fn fuse_device(line: &str) -> Option<String> {
    let (before, after) = line.split_once(" - ")?;
    let kind = after.split(' ').next()?;
    if kind != "fuse" && !kind.starts_with("fuse.") {
        return None;
    }
    let (_, minor) = before.split(' ').nth(2)?.split_once(':')?;
    Some(minor.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fuse_mounts_name_a_connection() {
        let fuse = "36 35 0:52 / /mnt rw,nosuid shared:1 - fuse.forebay /data rw,user_id=0";
        assert_eq!(fuse_device(fuse).as_deref(), Some("52"));
        assert_eq!(fuse_device("22 1 254:0 / / rw - ext4 /dev/vda rw"), None);
        assert_eq!(fuse_device("30 22 0:28 / /sys/fs/fuse/connections rw - fusectl none rw"), None);
        assert_eq!(fuse_device(""), None);
    }
}
