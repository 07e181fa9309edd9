//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::faults::{self, Fault};
use crate::limits::{BURST, FAULTS_MAX, PARTS_MAX};
use crate::model::{Ns, Protocol, Spec};
use crate::shape::ClientIs;
use crate::units;

const EXAMPLE: &str = "\
Examples: /srv/data as if it were across a network, at /mnt/global; four disks of 8 ms a seek; locks as Lustre has them:

  slowfs /srv/data /mnt/global --bandwidth 120MB/s --latency 2ms
  slowfs /srv/data /mnt/global --targets 4 --target-bandwidth 60MB/s --seek 8ms --adjacent 200us --write-seek 8ms
  slowfs /srv/data /mnt/global --lock expand --round-trip 500us --lock-granularity 1MiB --metadata-time 200us
  getfattr --only-values -n user.slowfs.statistics /mnt/global
  umount /mnt/global

Bandwidths hold side by side: the narrowest counts. Access follows the mode bits; file locks of programs are those of this \
machine. Ends when unmounted, or on SIGTERM or SIGINT, which unmount it. Needs root, or a user namespace of one's own.";

/// Shows a directory, as slow as a store that is described
#[derive(Debug, Parser)]
#[command(name = "slowfs", version, after_help = EXAMPLE, args_override_self = true)]
pub struct Command {
    /// The directory to show
    pub lower: PathBuf,
    /// Where to show it; may be LOWER itself
    pub mountpoint: PathBuf,
    /// Bytes in a second for all reads and writes together, such as 120MB/s [default: no bound]
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    bandwidth: Option<f64>,
    /// How long every operation takes at least, such as 2ms; side by side with its share of the bandwidth
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    latency: Duration,
    /// Up to this much more latency, drawn anew for each operation
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    jitter: Duration,
    /// Seed of the jitter and fault points: the same seed gives the same sequence
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    parts: Parts,
    #[command(flatten)]
    rules: Rules,
    /// A fault point: OPERATION:WHEN:HOW. write:100:EIO fails the hundredth write, fsync:5+:ENOSPC each from the fifth on,
    /// any:0.1%:2s lets one operation in a thousand take two seconds more, write:1+:while=/run/hung lets all writes hang as long as
    /// that file exists. May be given several times
    #[arg(long, value_name = "FAULT", value_parser = faults::parse)]
    pub fault: Vec<Fault>,
    /// How long this machine trusts names and attributes before it asks again
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "1s")]
    pub trust: Duration,
    /// Be a store that other machines change too: the type of the mount is `fuse.slowfs-shared`, by which Forebay knows it
    #[arg(long)]
    pub shared: bool,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
    /// Meaning of a client, for links, processors and the lock protocol
    #[arg(long, value_enum, default_value = "open")]
    pub client: ClientIs,
}

/// The hardware.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Hardware")]
struct Parts {
    /// Targets that each file is striped over
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=PARTS_MAX))]
    targets: u64,
    /// Bytes in a second of one target
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    target_bandwidth: Option<f64>,
    /// Target N, from 0, gives only PART of the others' bandwidth
    #[arg(long, value_name = "N=PART", value_parser = units::slow)]
    slow_target: Option<(usize, f64)>,
    /// Bytes on one target before the next one's turn
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "1MiB")]
    stripe: u64,
    /// A target's time for a read that is not where the last operation ended; one arm a target
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    seek: Duration,
    /// A target's time for a read that is, within 256 KiB
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    adjacent: Duration,
    /// A target's time for a write elsewhere
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    write_seek: Duration,
    /// Bytes in a second of one open description
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    stream_bandwidth: Option<f64>,
    /// Bytes in a second that one client's processor moves
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    client_cpu: Option<f64>,
    /// Bytes in a second of one client's link
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    client_link: Option<f64>,
    /// Servers, among which the targets are dealt out
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=PARTS_MAX))]
    servers: u64,
    /// Bytes in a second of one server's link
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    server_link: Option<f64>,
    /// Server N, from 0, has only PART of the others' link
    #[arg(long, value_name = "N=PART", value_parser = units::slow)]
    slow_server: Option<(usize, f64)>,
    /// There and back of a message, in addition to all else
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    round_trip: Duration,
    /// Most bytes of a message
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "1MiB")]
    message: u64,
}

