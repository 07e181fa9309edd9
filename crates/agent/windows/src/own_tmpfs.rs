//! A tmpfs with huge pages that holds the rings of all agents of root on the node.
//!
//! The first agent mounts it, and nobody unmounts it. Empty it costs nothing, and an unmount would have to be sure that
//! no agent is about to start there. The next agent must find a ring, however the former agent and its programs ended.
//! So the tmpfs is mounted only in the mount namespace of process 1. Any other namespace, such as that of a container
//! or a job, may end with its processes. An agent in another namespace could not tell existing rings from lost ones.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, mount};

use crate::directory;
use crate::limits::WINDOW_TMPFS_PERCENT;

/// Mount point.
pub const OWN_TMPFS: &str = "/run/forebay-windows";

/// Kernel setting of huge pages in shared memory.
const HUGE: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// `st_ino` of the kernel's initial process namespace, equal on all machines.
const FIRST_PROCESSES: u64 = 0xEFFF_FFFC;
/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;
/// Environment variable of tests, whose own namespaces then count as those of the machine. Release builds ignore it.
const TEST: &str = "FOREBAY_TEST_MACHINE";

/// Reason why rings cannot lie on this tmpfs.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// This process may see other mounts than the next agent.
    #[error("this mount namespace is not that of the machine's process 1, and may end before rings do")]
    Namespace,
    /// The kernel has no huge pages for shared memory, so the tmpfs would have no advantage.
    #[error("the kernel has no huge pages for shared memory")]
    NoHugePages,
    /// Huge pages are switched off, so the tmpfs would have no advantage.
    #[error("the kernel is told to make no huge pages for shared memory ({HUGE}: deny)")]
    Denied,
    /// The mount point is in use.
    #[error("{OWN_TMPFS} is neither an empty directory nor a tmpfs of root's in which others replace nothing")]
    Occupied,
    /// The mount failed.
    #[error("cannot mount {OWN_TMPFS}")]
    Mount(#[source] io::Error),
}

/// Whether the tmpfs is mounted. Changes nothing. Errors: why it cannot be used.
pub fn look() -> Result<bool, Unfit> {
    if !sees_mounts_of_the_machine() {
        return Err(Unfit::Namespace);
    }
    match fs::read_to_string(HUGE) {
        Ok(setting) if setting.contains("[deny]") => Err(Unfit::Denied),
        Ok(_) => is_mounted(Path::new(OWN_TMPFS)),
        Err(_) => Err(Unfit::NoHugePages),
    }
}

/// Mounts the tmpfs in this process's namespace, unless it is mounted. The caller must be root of the machine.
pub fn provide() -> Result<&'static Path, Unfit> {
    look()?;
    provide_at(Path::new(OWN_TMPFS))?;
    Ok(Path::new(OWN_TMPFS))
}

/// Whether this process sees the mounts of the machine's process 1. False if that cannot be determined.
pub fn sees_mounts_of_the_machine() -> bool {
    if cfg!(debug_assertions) && std::env::var_os(TEST).is_some() {
        return true;
    }
    // Process 1 of a container is not that of the machine.
    let is_first = fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST_PROCESSES);
    let ours = roots("self");
    is_first && !ours.is_empty() && ours == roots("1")
}

/// Returns the ids of the mounts at a process's root. Ids are unique on the machine, and each mount is in one
/// namespace. A process in a chroot sees no such mount, or another.
fn roots(process: &str) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let words = table.lines().map(|line| line.split(' '));
    words
        .filter(|words| words.clone().nth(4) == Some("/"))
        .filter_map(|mut words| words.next().map(str::to_owned))
        .collect()
}

fn is_mounted(point: &Path) -> Result<bool, Unfit> {
    let found = match fs::symlink_metadata(point) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found.map_err(Unfit::Mount)?,
    };
    let around = point.parent().unwrap_or(point);
    // Records of rings use this path.
    let is_its_path = fs::canonicalize(around).map_err(Unfit::Mount)? == around;
    let around = fs::metadata(around).map_err(Unfit::Mount)?;
    if !is_its_path || !found.is_dir() || found.uid() != 0 || directory::is_open_to_others(&found) {
        return Err(Unfit::Occupied);
    }
    if found.dev() != around.dev() {
        let kind = statfs(point).map_err(|error| Unfit::Mount(error.into()))?.f_type;
        return if kind == TMPFS { Ok(true) } else { Err(Unfit::Occupied) };
    }
    // A mount would hide the directory's content.
    let mut entries = fs::read_dir(point).map_err(Unfit::Mount)?;
    if entries.next().is_none() { Ok(false) } else { Err(Unfit::Occupied) }
}

