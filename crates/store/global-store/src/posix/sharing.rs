//! Properties that follow from the type of a file system: whether other machines may change it, lock across nodes, and
//! so on.

use std::io;

use rustix::fs;

use super::identity::FUSE_MAGIC;

/// `statfs` types of file systems that several machines mount.
const SHARED: [i64; 17] = [
    0x6969,      // NFS
    0x0BD0_0BD0, // Lustre
    0x00C3_6400, // Ceph
    0x4750_4653, // GPFS, Storage Scale
    0x1983_0326, // BeeGFS
    0x517B,      // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB 2 and 3
    0x0102_1997, // 9p
    0x5346_414F, // AFS
    0x6B41_4653, // kAFS
    0x7461_636F, // OCFS2
    0x0116_1970, // GFS2
    0x2003_0528, // OrangeFS
    0x1803_1977, // WekaFS
    0xAAD7_AAEA, // PanFS
    0x7375_7245, // Coda
];

/// Subtypes of FUSE file systems that several machines mount. Others are local: archives, encryption, test beds.
const SHARED_FUSE: [&str; 25] = [
    "alluxio",
    "beegfs",
    "ceph",
    "ceph-fuse",
    "curvefs",
    "cvmfs2",
    "gcsfuse",
    "glusterfs",
    "gpfs",
    "hdfs",
    "juicefs",
    "JuiceFS",
    "lizardfs",
    "mfs",
    "moosefs",
    "mount-s3",
    "orangefs",
    "quobyte",
    "rclone",
    "s3fs",
    "saunafs",
    "seaweedfs",
    "slowfs-shared", // a test bed that stands for one (docs/slowfs.md)
    "sshfs",
    "davfs2",
];

/// `statfs` types of file systems with times fine enough to distinguish each change from an earlier `stat`, since Linux
/// 6.13.
const FINE_TIMES: [i64; 4] = [
    0xEF53,      // ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x0102_1994, // tmpfs
];

/// Returns whether, on this `statfs` type and kernel, each change after a `stat` gets a new time.
pub(super) fn has_fine_times(kind: i64) -> bool {
    FINE_TIMES.contains(&kind) && is_kernel_from((6, 13))
}

/// Returns whether the running kernel has this version or a later one; false if unknown.
pub fn is_kernel_from(version: (u32, u32)) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    kernel(&release) >= version
}

