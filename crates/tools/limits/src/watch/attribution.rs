//! Detection of full resources, and the use of the processors.

use serde::{Deserialize, Serialize};

use super::Watch;
use crate::counters::{Counters, Cpu, interface_speeds, is_whole_disk};
use crate::units::{format_rate, format_share};

const FULL: f64 = 0.85;
/// Share of I/O waits below which they are not mentioned.
const WAITING: f64 = 0.1;

/// Shares of all processors' time; the sum is 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    pub user: f64,
    pub system: f64,
    /// Share idle while waiting for a device.
    pub io_wait: f64,
    pub idle: f64,
    /// Share taken by the hypervisor.
    pub stolen: f64,
}

impl Shares {
    /// Returns the shares of a growth of the counters; all zero without a growth.
    pub fn of(cpu: &Cpu) -> Shares {
        let total = cpu.total().max(1) as f64;
        let share = |ticks: u64| ticks as f64 / total;
        Shares {
            user: share(cpu.user),
            system: share(cpu.system),
            io_wait: share(cpu.io_wait),
            idle: share(cpu.idle),
            stolen: share(cpu.stolen),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Name: `processors`, or that of a device or interface.
    pub name: String,
    /// Utilisation, 0 to 1; none if the capacity is unknown.
    pub share: Option<f64>,
    /// Bytes per second into this machine: read, received.
    pub in_bytes_per_s: f64,
    /// Bytes per second out of this machine: written, sent.
    pub out_bytes_per_s: f64,
}

/// Returns every active resource, the highest utilisation first.
pub fn busy(total: &Counters) -> Vec<Busy> {
    let seconds = total.seconds().max(1e-9);
    let cpu = Shares::of(&total.cpu);
    let share = Some(cpu.user + cpu.system + cpu.stolen);
    let mut found = vec![Busy { name: "processors".to_string(), share, in_bytes_per_s: 0.0, out_bytes_per_s: 0.0 }];
    for (name, disk) in total.disks.iter().filter(|(name, disk)| disk.requests > 0 && is_whole_disk(name)) {
        found.push(Busy {
            name: name.clone(),
            share: Some((disk.busy_ms as f64 / 1e3 / seconds).min(1.0)),
            in_bytes_per_s: disk.read_bytes as f64 / seconds,
            out_bytes_per_s: disk.written_bytes as f64 / seconds,
        });
    }
    let speeds = interface_speeds();
    for (name, interface) in total.interfaces.iter().filter(|(_, i)| i.received_bytes + i.sent_bytes > 0) {
        let (received, sent) = (interface.received_bytes as f64 / seconds, interface.sent_bytes as f64 / seconds);
        let speed = speeds.iter().find(|(known, _)| known == name).map(|(_, speed)| *speed);
        let share = speed.map(|speed| received.max(sent) / speed);
        found.push(Busy { name: name.clone(), share, in_bytes_per_s: received, out_bytes_per_s: sent });
    }
    found.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
    found
}

pub fn findings(watch: &Watch) -> Vec<String> {
    let mut found = Vec::new();
    let used = watch.program_cpu_s / watch.seconds.max(1e-9);
    let processors = watch.processors;
    found.push(format!("the program used {used:.2} of {processors} processors on average"));
    let full: Vec<String> = (watch.busy.iter())
        .filter_map(|busy| busy.share.filter(|share| *share >= FULL).map(|share| (busy, share)))
        .map(|(busy, share)| {
            let (read, written) = (format_rate(busy.in_bytes_per_s), format_rate(busy.out_bytes_per_s));
            let traffic = if busy.in_bytes_per_s + busy.out_bytes_per_s > 0.0 {
                format!(" (in {read}, out {written})")
            } else {
                String::new()
            };
            format!("{} {} full{traffic}", busy.name, format_share(share))
        })
        .collect();
    if full.is_empty() {
        let wait = watch.shares.io_wait;
        found.push(if wait >= WAITING {
            format!(
                "no resource was full, but processors waited for devices {} of the time: latency binds, not bandwidth",
                format_share(wait)
            )
        } else if used >= 0.9 {
            "no resource was full, but the program keeps a processor busy: it computes, or more processes would help"
                .to_string()
        } else {
            "no resource of this machine was full: the program waits for others (servers, locks, its own pauses)"
                .to_string()
        });
    } else {
        found.push(format!("what binds: {}", full.join(", ")));
    }
    let hidden = watch.profile.hidden;
    if hidden > 0 {
        found.push(format!(
            "{hidden} times a thread waited and the kernel did not tell for what (/proc/PID/syscall: permission denied): \
             run watch as the program's user with ptrace allowed, or as root"
        ));
    }
    if watch.shares.stolen > 0.05 {
        found
            .push(format!("the hypervisor took {} of the processors: figures vary", format_share(watch.shares.stolen)));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::counters::{Disk, Interface};

    fn seen(total: Counters, program_cpu_s: f64) -> Watch {
        let mut watch = Watch {
            command: Vec::new(),
            status: 0,
            seconds: total.seconds(),
            processors: 4,
            program_cpu_s,
            watcher_share: 0.0,
            shares: Shares::of(&total.cpu),
            busy: busy(&total),
            samples: Vec::new(),
            total,
            profile: Default::default(),
            tiers: Default::default(),
            findings: Vec::new(),
        };
        watch.findings = findings(&watch);
        watch
    }

    fn ten_seconds(cpu: Cpu, lo: u64) -> Counters {
        let interfaces = BTreeMap::from([("lo".to_string(), Interface { received_bytes: lo, sent_bytes: lo })]);
        Counters { at_ns: 10_000_000_000, cpu, interfaces, ..Counters::default() }
    }

    #[test]
    fn full_processors_bind_and_an_idle_machine_says_that_others_are_waited_for() {
        let busy = seen(ten_seconds(Cpu { user: 3500, system: 400, idle: 100, ..Cpu::default() }, 0), 39.0);
        assert!(busy.findings[1].contains("what binds: processors 97.5 % full"), "{:?}", busy.findings);
        let idle = seen(ten_seconds(Cpu { user: 10, idle: 3990, ..Cpu::default() }, 10), 0.1);
        assert!(idle.findings[1].contains("waits for others"), "{:?}", idle.findings);
        let waits = seen(ten_seconds(Cpu { user: 10, idle: 2990, io_wait: 1000, ..Cpu::default() }, 0), 0.1);
        assert!(waits.findings[1].contains("latency binds"), "{:?}", waits.findings);
    }

    #[test]
    fn what_the_kernel_hides_is_told_with_what_to_do() {
        let mut watch = seen(ten_seconds(Cpu::default(), 0), 0.0);
        assert!(!watch.findings.iter().any(|words| words.contains("permission denied")));
        watch.profile.hidden = 3;
        let said = findings(&watch).join("\n");
        assert!(said.contains("3 times a thread waited") && said.contains("or as root"), "{said}");
    }

    #[test]
    fn an_interface_without_a_known_speed_is_shown_without_a_share() {
        let watch = seen(ten_seconds(Cpu::default(), 1_000_000), 0.0);
        let lo = watch.busy.iter().find(|busy| busy.name == "lo").unwrap();
        assert_eq!((lo.share, lo.in_bytes_per_s), (None, 100_000.0));
    }

    #[test]
    fn partitions_are_not_counted_beside_their_disk() {
        assert!(!is_whole_disk("no-such-disk"));
        let disks = BTreeMap::from([("no-such-disk1".to_string(), Disk { requests: 9, ..Disk::default() })]);
        let total = Counters { at_ns: 1, disks, ..Counters::default() };
        assert_eq!(busy(&total).len(), 1);
    }
}
