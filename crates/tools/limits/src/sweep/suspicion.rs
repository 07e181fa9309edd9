//! Results that exceed the hardware, and the cache that explains them.

use super::{Options, Run};
use crate::bounds::LIMIT_SLACK;
use crate::counters::{Behind, Medium};
use crate::units::{format_rate, format_share};
use crate::workload::{Kind, Sync, is_here};

/// Share of the data below which the traffic of a device or the network does not explain a phase.
const MOVED_MIN: f64 = 0.9;
/// Share of the data in memory from which the page cache determines the rate.
const RESIDENT_MAX: f64 = 0.1;

/// Returns the reason why a run does not count; `None` if it does.
pub fn of(run: &Run, options: &Options, behind: &Behind) -> Option<String> {
    if !run.kind.is_data() || run.amount == 0 {
        return None;
    }
    let above = options.limit(run.kind, run.groups).filter(|(limit, _)| run.rate > limit * (1.0 + LIMIT_SLACK));
    let Some((limit, source)) = above else { return bypassed(run, options, behind) };
    let cache = bypassed(run, options, behind).unwrap_or_else(|| guess(run, options, behind));
    let (rate, limit) = (format_rate(run.rate), format_rate(limit));
    Some(format!("{rate} is above the limit of {limit} ({source}): {cache}"))
}

/// Returns whether other machines took part, whose devices and interfaces are not observed.
fn is_elsewhere(options: &Options) -> bool {
    options.hosts.iter().any(|host| !is_here(host))
}

/// Returns the cache that the counters prove, if any.
fn bypassed(run: &Run, options: &Options, behind: &Behind) -> Option<String> {
    if let Some(resident) = run.resident.filter(|share| run.kind == Kind::Read && *share > RESIDENT_MAX) {
        // A memory file system has nothing below it: the page cache is its medium.
        if behind.medium() != Medium::Memory {
            return Some(format!(
                "this machine's page cache held {} of the data that was read",
                format_share(resident)
            ));
        }
    }
    let (read, written) = run.device_bytes.filter(|_| !is_elsewhere(options))?;
    let moved = if run.kind == Kind::Read { read } else { written } as f64 / run.amount as f64;
    if moved >= MOVED_MIN {
        return None;
    }
    let device = behind.device.as_deref().unwrap_or("the device");
    let share = format_share(moved);
    Some(match run.kind {
        Kind::Read => format!("only {share} of the bytes read came from {device}: the page cache gave the rest"),
        _ if options.pattern.sync == Sync::Never => {
            format!(
                "only {share} of the bytes written reached {device}: the write cache of the page cache took the rest"
            )
        }
        _ => format!(
            "only {share} of the bytes written reached {device}, in spite of fsync: a layer below compresses, deduplicates or cheats"
        ),
    })
}

