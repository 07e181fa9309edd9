//! The words of `forebay limits`.

use std::ffi::OsString;
use std::path::PathBuf;

use std::time::Duration;

use clap::{Args, Subcommand};
use config::{parse_duration, parse_size};

use crate::units::Rate;
use crate::workload::{Layout, Preset, Sync};

/// Shows how fast this storage can be, how fast it is, and where the difference is lost.
#[derive(Debug, Subcommand)]
pub enum LimitsArgs {
    /// The limits that specifications allow, before anything is bought or run
    #[command(after_help = "Example: forebay limits plan cluster.toml --what-if 'io_nodes*=2'")]
    Plan(PlanArgs),
    /// Measure what the storage gives to M x N processes with an ideal workload
    #[command(after_help = "Example: forebay limits sweep --target /scratch/project -M 1 -N 1,2,4 -o sweep.json")]
    Sweep(Box<SweepArgs>),
    /// Measure what each component of this machine gives alone, beside what its document promises
    #[command(after_help = "Example: forebay limits probe --media /nvme --media /scratch -o probe.json")]
    Probe(ProbeArgs),
    /// Watch what processors, devices and interfaces do while a program runs
    #[command(after_help = "Example: forebay limits watch -o watch.json -- make -j4")]
    Watch(WatchArgs),
    /// Measure what one software factor at a time changes: block size, read-ahead, sync, large directories, sharing
    #[command(after_help = "Example: forebay limits factors --target /scratch/project")]
    Factors(FactorsArgs),
    /// The stages side by side, and a verdict in plain words
    #[command(after_help = "Example: forebay limits report probe.json sweep.json -o report.html")]
    Report(ReportArgs),
    /// Answers the probe of another host, until killed; anybody who reaches the port can load this host's link
    #[command(after_help = "Example: forebay limits peer --listen 10.0.0.7:7117")]
    Peer {
        /// Address and port; port 0 takes a free one and says which
        #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7117")]
        listen: String,
    },
    /// The experiment book: beds, workloads and bars in files, run and judged
    #[command(after_help = "Example: forebay limits experiments E0-4 --quick")]
    Experiments(ExperimentsArgs),
    /// A process or group leader of a sweep, the measurement of a door's own cost, or a part of an experiment
    #[command(hide = true)]
    Worker {
        /// Measure FUSE requests for so many nanoseconds, in this process's mount namespace
        #[arg(long)]
        crossing: Option<u64>,
        /// Measure calls on a file for so many nanoseconds
        #[arg(long, conflicts_with = "crossing")]
        calls: Option<u64>,
        /// Be the wire of an experiment
        #[arg(long, value_name = "JSON")]
        wire: Option<String>,
        /// Be an experiment's program
        #[arg(long, value_name = "JSON")]
        program: Option<String>,
        /// One process of it
        #[arg(long, requires = "program")]
        rank: Option<u64>,
    },
}

/// `forebay limits plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The cluster, as docs/limits.md describes it
    pub cluster: PathBuf,
    /// A change and what binds then: io_nodes*=2, clients.rate=200 Gbit/s, storage_network=separate; several joined by commas
    #[arg(long, value_name = "CHANGE")]
    pub what_if: Vec<String>,
    /// Results as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Results as a file for `report`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Length of a phase of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// A fixed time.
    Of(Duration),
    /// Long enough that no cache of these machines matters.
    Uncached,
}

impl Length {
    fn parse(text: &str) -> Result<Length, String> {
        if text == "uncached" { Ok(Length::Uncached) } else { parse_duration(text).map(Length::Of) }
    }
}

