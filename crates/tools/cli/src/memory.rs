//! How much memory this process may take.

use std::fs;
use std::path::Path;

/// Bytes of the machine's memory, or of what the control groups of this process leave of it. `None`: that cannot be told.
pub fn limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_machine().into_iter().chain(of_groups(&groups, Path::new("/sys/fs/cgroup"))).min()
}

fn of_machine() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

/// The least limit of the groups that `/proc/self/cgroup` names, and of those around them: both hierarchies, where distributions
/// mount them. In a container the path may be the machine's: what is not there is passed over, up to the container's own.
fn of_groups(groups: &str, mounted: &Path) -> Option<u64> {
    let of = |line: &str| {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, Path::new(words.next()?));
        let (mounted, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => (mounted.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let limit_of = |group: &Path| {
            let group = mounted.join(group.strip_prefix("/").unwrap_or(group));
            // `max` is none.
            fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok()
        };
        path.ancestors().filter_map(limit_of).min()
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
        let of = |groups: &str| of_groups(groups, tree.path());
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
    }

    #[test]
    fn what_this_process_may_take_is_no_more_than_there_is() {
        let bytes = limit().unwrap();
        assert!(bytes > 0 && bytes <= of_machine().unwrap(), "{bytes}");
    }
}
