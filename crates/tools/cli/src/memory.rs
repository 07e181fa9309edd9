//! Memory that this process may take.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes of the machine's memory, or the limit of this process's control groups if lower. `None`:
/// unknown.
pub fn limit() -> Option<u64> {
    of_machine("MemTotal:").into_iter().chain(of_groups(Group::limit)).min()
}

/// Returns how many of these bytes are unused now. Memory that the kernel would give back counts as unused.
pub fn available() -> Option<u64> {
    of_machine("MemAvailable:").into_iter().chain(of_groups(Group::available)).min()
}

/// Returns a line of `/proc/meminfo` in bytes.
pub fn of_machine(what: &str) -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = info.lines().find_map(|line| line.strip_prefix(what))?;
    kib.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

fn of_groups(what: fn(&Group) -> Option<u64>) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least(&groups, Path::new("/sys/fs/cgroup"), what)
}

/// Directory of a control group, and the names of its files.
struct Group {
    path: PathBuf,
    names: &'static [&'static str; 3],
}

/// Names for the limit, the usage, and the line of `memory.stat` with pages of files that are given back first.
const UNIFIED: [&str; 3] = ["memory.max", "memory.current", "inactive_file "];
const OLDER: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];

impl Group {
    fn number(&self, name: &str) -> Option<u64> {
        // `max` does not parse and means no limit.
        fs::read_to_string(self.path.join(name)).ok()?.trim().parse().ok()
    }

    fn limit(&self) -> Option<u64> {
        self.number(self.names[0])
    }

    fn available(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.number(self.names[1]).unwrap_or(0));
        let stat = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let given_back = stat.lines().find_map(|line| line.strip_prefix(self.names[2])?.parse::<u64>().ok());
        Some(limit.saturating_sub(used.saturating_sub(given_back.unwrap_or(0))))
    }
}

/// Returns the least value among the groups in `/proc/self/cgroup` and those around them, in both hierarchies, where
/// distributions mount them. In a container the path may be the machine's: missing directories are skipped, up to the
/// container's own.
fn least(groups: &str, mounted: &Path, what: fn(&Group) -> Option<u64>) -> Option<u64> {
    let of = |line: &str| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, Path::new(words.next()?));
        let (mounted, names) = match controllers {
            "" => (mounted.to_owned(), &UNIFIED),
            _ if controllers.split(',').any(|one| one == "memory") => (mounted.join("memory"), &OLDER),
            _ => return None,
        };
        let group = |group: &Path| Group { path: mounted.join(group.strip_prefix("/").unwrap_or(group)), names };
        path.ancestors().filter_map(|path| what(&group(path))).min()
    };
    groups.lines().filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_around_counts() {
        let tree = tempfile::tempdir().unwrap();
        let put = |path: &str, limit: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, limit).unwrap();
        };
        let of = |groups: &str| least(groups, tree.path(), Group::limit);
        assert_eq!(of("0::/\n"), None);
        put("memory.max", "max\n");
        put("job/memory.max", "4096\n");
        put("job/step/memory.max", "max\n");
        put("memory/job/memory.limit_in_bytes", "1024\n");
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of("0::/other\n"), None);
        assert_eq!(of("0::/job/step\n"), Some(4096));
        assert_eq!(of("0::/job/step/not-seen-here\n"), Some(4096));
        assert_eq!(of("3:cpu:/job\n4:cpuset,memory:/job/x\n0::/job\n"), Some(1024));
        assert_eq!(of("4:memory:/\n"), Some(9223372036854771712));
        assert_eq!(of("nonsense\n1:memory\n"), None);
        let available = |groups: &str| least(groups, tree.path(), Group::available);
        assert_eq!(available("0::/job/step\n"), Some(4096), "nobody says what is used");
        put("job/memory.current", "4000\n");
        assert_eq!(available("0::/job/step\n"), Some(96));
        put("job/memory.stat", "anon 7\ninactive_file 1000\nactive_file 5\n");
        assert_eq!(available("0::/job/step\n"), Some(1096));
        put("memory/job/memory.usage_in_bytes", "5000\n");
        put("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
        assert_eq!(available("4:memory:/job\n"), Some(0));
    }

    #[test]
    fn what_this_process_may_take_is_no_more_than_there_is() {
        let bytes = limit().unwrap();
        assert!(bytes > 0 && bytes <= of_machine("MemTotal:").unwrap(), "{bytes}");
        assert!(available().unwrap() <= bytes);
    }
}