/// Options of every stage that measures for a while.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// Say what would be done and how long it takes
    #[arg(long)]
    pub dry_run: bool,
    /// No progress
    #[arg(long)]
    pub quiet: bool,
    /// Results as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Results as a file for `report`, kept up to date; the same command goes on with an unfinished one
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `forebay limits sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The directory to test; a directory is made in it and removed again
    #[arg(long, value_name = "DIR")]
    pub target: PathBuf,
    /// Directories of the target that the files are dealt out to in turn, such as the mounts of several servers
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub across: Vec<PathBuf>,
    /// Numbers of groups; a group stands for a node, and on one machine only separates files and barriers
    #[arg(short = 'M', long = "groups", value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    pub groups: Vec<u64>,
    /// Numbers of processes in each group
    #[arg(short = 'N', long = "processes", value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    pub processes: Vec<u64>,
    /// Hosts where the groups run, in turn: NAME (ssh), srun:NAME, mpirun:NAME, netns:NAME, pid:N (the network and the mounts of that
    /// process, a container's for instance). The target must be the same directory on all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Hosts that serve the target, reached as --hosts are: what crosses their interfaces is told, unequal shares and reverse traffic
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub io_nodes: Vec<String>,
    /// This program on the hosts [default: the same path as here]
    #[arg(long, value_name = "PATH")]
    pub remote_program: Option<PathBuf>,
    /// Operations of the processes
    #[arg(long, value_enum, default_value = "stream")]
    pub pattern: Preset,
    #[command(flatten)]
    pub change: PatternArgs,
    /// Length of a phase; the last fsync and close are waited for and count. `uncached`: so long that at the limit twice the memory of
    /// the machines passes
    #[arg(long, value_name = "T", default_value = "5s", value_parser = Length::parse)]
    pub time: Length,
    /// Runs of each cell; the median counts, the 95 % confidence interval is stated
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub repeat: u64,
    /// Runs of the largest cell before anything counts
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub warm_up: u64,
    /// Seed of the random data
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Limit of the hardware: results above it are rejected
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, conflicts_with = "plan")]
    pub limit: Option<Rate>,
    /// Limit of the hardware, from a cluster's specification
    #[arg(long, value_name = "CLUSTER.toml")]
    pub plan: Option<PathBuf>,
    /// Limit of the hardware, from `probe` results that measured a directory of the target's file system
    #[arg(long, value_name = "FILE", conflicts_with_all = ["limit", "plan"])]
    pub probe: Option<PathBuf>,
    #[command(flatten)]
    pub stage: StageArgs,
}

/// Changes of a preset.
#[derive(Debug, Default, Args)]
pub struct PatternArgs {
    /// Bytes of one read or write, or of a small file
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub transfer: Option<u64>,
    /// Most bytes that a process writes in a phase
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Most files that a process creates in a phase
    #[arg(long, value_name = "COUNT")]
    pub files: Option<u64>,
    /// Which file, and where in it
    #[arg(long, value_enum)]
    pub layout: Option<Layout>,
    /// When written data is made durable
    #[arg(long, value_enum)]
    pub sync: Option<Sync>,
    /// Transfers in a scattered order
    #[arg(long)]
    pub random: bool,
    /// O_DIRECT: past this machine's page cache
    #[arg(long)]
    pub direct: bool,
    /// Read back what the stream pattern wrote
    #[arg(long)]
    pub read: bool,
}

/// `forebay limits probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// A cluster to compare with, as for `plan`; the `dir` of its media are measured too
    pub cluster: Option<PathBuf>,
    /// A directory whose file system and device are measured; a directory is made in it and removed again
    #[arg(long, value_name = "DIR")]
    pub media: Vec<PathBuf>,
    /// A block device, or a file in its place: read past the page cache, alone and by io_uring; never written
    #[arg(long, value_name = "PATH")]
    pub device: Vec<PathBuf>,
    /// Another host, where `forebay limits peer` runs: the wire to it is measured
    #[arg(long, value_name = "HOST[:PORT]")]
    pub peer: Vec<String>,
    /// Length of each measurement
    #[arg(long, value_name = "T", default_value = "2s", value_parser = parse_duration)]
    pub time: Duration,
    /// Most bytes that are written to a medium at one time
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_size)]
    pub size: u64,
    #[command(flatten)]
    pub stage: StageArgs,
}

/// `forebay limits watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Time between two looks at the counters
    #[arg(long, value_name = "T", default_value = "1s", value_parser = parse_duration)]
    pub interval: Duration,
    /// Results as JSON on stderr instead of text
    #[arg(long)]
    pub json: bool,
    /// Results as a file for `report`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program; its output is its own, what was seen goes to stderr, its status is the status
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `forebay limits factors`.
#[derive(Debug, Args)]
pub struct FactorsArgs {
    /// The directory to test; a directory is made in it and removed again
    #[arg(long, value_name = "DIR")]
    pub target: PathBuf,
    /// Length of each measurement
    #[arg(long, value_name = "T", default_value = "1s", value_parser = parse_duration)]
    pub time: Duration,
    /// Measurements of each level; the median counts
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub repeat: u64,
    /// Most bytes that are written at one time
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub size: u64,
    /// The file system's block, for files of parts of it [default: what it tells]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub block: Option<u64>,
    #[command(flatten)]
    pub stage: StageArgs,
}

/// `forebay limits report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files that the other subcommands wrote with -o, and tables of other tools as CSV with the heading M,N,MB/s
    #[arg(required = true, value_name = "RESULTS")]
    pub results: Vec<PathBuf>,
    /// The report; its name says the form: .html (one file, no network), .json, .csv or .txt [default: text on stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// JSON on stdout
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
}

/// `forebay limits experiments`.
#[derive(Debug, Args)]
pub struct ExperimentsArgs {
    /// Which, such as E0-4 [default: all]
    pub only: Vec<String>,
    /// The directory of the book's files
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    pub book: PathBuf,
    /// Shorter and smaller: figures say less
    #[arg(long)]
    pub quick: bool,
    /// Really mount so many of E4-1's planted bottlenecks, instead of as many as its page says
    #[arg(long, value_name = "COUNT")]
    pub mounted: Option<u64>,
    /// Where every figure is appended, a JSON value a line
    #[arg(long, value_name = "FILE", default_value = "target/experiments/results.jsonl")]
    pub results: PathBuf,
    /// Run nothing: plot all figures that were kept as one HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Say what would be run, and about how long it takes
    #[arg(long)]
    pub dry_run: bool,
}
