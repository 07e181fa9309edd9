//! Tests of the combined result of many processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::*;
use crate::sweep::Options;
use crate::workload::{mix, send};

const GROUPS: u64 = 64;
const PROCESSES: u64 = 64;

/// A leader of a group that sends prepared replies: ready, then the samples of its processes.
const LEADER: &str = r#"read -r first
number=$(printf '%s' "$first" | sed 's/.*"group":\([0-9]*\).*/\1/')
sed -n 1p "$0/$number"
read -r go
sed -n 2p "$0/$number"
cat >/dev/null"#;

fn options() -> Options {
    Options { groups: vec![GROUPS], processes: vec![PROCESSES], ..Options::one("/") }
}

/// Returns the sample of a process, with pseudorandom number and durations of operations.
fn sample(rank: u64) -> Sample {
    let operations = 1 + mix(rank) % 200;
    let mut latencies = Histogram::default();
    (0..operations).for_each(|index| latencies.add(mix(rank << 20 | index) % 50_000_000));
    Sample {
        rank,
        operations,
        bytes: operations << 20,
        started_ns: 1_000_000_000 + rank,
        ended_ns: 2_000_000_000 + mix(rank) % 1_000_000,
        latencies,
        ..Sample::default()
    }
}

/// The results of 4096 processes arrive through 64 pipes at once, and the combined result contains all of them.
#[test]
fn results_of_64_times_64_processes_merge_without_losing_a_sample() {
    let told = tempfile::tempdir().unwrap();
    let all: Vec<Sample> = (0..GROUPS * PROCESSES).map(sample).collect();
    for (group, samples) in all.chunks(PROCESSES as usize).enumerate() {
        let mut lines = Vec::new();
        send(&mut lines, &Reply::Ready { resident: None }).unwrap();
        send(&mut lines, &Reply::Done { samples: samples.to_vec(), lost: Vec::new() }).unwrap();
        fs::write(told.path().join(group.to_string()), lines).unwrap();
    }
    let sweep = Sweep::new(options());
    let task = Task {
        pattern: sweep.options.pattern.clone(),
        directory: PathBuf::from("/"),
        across: Vec::new(),
        processes: PROCESSES,
        ranks: GROUPS * PROCESSES,
        seed: 1,
    };
    let launcher = Launcher::new("sh", &["-c", LEADER, told.path().to_str().unwrap()]);
    let leaders = (0..GROUPS).map(|group| (format!("group {group}"), Command::Lead { group, task: task.clone() }));
    let mut fleet = Fleet::start(&launcher, leaders).unwrap();
    ready(fleet.gather(None)).unwrap();
    let go = Command::Go { at_ns: 0, until_ns: 0 };
    fleet.tell(&go);
    let merged = samples(fleet.gather(Some(&go)), Kind::Write, task.ranks).unwrap();
    assert_eq!(merged.iter().map(|sample| sample.rank).collect::<BTreeSet<_>>().len(), 4096);
    let run = account(&sweep, Kind::Write, &merged, (GROUPS, PROCESSES, 0), &Counters::default(), None);
    let operations: u64 = all.iter().map(|sample| sample.operations).sum();
    assert_eq!((run.operations, run.amount), (operations, operations << 20));
    assert_eq!(run.group_rates.len(), 64);
    // No duration was lost: merging here gives the counts that came through the pipes.
    let (mut here, mut there) = (Histogram::default(), Histogram::default());
    all.iter().for_each(|sample| here.merge(&sample.latencies));
    merged.iter().for_each(|sample| there.merge(&sample.latencies));
    assert_eq!(here, there);
    let last = all.iter().map(|sample| sample.ended_ns).max().unwrap();
    assert_eq!(run.seconds, (last - 1_000_000_000) as f64 / 1e9);
}

/// One process of 4096 that does not answer makes the complete run a failure.
#[test]
fn a_run_without_one_of_its_processes_is_no_result() {
    let mut some: Vec<Sample> = (0..4096).map(sample).collect();
    some.remove(1234);
    let failure = samples(Reply::Done { samples: some, lost: Vec::new() }, Kind::Write, 4096).unwrap_err();
    assert!(failure.message.contains("4095 of 4096 processes answered"), "{}", failure.message);
}
