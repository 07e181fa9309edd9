//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::shape::Promise;
use crate::units;

const EXAMPLE: &str = "\
Example: /srv/data as if it were across a network, at /mnt/global:

  slowfs /srv/data /mnt/global --bandwidth 120MB/s --latency 2ms
  ...
  umount /mnt/global

Access follows the mode bits; locks are those of this machine. Ends when unmounted, or on SIGTERM or SIGINT, which \
unmount it. Needs root, or a user namespace of one's own.";

/// Shows a directory, slowed to a promised bandwidth and latency
#[derive(Debug, Parser)]
#[command(name = "slowfs", version, after_help = EXAMPLE)]
pub struct Command {
    /// The directory to show
    pub lower: PathBuf,
    /// Where to show it; may be LOWER itself
    pub mountpoint: PathBuf,
    /// Bytes in a second for all reads and writes together, such as 120MB/s [default: no bound]
    #[arg(long, value_name = "RATE", value_parser = units::bandwidth)]
    pub bandwidth: Option<f64>,
    /// How long every operation takes at least, such as 2ms; side by side with its share of the bandwidth
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    pub latency: Duration,
    /// Up to this much more latency, drawn anew for each operation
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "0")]
    pub jitter: Duration,
    /// What the jitter is drawn from: the same seed gives the same sequence
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
}

impl Command {
    pub fn promise(&self) -> Promise {
        Promise { bandwidth: self.bandwidth, latency: self.latency, jitter: self.jitter, seed: self.seed }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_example_in_the_help_is_understood() {
        let example = EXAMPLE.lines().find(|line| line.starts_with("  slowfs")).unwrap();
        let command = Command::try_parse_from(example.split_whitespace()).unwrap();
        assert_eq!((command.bandwidth, command.latency), (Some(120e6), Duration::from_millis(2)));
        Command::command().debug_assert();
    }
}
