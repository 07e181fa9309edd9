//! Processes that use a mount: by open files, working directory, root or mappings.
//!
//! Only `/proc` is read, and of a process in uninterruptible sleep only its descriptors: its mappings may be
//! locked until it wakes.

use std::fmt;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use types::Shown;

use crate::limits::LISTED_MAX;
use crate::mounts::{self, Mount};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: i32,
    /// Name of the process, at most 15 bytes.
    pub name: String,
    /// The first few uses: `cwd`, `fd 3`, `mapping` and the paths.
    pub uses: Vec<(String, PathBuf)>,
}

const USES_MAX: usize = 3;

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.name.as_str().shown())?;
        for (how, path) in &self.uses {
            write!(f, "  {how} {}", path.shown())?;
        }
        Ok(())
    }
}

/// Returns the processes, other than this one, that use our mount with the device number `device`, in any namespace.
/// Processes that may not be inspected are left out.
pub fn of(device: &str) -> Vec<Holder> {
    let own = std::process::id() as i32;
    processes().into_iter().filter(|pid| *pid != own).filter_map(|pid| look(pid, device)).collect()
}

/// Returns the processes, other than this one, whose working directory is the path `dir` or below it. They stay below
/// a mount over it.
pub fn inside(dir: &Path) -> Vec<Holder> {
    let own = std::process::id() as i32;
    let here = |pid: i32| {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok().filter(|cwd| cwd.starts_with(dir))?;
        // In another mount namespace the same path is another directory, which is not mounted over.
        let same = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok() == fs::read_link("/proc/self/ns/mnt").ok();
        let (name, _) = stat(pid).filter(|_| same)?;
        Some(Holder { pid, name, uses: vec![("cwd".to_string(), cwd)] })
    };
    processes().into_iter().filter(|pid| *pid != own).filter_map(here).collect()
}

/// Lists the first [`LISTED_MAX`] of them, a line each, and how many more there are.
pub fn listed(holders: &[Holder]) -> String {
    let mut lines: Vec<String> = holders.iter().take(LISTED_MAX).map(|holder| format!("  {holder}")).collect();
    if holders.len() > LISTED_MAX {
        lines.push(format!("  and {} more", holders.len() - LISTED_MAX));
    }
    lines.join("\n")
}

pub fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Returns name and state letter of a process.
fn stat(pid: i32) -> Option<(String, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_string();
    Some((name, after.trim_start().chars().next()?))
}

fn look(pid: i32, device: &str) -> Option<Holder> {
    let (name, state) = stat(pid)?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let seen = mounts::seen_by(pid).ok()?;
    let mount = seen.iter().find(|mount| mount.is_ours() && mount.device == device)?;
    let mut uses = Vec::new();
    for link in ["cwd", "root"] {
        let at = format!("/proc/{pid}/{link}");
        if mount_of(&at) == Some(mount.id) {
            uses.push((link.to_string(), fs::read_link(&at).unwrap_or_default()));
        }
    }
    uses.extend(descriptors(pid, mount));
    if state != 'D' {
        uses.extend(mappings(pid, mount));
    }
    uses.truncate(USES_MAX);
    (!uses.is_empty()).then_some(Holder { pid, name, uses })
}

/// Returns the mount to which a link of `/proc` leads. The target is not touched. Its path does not matter, and may
/// be invisible from here (in another namespace, or inside `chroot`).
pub fn mount_of(link: &str) -> Option<u64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = rustix::fs::open(link, flags, Mode::empty()).ok()?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", place.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

/// Lists open files. `fdinfo` names the mount, so that no file of the mount is touched.
fn descriptors(pid: i32, mount: &Mount) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return Vec::new() };
    let wanted = format!("mnt_id:\t{}", mount.id);
    let held = |fd: &String| {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        info.lines().any(|line| line == wanted)
    };
    let fds = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).filter(held);
    let path = |fd: &String| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    fds.map(|fd| (format!("fd {fd}"), path(&fd))).collect()
}

/// Lists mapped files: by device, and by path because a file mapped past the agent shows its replica's device.
fn mappings(pid: i32, mount: &Mount) -> Vec<(String, PathBuf)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let device = mount.device.split_once(':').and_then(|(major, minor)| {
        Some(format!("{:02x}:{:02x}", major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    let mut found = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (dev, path) = (fields.nth(3), fields.nth(1).map(PathBuf::from).unwrap_or_default());
        let ours = dev == device.as_deref() || path.starts_with(&mount.point);
        if ours && !found.iter().any(|(_, known)| *known == path) {
            found.push(("mapping".to_string(), path));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_name_and_runs() {
        let (name, state) = stat(std::process::id() as i32).unwrap();
        assert!(!name.is_empty());
        assert!("RSD".contains(state));
    }

    #[test]
    fn the_mount_of_a_place_is_that_of_the_mount_table() {
        let here = fs::canonicalize("/proc/self/cwd").unwrap();
        let table = mounts::seen_by(std::process::id() as i32).unwrap();
        assert_eq!(mount_of("/proc/self/cwd"), mounts::covering(&table, &here).map(|mount| mount.id));
        assert_eq!(mount_of("/proc/self/nothing"), None);
    }

    /// A process in `chroot` has a mount table of paths that begin there, and links to paths that begin where we do.
    #[test]
    fn the_mount_of_a_place_is_known_where_two_paths_lead_to_it() {
        testkit::in_private_namespace(|| {
            let tree = testkit::TempTree::new();
            let jail = tree.dir("jail");
            let mounted = tree.mount_tmpfs("jail/mounted", 1 << 20);
            let command = "cp --parents --dereference $(ldd /bin/sh /bin/sleep | grep -o '/[^ ]*[^ :]' | sort -u) . \
                && exec chroot . /bin/sh -c 'cd mounted && exec sleep 60'";
            let mut inside = std::process::Command::new("sh").args(["-c", command]).current_dir(&jail).spawn().unwrap();
            let pid = inside.id() as i32;
            let cwd = format!("/proc/{pid}/cwd");
            testkit::wait_until("it is there", std::time::Duration::from_secs(10), || {
                fs::read_link(&cwd).is_ok_and(|path| path == mounted)
            });
            let table = mounts::seen_by(pid).unwrap();
            let wanted = table.iter().find(|mount| mount.point == Path::new("/mounted")).map(|mount| mount.id);
            let found = mount_of(&cwd);
            inside.kill().unwrap();
            inside.wait().unwrap();
            assert_eq!((found, found.is_some()), (wanted, true));
            assert_ne!(mounts::covering(&table, &mounted).map(|mount| mount.id), wanted, "the test is worth nothing");
        });
    }

    #[test]
    fn a_place_that_is_no_mount_of_ours_has_no_holders() {
        assert_eq!(of("0:0"), Vec::new());
    }
}
