//! Network traffic during a phase, at the clients' hosts and the named I/O nodes. States how much flowed against the
//! data's direction, and how much was not data.

use std::thread;

use serde::{Deserialize, Serialize};

use super::statistics::median;
use super::{Run, Sweep};
use crate::bounds::{QUIET_TIME, SLOW_GROUP};
use crate::counters::Counters;
use crate::failure::Failure;
use crate::units::{format_rate, format_share};
use crate::workload::{Command, Fleet, Kind, Launcher, Reply, Task};

/// Ratio of traffic to data from which the data counts as having crossed the interfaces; below, it took another path.
const CROSSED: f64 = 0.5;
const NODES_TOLD: usize = 16;

/// Traffic of one host's interfaces, except loopback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Name of the host as given by the user.
    pub host: String,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl Traffic {
    /// Returns the bytes in the data's direction, and against it. `towards`: whether the data flows towards this host.
    fn flows(&self, towards: bool) -> (f64, f64) {
        let (received, sent) = (self.received_bytes as f64, self.sent_bytes as f64);
        if towards { (received, sent) } else { (sent, received) }
    }
}

/// One process on each I/O node, which only reads the counters on request.
pub struct Observers {
    fleet: Option<Fleet>,
    names: Vec<String>,
}

impl Observers {
    /// Starts the processes on the launcher's I/O nodes, if there are any. Errors: a node cannot be reached, because
    /// the user asked for it explicitly.
    pub fn start(launcher: &Launcher, names: &[String], task: &Task) -> Result<Observers, Failure> {
        let Some(launcher) = launcher.observing() else { return Ok(Observers { fleet: None, names: Vec::new() }) };
        let task = Task { processes: 0, ..task.clone() };
        let begin = (0..names.len() as u64).map(|group| {
            let task = task.clone();
            (format!("I/O node {group}"), Command::Lead { group, task })
        });
        let mut fleet = Fleet::start(&launcher, begin)?;
        let answer = fleet.gather(None);
        if let Some(lost) = fleet.lost().first() {
            return Err(Failure::unavailable(format!(
                "{lost}: --io-nodes takes hosts that can be reached as --hosts are"
            )));
        }
        match answer {
            Reply::Failed { what } => Err(Failure::unavailable(what)),
            _ => Ok(Observers { fleet: Some(fleet), names: names.to_vec() }),
        }
    }

    /// Returns the counters of all nodes, in the order of the names.
    pub fn look(&mut self) -> Vec<Option<Counters>> {
        self.fleet.as_mut().map_or_else(Vec::new, Fleet::look)
    }

    pub fn lost(&self) -> &[String] {
        self.fleet.as_ref().map_or(&[][..], Fleet::lost)
    }

    /// Measures the traffic while nothing of ours runs: the constant part of the service traffic.
    pub fn quiet(&mut self) -> Vec<Traffic> {
        if self.names.is_empty() {
            return Vec::new();
        }
        let before = self.look();
        thread::sleep(QUIET_TIME);
        let after = self.look();
        grown(&self.names, &before, &after)
    }

    pub fn since(&mut self, before: &[Option<Counters>]) -> Vec<Traffic> {
        let after = self.look();
        grown(&self.names, before, &after)
    }
}

/// Returns the growth of each host's counters, without lost hosts and duplicates.
pub fn grown(names: &[String], before: &[Option<Counters>], after: &[Option<Counters>]) -> Vec<Traffic> {
    let mut traffic: Vec<Traffic> = Vec::new();
    for ((host, before), after) in names.iter().zip(before).zip(after) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        if traffic.iter().all(|known| known.host != *host) {
            let (received_bytes, sent_bytes) = after.since(before).network_bytes();
            traffic.push(Traffic { host: host.clone(), received_bytes, sent_bytes });
        }
    }
    traffic
}

