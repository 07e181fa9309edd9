//! The kernel's counters of processors, devices and interfaces, and the ones that a directory depends on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use crate::bounds::FREE_SHARE;
use crate::clock::now_ns;
use crate::failure::Failure;

/// Lets structures of counters be subtracted and added field by field.
macro_rules! counted {
    ($($of:ident { $($field:ident),* })*) => {
        $(impl $of {
            fn since(&self, before: &$of) -> $of {
                $of { $($field: self.$field.saturating_sub(before.$field)),* }
            }

            fn add(&mut self, later: &$of) {
                $(self.$field += later.$field;)*
            }
        })*
    };
}

counted! {
    Cpu { user, system, idle, io_wait, stolen }
    Disk { read_bytes, written_bytes, requests, busy_ms }
    Interface { received_bytes, sent_bytes }
}

/// Bytes of a sector in the kernel's counters, whatever the device's sector size.
const SECTOR: u64 = 512;

/// Processor time of the complete machine, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Time in programs.
    pub user: u64,
    /// Time in the kernel, including interrupts.
    pub system: u64,
    /// Idle time without I/O waits.
    pub idle: u64,
    /// Idle time while waiting for I/O.
    pub io_wait: u64,
    /// Time taken by the hypervisor.
    pub stolen: u64,
}

impl Cpu {
    pub fn total(&self) -> u64 {
        self.user + self.system + self.idle + self.io_wait + self.stolen
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Number of requests completed, reads and writes.
    pub requests: u64,
    /// Milliseconds in which a request was in progress.
    pub busy_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// All counters at one instant, or their growth between two instants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Monotonic clock in nanoseconds; for a growth, its length.
    pub at_ns: u64,
    /// Number of processors; 0 if unknown.
    #[serde(default)]
    pub processors: u64,
    pub cpu: Cpu,
    /// Block devices by name, partitions included.
    pub disks: BTreeMap<String, Disk>,
    pub interfaces: BTreeMap<String, Interface>,
}

impl Counters {
    /// Reads all counters. Those that this system does not have stay empty.
    pub fn now() -> Counters {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Counters {
            at_ns: now_ns(),
            processors: processors(&stat),
            cpu: cpu(&stat),
            disks: disks(&fs::read_to_string("/proc/diskstats").unwrap_or_default()),
            interfaces: interfaces(&fs::read_to_string("/proc/net/dev").unwrap_or_default()),
        }
    }

    /// Reads the interface counters of the network namespace of this thread. Errors: those of reading `/proc`.
    pub fn of_this_thread() -> std::io::Result<Counters> {
        let text = fs::read_to_string("/proc/thread-self/net/dev")?;
        Ok(Counters { at_ns: now_ns(), interfaces: interfaces(&text), ..Counters::default() })
    }

    /// Returns the growth since `before`. Devices that appeared meanwhile count from zero.
    pub fn since(&self, before: &Counters) -> Counters {
        let disks = self
            .disks
            .iter()
            .map(|(name, now)| (name.clone(), before.disks.get(name).map_or(*now, |before| now.since(before))));
        let interfaces = self
            .interfaces
            .iter()
            .map(|(name, now)| (name.clone(), before.interfaces.get(name).map_or(*now, |before| now.since(before))));
        Counters {
            at_ns: self.at_ns.saturating_sub(before.at_ns),
            processors: self.processors,
            cpu: self.cpu.since(&before.cpu),
            disks: disks.collect(),
            interfaces: interfaces.collect(),
        }
    }

    /// Adds a later growth to this one.
    pub fn add(&mut self, later: &Counters) {
        self.at_ns += later.at_ns;
        self.processors = later.processors;
        self.cpu.add(&later.cpu);
        later.disks.iter().for_each(|(name, more)| self.disks.entry(name.clone()).or_default().add(more));
        later.interfaces.iter().for_each(|(name, more)| self.interfaces.entry(name.clone()).or_default().add(more));
    }

    /// Returns the length of a growth in seconds.
    pub fn seconds(&self) -> f64 {
        self.at_ns as f64 / 1e9
    }