fn provide_at(point: &Path) -> Result<(), Unfit> {
    // Two agents may start at once, and the second must not mount over the first. Only root may hold the lock.
    let mut lock = File::options();
    let lock = lock.write(true).create(true).truncate(false).mode(0o600).open(point.with_extension("lock"));
    let lock = lock.map_err(Unfit::Mount)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| Unfit::Mount(error.into()))?;
    match DirBuilder::new().mode(0o711).create(point) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Unfit::Mount(error)),
        _ => {}
    }
    if is_mounted(point)? {
        return Ok(());
    }
    // Not `huge=always`, which would use a huge page even for each small file beside a ring, and for the smallest ring.
    let options = format!("huge=within_size,size={WINDOW_TMPFS_PERCENT}%,mode=0711,uid=0,gid=0");
    let options = std::ffi::CString::new(options).map_err(|error| Unfit::Mount(error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("forebay", point, "tmpfs", flags, Some(options.as_c_str())).map_err(|error| Unfit::Mount(error.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use testkit::{TempTree, in_private_namespace};
    use window::{Mapping, WindowMedium};

    use super::*;

    /// Returns the options of each mount at a path.
    fn mounted(point: &Path) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = |line: &&str| line.split(' ').nth(4) == point.to_str();
        table.lines().filter(at).map(str::to_owned).collect()
    }

    /// Creates a mount point on a file system of its own, as `/run` is.
    fn run(tree: &TempTree) -> PathBuf {
        tree.mount_tmpfs("run", 1 << 20).canonicalize().unwrap().join("forebay-windows")
    }

    #[test]
    fn of_many_that_start_at_once_one_mounts_and_all_find_what_it_mounted() {
        in_private_namespace(|| {
            for _ in 0..20 {
                let tree = TempTree::new();
                let point = run(&tree);
                assert!(!is_mounted(&point).unwrap());
                std::thread::scope(|scope| {
                    for number in 0..8 {
                        let point = &point;
                        scope.spawn(move || {
                            provide_at(point).unwrap();
                            fs::create_dir(point.join(format!("session-{number}"))).unwrap();
                        });
                    }
                });
                assert!(is_mounted(&point).unwrap());
                let mounts = mounted(&point);
                assert_eq!(mounts.len(), 1, "{mounts:?}");
                for option in ["nosuid", "nodev", "noexec", "huge=within_size", "mode=711"] {
                    assert!(mounts[0].contains(option), "{option}: {mounts:?}");
                }
                assert_eq!(fs::read_dir(&point).unwrap().count(), 8);
                rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
            }
        });
    }

    #[test]
    fn a_place_that_holds_something_or_is_not_roots_alone_is_left_alone() {
        in_private_namespace(|| {
            let tree = TempTree::new();
            let point = run(&tree);
            let refused = |what: &str| {
                let refused = [is_mounted(&point).map(drop), provide_at(&point)];
                assert!(refused.iter().all(|refused| matches!(refused, Err(Unfit::Occupied))), "{what}: {refused:?}");
                assert!(mounted(&point).is_empty());
            };
            let parent = point.parent().unwrap();
            std::os::unix::fs::symlink(parent, parent.with_extension("link")).unwrap();
            fs::create_dir(&point).unwrap();
            let through_a_link = parent.with_extension("link").join("forebay-windows");
            assert!(matches!(is_mounted(&through_a_link), Err(Unfit::Occupied)));
            fs::remove_dir(&point).unwrap();
            std::os::unix::fs::symlink("elsewhere", &point).unwrap();
            refused("a link");
            fs::remove_file(&point).unwrap();
            fs::create_dir_all(point.join("forebay-rings")).unwrap();
            refused("rings");
            fs::remove_dir(point.join("forebay-rings")).unwrap();
            fs::set_permissions(&point, PermissionsExt::from_mode(0o777)).unwrap();
            refused("everybody's");
            fs::set_permissions(&point, PermissionsExt::from_mode(0o755)).unwrap();
            provide_at(&point).unwrap();
            assert!(is_mounted(&point).unwrap());
        });
    }

    #[test]
    fn a_ring_there_takes_no_more_memory_than_it_has_bytes() {
        in_private_namespace(|| {
            let tree = TempTree::new();
            let point = run(&tree);
            provide_at(&point).unwrap();
            for bytes in [64 << 10, 2 << 20] {
                let ring = point.join(bytes.to_string());
                Mapping::create(&ring, bytes, WindowMedium::Volatile).unwrap();
                assert_eq!(fs::metadata(&ring).unwrap().blocks() * 512, bytes as u64);
            }
        });
    }

    #[test]
    fn a_namespace_that_may_end_before_its_rings_is_not_taken_for_that_of_the_machine() {
        in_private_namespace(|| {
            assert!(!sees_mounts_of_the_machine());
            assert!(matches!(provide(), Err(Unfit::Namespace)));
        });
    }
}