/// Returns a likely explanation if the counters prove nothing.
fn guess(run: &Run, options: &Options, behind: &Behind) -> String {
    if is_elsewhere(options) {
        return "a cache of the hosts or of the servers answered, or the limit is wrong".to_string();
    }
    let (received, sent) = run.network_bytes;
    let crossed = if run.kind == Kind::Read { received } else { sent } as f64 / run.amount as f64;
    match behind.medium() {
        Medium::Memory => "the target is this machine's memory".to_string(),
        Medium::Network | Medium::Fuse | Medium::Unknown if crossed < MOVED_MIN => {
            format!("only {} of the bytes crossed the network: a cache of this machine answered", format_share(crossed))
        }
        Medium::Network | Medium::Fuse | Medium::Unknown => {
            "the bytes crossed the network: a cache of the servers answered, or the limit is wrong".to_string()
        }
        Medium::Device => "the device moved them all: its own cache answered, or the limit is wrong".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::sweep::Known;
    use crate::workload::Pattern;

    fn options(sync: Sync) -> Options {
        let known = Known {
            write_bytes_per_s: Some(100e6),
            read_bytes_per_s: Some(100e6),
            client_bytes_per_s: None,
            source: "--limit".to_string(),
        };
        let one = Options::one("/t");
        Options { pattern: Pattern { sync, ..one.pattern }, known, ..one }
    }

    fn run(kind: Kind, rate: f64, device: Option<(u64, u64)>, resident: Option<f64>, network: (u64, u64)) -> Run {
        Run {
            groups: 1,
            processes: 1,
            repetition: 0,
            kind,
            amount: 1000,
            operations: 1,
            seconds: 1.0,
            rate,
            group_rates: vec![rate],
            process_rates: (rate, rate),
            latency_ns: (0, 0, 0),
            cpu_share: 0.0,
            resident,
            device_bytes: device,
            processors: Vec::new(),
            network_bytes: network,
            clients: Vec::new(),
            io_nodes: Vec::new(),
            exhausted: false,
            odd: 0,
            rejected: None,
        }
    }

    fn behind(file_system: &str, device: Option<&str>) -> Behind {
        Behind { file_system: file_system.to_string(), mount: PathBuf::from("/"), device: device.map(str::to_string) }
    }

    #[test]
    fn the_cache_that_cheats_is_named() {
        let disk = behind("ext4", Some("sda"));
        let cases = [
            (run(Kind::Read, 300e6, Some((10, 0)), None, (0, 0)), Sync::Close, &disk, "the page cache gave the rest"),
            (run(Kind::Read, 300e6, Some((1000, 0)), Some(0.8), (0, 0)), Sync::Close, &disk, "page cache held 80.0 %"),
            (run(Kind::Write, 300e6, Some((0, 10)), None, (0, 0)), Sync::Never, &disk, "write cache of the page cache"),
            (run(Kind::Write, 300e6, Some((0, 10)), None, (0, 0)), Sync::Close, &disk, "in spite of fsync"),
            (run(Kind::Write, 300e6, Some((0, 1000)), None, (0, 0)), Sync::Close, &disk, "its own cache"),
            (run(Kind::Read, 300e6, None, None, (5, 0)), Sync::Close, &behind("nfs4", None), "a cache of this machine"),
            (
                run(Kind::Read, 300e6, None, None, (1000, 0)),
                Sync::Close,
                &behind("nfs4", None),
                "a cache of the servers",
            ),
            (run(Kind::Write, 300e6, None, None, (0, 0)), Sync::Close, &behind("tmpfs", None), "this machine's memory"),
        ];
        for (run, sync, behind, part) in cases {
            let why = of(&run, &options(sync), behind).unwrap();
            assert!(why.contains(part) && why.contains("above the limit of 100.0 MB/s (--limit)"), "{why}");
        }
    }

    /// A hundred I/O nodes do not make one client's link faster.
    #[test]
    fn a_few_clients_cannot_get_more_than_their_own_links() {
        let disk = behind("nfs4", None);
        let known = Known { client_bytes_per_s: Some(30e6), source: "plan.toml".into(), ..options(Sync::Close).known };
        let on = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| host.to_string()).collect();
            Options { known: known.clone(), hosts, ..options(Sync::Close) }
        };
        let read = |groups: u64| Run { groups, ..run(Kind::Read, 50e6, None, None, (5, 0)) };
        let why = of(&read(4), &on(&[]), &disk).unwrap();
        assert!(
            why.contains(
                "above the limit of 30.000 MB/s (one client's link, plan.toml): only 0.5 % of the bytes crossed"
            ),
            "{why}"
        );
        assert!(of(&read(1), &on(&["netns:a", "netns:b"]), &disk).is_some());
        assert_eq!(of(&read(2), &on(&["netns:a", "netns:b"]), &disk), None);
        assert!(of(&read(2), &on(&["netns:a", "netns:a"]), &disk).is_some(), "two groups on one host share its link");
        let fast = Run { rate: 90e6, ..read(2) };
        assert!(of(&fast, &on(&["netns:a", "netns:b"]), &disk).unwrap().contains("60.000 MB/s (2 clients' links"));
        assert_eq!(of(&fast, &on(&["netns:a", "netns:b"]), &disk).map(|why| why.contains("cache")), Some(true));
    }

    #[test]
    fn what_other_machines_moved_is_not_looked_for_in_this_ones_counters() {
        let disk = behind("ext4", Some("sda"));
        let wanted = |host: &str| Options { hosts: vec![host.to_string()], ..options(Sync::Close) };
        let write = |rate| run(Kind::Write, rate, Some((0, 10)), None, (0, 0));
        assert_eq!(of(&write(50e6), &wanted("far"), &disk), None);
        assert!(of(&write(300e6), &wanted("far"), &disk).unwrap().contains("a cache of the hosts"));
        assert!(of(&write(50e6), &wanted("netns:near"), &disk).is_some());
    }

    #[test]
    fn a_cache_is_noticed_below_the_limit_too_but_an_honest_run_counts() {
        let disk = behind("ext4", Some("sda"));
        let options = options(Sync::Close);
        assert!(of(&run(Kind::Read, 50e6, Some((10, 0)), None, (0, 0)), &options, &disk).is_some());
        assert_eq!(of(&run(Kind::Read, 99e6, Some((1000, 0)), Some(0.0), (0, 0)), &options, &disk), None);
        assert_eq!(of(&run(Kind::Read, 99e6, None, Some(1.0), (0, 0)), &options, &behind("tmpfs", None)), None);
        assert_eq!(of(&run(Kind::Stat, 9e9, None, None, (0, 0)), &options, &disk), None);
    }
}