    /// Returns the bytes received and sent over all interfaces except loopback.
    pub fn network_bytes(&self) -> (u64, u64) {
        let outside = self.interfaces.iter().filter(|(name, _)| *name != "lo");
        outside.fold((0, 0), |sum, (_, one)| (sum.0 + one.received_bytes, sum.1 + one.sent_bytes))
    }
}

/// Tables of the kernel, and the information that is missing without them.
const TABLES: [(&str, &str); 3] =
    [("stat", "the processors' time"), ("diskstats", "block devices' traffic"), ("net/dev", "interfaces' traffic")];

/// Returns a message for each unreadable table, with the reason and the remedy; empty if all can be read.
pub fn missing() -> Vec<String> {
    missing_in(Path::new("/proc"))
}

fn missing_in(proc: &Path) -> Vec<String> {
    let missing = TABLES.iter().filter_map(|(name, what)| {
        let path = proc.join(name);
        let error = fs::read(&path).err()?;
        let path = path.display();
        Some(format!("{path}: {error}: {what} cannot be told; run as root, or where /proc is mounted whole"))
    });
    missing.collect()
}

fn cpu(text: &str) -> Cpu {
    let line = text.lines().find(|line| line.starts_with("cpu ")).unwrap_or("");
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0)).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
    Cpu { user: at(0) + at(1), system: at(2) + at(5) + at(6), idle: at(3), io_wait: at(4), stolen: at(7) }
}

fn processors(text: &str) -> u64 {
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    text.lines().filter(is_one).count() as u64
}

fn disks(text: &str) -> BTreeMap<String, Disk> {
    let lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let name = words.get(2)?;
        let disk = Disk {
            read_bytes: at(5) * SECTOR,
            written_bytes: at(9) * SECTOR,
            requests: at(3) + at(7),
            busy_ms: at(12),
        };
        Some((name.to_string(), disk))
    });
    lines.collect()
}

fn interfaces(text: &str) -> BTreeMap<String, Interface> {
    let lines = text.lines().filter_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let interface = Interface { received_bytes: *numbers.first()?, sent_bytes: *numbers.get(8)? };
        Some((name.trim().to_string(), interface))
    });
    lines.collect()
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// Type of the file system: `ext4`, `nfs4`, `fuse.forebay`.
    pub file_system: String,
    pub mount: PathBuf,
    /// Name of the block device in the counters; none for networks, memory and FUSE.
    pub device: Option<String>,
}

/// Path by which the bytes of a file system leave this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    Device,
    /// The memory of this machine: there is nothing faster below.
    Memory,
    Network,
    /// A process of this machine, with unknown storage below.
    Fuse,
    Unknown,
}

impl Behind {
    pub fn of(directory: &Path) -> Behind {
        let path = directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut behind = Behind::in_mounts(&mounts, &path);
        behind.device = behind.device.and_then(|number| {
            let link = fs::read_link(format!("/sys/dev/block/{number}")).ok()?;
            Some(link.file_name()?.to_string_lossy().into_owned())
        });
        behind
    }

    fn in_mounts(mounts: &str, path: &Path) -> Behind {
        // The last match of the longest mount point wins, because later mounts cover earlier ones.
        let lines = mounts.lines().filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let words: Vec<&str> = left.split(' ').collect();
            let mount = PathBuf::from(words.get(4)?.replace("\\040", " "));
            let file_system = right.split(' ').next()?.to_string();
            let device = words.get(2).filter(|number| !number.starts_with("0:")).map(ToString::to_string);
            path.starts_with(&mount).then_some(Behind { file_system, mount, device })
        });
        lines.max_by_key(|behind| behind.mount.as_os_str().len()).unwrap_or_default()
    }

    /// Returns the path by which the bytes leave this machine.
    pub fn medium(&self) -> Medium {
        let name = self.file_system.as_str();
        if self.device.is_some() {
            Medium::Device
        } else if matches!(name, "tmpfs" | "ramfs" | "hugetlbfs") {
            Medium::Memory
        } else if name.starts_with("nfs")
            || matches!(name, "lustre" | "ceph" | "beegfs" | "cifs" | "smb3" | "9p" | "gpfs" | "pvfs2")
        {
            Medium::Network
        } else if name.starts_with("fuse") || name == "virtiofs" {
            Medium::Fuse
        } else {
            Medium::Unknown
        }
    }
}