/// Returns sentences about the network in the runs of a phase's best cell; none if no data crossed the network.
pub fn words(sweep: &Sweep, kind: Kind, cell: (u64, u64)) -> Vec<String> {
    let of_cell = |run: &&Run| run.kind == kind && (run.groups, run.processes) == cell && run.rejected.is_none();
    let runs: Vec<&Run> = sweep.runs.iter().filter(of_cell).collect();
    if !kind.is_data() || runs.is_empty() {
        return Vec::new();
    }
    let mut words: Vec<String> = at_clients(kind, &runs).into_iter().collect();
    words.extend(at_nodes(kind, &runs));
    let quiet: u64 = sweep.quiet.iter().map(|node| node.received_bytes + node.sent_bytes).sum();
    if !sweep.quiet.is_empty() {
        let rate = format_rate(quiet as f64 / QUIET_TIME.as_secs_f64());
        words.push(format!("with nothing running {rate} reach and leave the I/O nodes: constant service traffic"));
    }
    words
}

fn at_clients(kind: Kind, runs: &[&Run]) -> Option<String> {
    let towards = kind == Kind::Read;
    let of = |run: &&Run| {
        let (received_bytes, sent_bytes) = run.network_bytes;
        // Without hosts, all clients are on this machine.
        let here = || vec![Traffic { host: String::new(), received_bytes, sent_bytes }];
        if run.clients.is_empty() { here() } else { run.clients.clone() }
    };
    let all = runs.iter().flat_map(of);
    let (along, against) =
        all.map(|one| one.flows(towards)).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let data: f64 = runs.iter().map(|run| run.amount as f64).sum();
    if data <= 0.0 || along < data * CROSSED {
        return None;
    }
    let (way, service) = (if towards { "reached" } else { "left" }, along / data - 1.0);
    let service = if service >= 0.0 {
        format!("{} of it service and headers", format_share(service / (1.0 + service)))
    } else {
        format!("{} of the data took another way", format_share(-service))
    };
    let back = format_share(against / along);
    Some(format!("{:.3} bytes {way} the clients for each of data, {service}; {back} as much flowed back", along / data))
}

/// Returns the traffic of one I/O node in a run, in the data's direction and against it.
fn carried(run: &Run, name: &str, towards: bool) -> (f64, f64) {
    run.io_nodes.iter().find(|node| node.host == name).map_or((0.0, 0.0), |node| node.flows(towards))
}