/// The software.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Software")]
struct Rules {
    /// The metadata server's time for a name or an attribute
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    metadata_time: Duration,
    /// Metadata operations that it does at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=PARTS_MAX))]
    metadata_threads: u64,
    /// Lock protocol: who may read or write where at one time
    #[arg(long, value_enum, default_value = "none")]
    lock: Protocol,
    /// The lock manager's time for a request; one at a time
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    lock_time: Duration,
    /// Bytes to which locked ranges are rounded
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "4KiB")]
    lock_granularity: u64,
    /// The metadata server's time to note a read in the file's time of access
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    atime_time: Duration,
    /// Writes and fsyncs are acknowledged while no more than this is on its way: a cache that cheats
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    cheat: Option<u64>,
}

impl Command {
    /// Checks options that depend on each other. Errors: a sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        let parts = &self.parts;
        let beyond = |slow: Option<(usize, f64)>, count: u64| slow.is_some_and(|(number, _)| number as u64 >= count);
        if beyond(parts.slow_target, parts.targets) || beyond(parts.slow_server, parts.servers) {
            return Err("--slow-target and --slow-server name one of --targets and --servers, counted from 0".into());
        }
        if parts.slow_server.is_some() && parts.server_link.is_none() {
            return Err("--slow-server needs --server-link".into());
        }
        if self.fault.len() > FAULTS_MAX {
            return Err(format!("at most {FAULTS_MAX} fault points"));
        }
        Ok(())
    }

    pub fn spec(&self) -> Spec {
        let (parts, rules) = (&self.parts, &self.rules);
        let ns = |time: Duration| time.as_nanos() as Ns;
        Spec {
            bandwidth: self.bandwidth,
            latency: ns(self.latency),
            jitter: ns(self.jitter),
            seed: self.seed,
            stream: parts.stream_bandwidth,
            client_cpu: parts.client_cpu,
            client_link: parts.client_link,
            servers: parts.servers as usize,
            server_link: parts.server_link,
            slow_server: parts.slow_server,
            targets: parts.targets as usize,
            target: parts.target_bandwidth,
            slow_target: parts.slow_target,
            stripe: parts.stripe,
            seek: ns(parts.seek),
            adjacent: ns(parts.adjacent),
            write_seek: ns(parts.write_seek),
            round_trip: ns(parts.round_trip),
            message: parts.message,
            metadata: ns(rules.metadata_time),
            metadata_concurrency: rules.metadata_threads as usize,
            lock: rules.lock,
            lock_service: ns(rules.lock_time),
            lock_granularity: rules.lock_granularity,
            atime: ns(rules.atime_time),
            cheat: rules.cheat.unwrap_or(0),
            burst: ns(BURST),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_examples_in_the_help_are_understood() {
        let examples = EXAMPLE.lines().filter(|line| line.starts_with("  slowfs"));
        let commands: Vec<Command> =
            examples.map(|example| Command::try_parse_from(example.split_whitespace()).unwrap()).collect();
        let spec = commands[0].spec();
        assert_eq!((spec.bandwidth, spec.latency), (Some(120e6), 2_000_000));
        let spec = commands[1].spec();
        assert_eq!((spec.targets, spec.target, spec.seek, spec.adjacent), (4, Some(60e6), 8_000_000, 200_000));
        assert_eq!(commands[2].spec().lock, Protocol::Expand);
        Command::command().debug_assert();
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (words, part) in [
            ("slowfs a b --slow-target 1=0.5", "counted from 0"),
            ("slowfs a b --servers 2 --slow-server 1=0.5", "needs --server-link"),
        ] {
            let command = Command::try_parse_from(words.split_whitespace()).unwrap();
            assert!(command.check().unwrap_err().contains(part), "{words}");
        }
    }
}