/// Returns names and speeds in bytes per second of the interfaces that report a speed.
pub fn interface_speeds() -> Vec<(String, f64)> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let speeds = entries.filter_map(|entry| {
        // In Mbit/s; -1 if the link is down or virtual.
        let text = fs::read_to_string(entry.path().join("speed")).ok()?;
        let megabits: f64 = text.trim().parse().ok().filter(|speed| *speed > 0.0)?;
        Some((entry.file_name().to_string_lossy().into_owned(), megabits * 1e6 / 8.0))
    });
    speeds.collect()
}

/// Returns whether a block device is not a partition. A disk's traffic includes that of its partitions.
pub fn is_whole_disk(name: &str) -> bool {
    Path::new("/sys/block").join(name).exists()
}

/// Returns how many bytes a measurement may fill in a directory: a share of those that are free there.
pub fn free_bytes(directory: &Path) -> Result<u64, Failure> {
    let space = statvfs(directory).map_err(|error| Failure::input(format!("cannot ask for free space: {error}")))?;
    Ok((space.f_bavail.saturating_mul(space.f_frsize) as f64 * FREE_SHARE) as u64)
}

/// Returns the bytes of memory of this machine; 0 if unknown.
pub fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemTotal:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_understood() {
        let text = "cpu  10 1 20 30 40 5 6 7 0 0\ncpu0 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n";
        assert_eq!(processors(text), 2);
        let found = cpu(text);
        assert_eq!(found, Cpu { user: 11, system: 31, idle: 30, io_wait: 40, stolen: 7 });
        let text = " 254 0 vda 100 0 16 5 200 0 32 6 0 77 11 0 0\n 254 1 vda1 1 0 8 0 2 0 0 0 0 3 0\n";
        let found = disks(text);
        assert_eq!(found["vda"], Disk { read_bytes: 16 * 512, written_bytes: 32 * 512, requests: 300, busy_ms: 77 });
        let text = "Inter-| Receive | Transmit\n face |bytes\n  eth0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n";
        assert_eq!(interfaces(text)["eth0"], Interface { received_bytes: 100, sent_bytes: 200 });
    }

    #[test]
    fn a_counter_that_may_not_be_read_is_named_with_what_is_lost_and_what_to_do() {
        let proc = tempfile::tempdir().unwrap();
        for name in ["stat", "diskstats"] {
            fs::write(proc.path().join(name), "").unwrap();
        }
        let [said] = &missing_in(proc.path())[..] else { panic!("{:?}", missing_in(proc.path())) };
        assert!(said.contains("/net/dev: No such file") && said.contains("interfaces' traffic"), "{said}");
        assert!(said.contains("run as root"), "{said}");
    }

    #[test]
    fn counters_that_were_reset_never_make_negative_growth() {
        let disk = |bytes| BTreeMap::from([("a".to_string(), Disk { read_bytes: bytes, ..Disk::default() })]);
        let before = Counters { disks: disk(10), ..Counters::default() };
        let after = Counters { disks: disk(4), ..Counters::default() };
        assert_eq!(after.since(&before).disks["a"].read_bytes, 0);
    }

    #[test]
    fn the_mount_on_top_is_what_stands_behind_a_directory() {
        let mounts = "20 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      30 20 0:30 / /mnt/a\\040b rw - nfs4 host:/x rw\n\
                      31 30 0:31 / /mnt/a\\040b rw shared:1 - fuse.forebay forebay rw\n";
        let found = Behind::in_mounts(mounts, Path::new("/mnt/a b/c"));
        assert_eq!((found.file_system.as_str(), found.medium()), ("fuse.forebay", Medium::Fuse));
        let found = Behind::in_mounts(mounts, Path::new("/mnt/other"));
        assert_eq!((found.device.as_deref(), found.medium()), (Some("254:0"), Medium::Device));
    }
}