/// Returns the first two numbers of a kernel release.
fn kernel(release: &str) -> (u32, u32) {
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// `statfs` types of shared file systems whose clients send locks to a common server, unless a mount option says
/// otherwise.
///
/// BeeGFS keeps locks on the node unless it is tuned; 9p and AFS always do. SMB locks block reads and writes of other
/// nodes.
const LOCK_ACROSS: [i64; 6] = [
    0x6969,      // NFS
    0x0BD0_0BD0, // Lustre
    0x00C3_6400, // Ceph
    0x4750_4653, // GPFS, Storage Scale
    0x7461_636F, // OCFS2
    0x0116_1970, // GFS2
];

/// Subtypes of FUSE file systems whose clients send locks to a common server.
const LOCK_ACROSS_FUSE: [&str; 8] =
    ["ceph", "ceph-fuse", "glusterfs", "juicefs", "JuiceFS", "mfs", "moosefs", "saunafs"];

/// Mount options of NFS and Lustre that keep locks on the node.
const LOCKS_STAY: [&str; 6] =
    ["nolock", "local_lock=all", "local_lock=flock", "local_lock=posix", "localflock", "noflock"];

/// Checks whether locks on a shared or FUSE file system exclude programs of other nodes. Errors: the reason why not, in
/// a few words.
///
/// `kind` is the `statfs` type. `table` is the text of `mountinfo`, in which `device` has its mount options.
pub(super) fn locks_across_nodes(kind: i64, table: &str, device: u64) -> Result<(), String> {
    let mounted = mounted_as(table, device);
    let name = mounted.map_or("a file system of an unknown type", |(kind, _)| kind);
    let known = match kind {
        FUSE_MAGIC => name.strip_prefix("fuse.").is_some_and(|subtype| LOCK_ACROSS_FUSE.contains(&subtype)),
        _ => LOCK_ACROSS.contains(&kind),
    };
    if !known {
        return Err(format!("{name} is not known to lock across nodes"));
    }
    let stays = options(table, device).find(|option| LOCKS_STAY.contains(option));
    stays.map_or(Ok(()), |option| Err(format!("{name} is mounted with {option}")))
}

/// Returns the mount options of a device: those of the mount, then those of its file system.
fn options(table: &str, device: u64) -> impl Iterator<Item = &str> {
    let device = format!("{}:{}", fs::major(device), fs::minor(device));
    let of = table.lines().filter_map(|line| line.split_once(" - "));
    let of = of.filter(move |(mount, _)| mount.split(' ').nth(2) == Some(&device)).take(1);
    of.flat_map(|(mount, kind)| [mount.split(' ').nth(5), kind.split(' ').nth(2)])
        .flatten()
        .flat_map(|words| words.split(','))
}

/// Returns whether several machines may mount a file system of this `statfs` type; `device` is its `st_dev`.
pub(super) fn is_shared(kind: i64, device: u64) -> io::Result<bool> {
    if kind == FUSE_MAGIC {
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        return Ok(fuse_subtype(&table, device).is_some_and(|subtype| SHARED_FUSE.contains(&subtype)));
    }
    Ok(SHARED.contains(&kind))
}

/// Returns the FUSE subtype of a device in the text of `mountinfo`. A detached clone is not listed, but the mount it
/// was cloned from has the same device.
fn fuse_subtype(table: &str, device: u64) -> Option<&str> {
    mounted_as(table, device)?.0.strip_prefix("fuse.")
}

/// Returns file system type and source of the mount of a device.
pub(super) fn mounted_as(table: &str, device: u64) -> Option<(&str, &str)> {
    let device = format!("{}:{}", fs::major(device), fs::minor(device));
    table.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if mount.split(' ').nth(2)? != device {
            return None;
        }
        let mut words = kind.split(' ');
        Some((words.next()?, words.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
40 22 0:51 / /mnt/gluster rw,nosuid master:3 shared:7 - fuse.glusterfs server:/volume rw,user_id=0\n\
44 22 0:54 / /mnt/bed rw,nosuid - fuse.slowfs-shared /srv/data rw,user_id=0\n\
41 22 0:52 / /mnt/plain rw,nosuid - fuse /dev/fuse rw,user_id=0\n\
42 22 0:53 / /mnt/archive rw,nosuid - fuse.archivemount archive rw,user_id=0\n";

    #[test] // S18
    fn the_subtype_of_a_fuse_mount_is_found_by_device() {
        assert_eq!(fuse_subtype(TABLE, fs::makedev(0, 51)), Some("glusterfs"));
        assert_eq!(fuse_subtype(TABLE, fs::makedev(0, 52)), None);
        assert_eq!(fuse_subtype(TABLE, fs::makedev(0, 53)), Some("archivemount"));
        assert_eq!(fuse_subtype(TABLE, fs::makedev(0, 99)), None);
        assert_eq!(mounted_as(TABLE, fs::makedev(0, 51)), Some(("fuse.glusterfs", "server:/volume")));
        assert!(SHARED_FUSE.contains(&fuse_subtype(TABLE, fs::makedev(0, 54)).unwrap()));
        assert!(SHARED_FUSE.contains(&"glusterfs") && !SHARED_FUSE.contains(&"archivemount"));
    }

    #[test] // S68
    fn whether_locks_reach_other_nodes_is_told_by_type_and_mount_options() {
        const NFS: i64 = 0x6969;
        const TABLE: &str = "\
43 22 0:60 / /mnt/nfs rw,relatime - nfs4 server:/a rw,vers=4.2,local_lock=none\n\
44 22 0:61 / /mnt/old rw,relatime - nfs server:/a rw,vers=3,nolock,local_lock=all\n\
45 22 0:62 / /mnt/gluster rw - fuse.glusterfs server:/volume rw\n\
46 22 0:63 / /mnt/slow rw - fuse.slowfs slowfs rw\n";
        let across = |kind, minor| locks_across_nodes(kind, TABLE, fs::makedev(0, minor));
        assert_eq!(across(NFS, 60), Ok(()));
        assert_eq!(across(NFS, 61), Err("nfs is mounted with nolock".into()));
        assert_eq!(across(FUSE_MAGIC, 62), Ok(()));
        assert_eq!(across(FUSE_MAGIC, 63), Err("fuse.slowfs is not known to lock across nodes".into()));
    }

    #[test]
    fn a_temporary_directory_of_this_machine_is_not_shared() {
        let directory = tempfile::tempdir().unwrap();
        let fd = std::fs::File::open(directory.path()).unwrap();
        let device = fs::fstat(&fd).unwrap().st_dev;
        assert!(!is_shared(fs::fstatfs(&fd).unwrap().f_type as i64, device).unwrap());
    }
}