fn at_nodes(kind: Kind, runs: &[&Run]) -> Vec<String> {
    let towards = kind == Kind::Write;
    let Some(first) = runs.iter().find(|run| !run.io_nodes.is_empty()) else { return Vec::new() };
    let names: Vec<&str> = first.io_nodes.iter().map(|node| node.host.as_str()).collect();
    let along = |name: &str| runs.iter().map(|run| carried(run, name, towards).0).sum::<f64>();
    let against = |name: &str| runs.iter().map(|run| carried(run, name, towards).1).sum::<f64>();
    let all: f64 = names.iter().map(|name| along(name)).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let back = format_share(names.iter().map(|name| against(name)).sum::<f64>() / all);
    let shares = names.iter().take(NODES_TOLD).map(|name| format!("{name} {}", format_share(along(name) / all)));
    let shares = shares.collect::<Vec<_>>().join(", ");
    let rate = |run: &Run, name: &str| carried(run, name, towards).0 / run.seconds.max(1e-9);
    let highest = |name: &str| runs.iter().map(|run| rate(run, name)).fold(0.0, f64::max);
    let peak = names.iter().map(|name| (name, highest(name))).max_by(|a, b| a.1.total_cmp(&b.1));
    let mut words = vec![if names.len() > 1 {
        format!("the I/O nodes' shares: {shares}; {back} as much flowed back")
    } else {
        format!("at the I/O node {} {back} as much flowed back as came along with the data", names[0])
    }];
    words.extend(peak.map(|(name, rate)| format!("the busiest I/O node's interfaces: {name}, {}", format_rate(rate))));
    let middle = |run: &Run| median(&names.iter().map(|name| carried(run, name, towards).0).collect::<Vec<_>>());
    let is_low = |name: &str| runs.iter().all(|run| carried(run, name, towards).0 < middle(run) * (1.0 - SLOW_GROUP));
    for name in names.iter().filter(|name| is_low(name)) {
        let typical = median(&names.iter().map(|name| along(name)).collect::<Vec<_>>());
        let less = format_share(1.0 - along(name) / typical);
        words.push(format!("I/O node {name} carried {less} less than the middle one in every run"));
    }
    words
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::sweep::{Options, analyse};

    fn traffic(host: &str, received_bytes: u64, sent_bytes: u64) -> Traffic {
        Traffic { host: host.to_string(), received_bytes, sent_bytes }
    }

    fn run(kind: Kind, clients: Vec<Traffic>, io_nodes: Vec<Traffic>) -> Run {
        Run {
            groups: 2,
            processes: 1,
            repetition: 0,
            kind,
            amount: 1_000_000_000,
            operations: 1000,
            seconds: 1.0,
            rate: 1e9,
            group_rates: vec![5e8, 5e8],
            process_rates: (5e8, 5e8),
            latency_ns: (1, 1, 1),
            cpu_share: 0.5,
            resident: None,
            device_bytes: None,
            processors: Vec::new(),
            network_bytes: (0, 0),
            clients,
            io_nodes,
            exhausted: false,
            odd: 0,
            rejected: None,
        }
    }

    fn sweep(runs: Vec<Run>) -> Sweep {
        let mut sweep = Sweep::new(Options {
            groups: vec![2],
            hosts: vec!["a".into(), "b".into()],
            io_nodes: vec!["x".into(), "y".into(), "z".into()],
            ..Options::one("/")
        });
        sweep.runs = runs;
        sweep
    }

    #[test]
    fn service_and_reverse_traffic_and_the_node_that_carries_less_are_told() {
        let clients = vec![traffic("a", 10_000_000, 520_000_000), traffic("b", 11_000_000, 530_000_000)];
        let nodes = [("x", 400), ("y", 250), ("z", 400)];
        let nodes = nodes.map(|(name, mega)| traffic(name, mega * 1_000_000, 17_500_000)).to_vec();
        let mut sweep = sweep(vec![run(Kind::Write, clients, nodes)]);
        sweep.quiet = vec![traffic("x", 1000, 500)];
        let words = analyse(&sweep)[0].words.join("\n");
        for part in [
            "1.050 bytes left the clients for each of data, 4.8 % of it service and headers; 2.0 % as much flowed back",
            "the I/O nodes' shares: x 38.1 %, y 23.8 %, z 38.1 %; 5.0 % as much flowed back",
            "the busiest I/O node's interfaces: z, 400.0 MB/s",
            "I/O node y carried 37.5 % less than the middle one in every run",
            "with nothing running 1.500 kB/s reach and leave the I/O nodes",
        ] {
            assert!(words.contains(part), "{part} is not in:\n{words}");
        }
    }

    #[test]
    fn a_reader_gets_what_others_send_and_data_that_crossed_no_network_is_not_spoken_of() {
        let clients = vec![traffic("a", 1_010_000_000, 5_050_000)];
        let read = analyse(&sweep(vec![run(Kind::Read, clients, Vec::new())]))[0].words.join("\n");
        assert!(
            read.contains("1.010 bytes reached the clients") && read.contains("0.5 % as much flowed back"),
            "{read}"
        );
        let local =
            analyse(&sweep(vec![run(Kind::Write, vec![traffic("a", 100, 200)], Vec::new())]))[0].words.join("\n");
        assert!(!local.contains("flowed back"), "{local}");
    }

    #[test]
    fn a_group_that_is_slow_in_every_run_is_named_and_one_that_was_slow_twice_is_not() {
        let with = |slow: &[[f64; 4]]| {
            let runs = slow.iter().enumerate().map(|(repetition, rates)| Run {
                groups: 4,
                repetition: repetition as u64,
                group_rates: rates.to_vec(),
                ..run(Kind::Write, Vec::new(), Vec::new())
            });
            analyse(&sweep(runs.collect()))[0].words.join("\n")
        };
        let (slow, even) = ([1e8, 1e8, 6e7, 1e8], [1e8, 1e8, 9.8e7, 1e8]);
        let said = with(&[slow, slow, slow]);
        assert!(said.contains("slow in every run: group 2 (40.0 % below the median)"), "{said}");
        for runs in [&[slow, slow][..], &[slow, even, slow]] {
            let said = with(runs);
            assert!(!said.contains("slow in every run"), "{said}");
        }
    }

    #[test]
    fn a_host_that_was_lost_or_comes_twice_is_not_counted() {
        let names: Vec<String> = ["a", "b", "a"].map(String::from).to_vec();
        let seen = vec![Some(Counters::default()), None, Some(Counters::default())];
        let grown = grown(&names, &seen, &seen);
        assert_eq!(grown, [traffic("a", 0, 0)]);
    }
}
