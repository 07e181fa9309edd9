//! Every bound of this crate, with the reason for the number.

use std::time::Duration;

/// Largest rate a document may give, bytes a second. The largest file systems move about 10 TB/s; a thousand times that
/// is a slip of units.
pub const RATE_MAX_BYTES_PER_S: f64 = 1e16;
/// Smallest rate of a link or a medium, bytes a second: 1 Mbit/s. Nobody buys less for a cluster; a prefix was forgotten.
pub const PART_MIN_BYTES_PER_S: f64 = 125_000.0;
/// A medium that gives as much is asked about: the fastest devices of today give a sixth of it, and GB/s is easily written for MB/s.
pub const MEDIUM_DOUBTED_BYTES_PER_S: f64 = 100e9;
/// Largest count of anything in a cluster document: above it a digit too many was typed.
pub const COUNT_MAX: u64 = 10_000_000;
/// Largest document that is read, in bytes.
pub const DOCUMENT_MAX: u64 = 64 << 20;
/// A documented figure that differs from the computed one by more than this share is reported.
pub const DOCUMENTED_TOLERANCE: f64 = 0.01;
/// Encodings take up to a fifth, so a ratio of eight within this share is a slip of bits and bytes.
pub const SLIP_TOLERANCE: f64 = 0.05;
/// A component that gives less than this share of what its document promises is reported.
pub const PROMISE_KEPT: f64 = 0.9;
/// A component above its document by more than this share was answered by a cache, or the document is wrong.
pub const PROMISE_EXCEEDED: f64 = 1.1;
/// "Near the top": within this share of the best cell.
pub const NEAR_TOP: f64 = 0.05;
/// Doubling the processes must give at least this factor, or the knee is reached.
pub const KNEE_GAIN: f64 = 1.25;
/// A cell may exceed a limit by this share before it is rejected: the error of timing one phase.
pub const LIMIT_SLACK: f64 = 0.03;
/// Groups whose rate lies below the median by more than this share are called slow.
pub const SLOW_GROUP: f64 = 0.10;
/// Most processes of one sweep cell: 64 x 64, the paper's largest.
pub const PROCESSES_MAX: u64 = 4096;
/// How long a process may take to start, prepare or clean up. Generous: the machine may stand still for seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A phase may take this much longer than asked: its fsync and close are waited for.
pub const PHASE_PATIENCE: Duration = Duration::from_secs(300);
/// Room between sending "go" and the common start, per phase: the message must have reached everybody.
pub const START_SLACK: Duration = Duration::from_millis(5);
/// The same for each process that has to be told.
pub const START_SLACK_EACH: Duration = Duration::from_micros(50);
/// How long the I/O nodes' interfaces are looked at before anything runs.
pub const QUIET_TIME: Duration = Duration::from_secs(1);
/// What the load generator may add to an operation: more is told. A tenth of the fastest operation of a parallel file system.
pub const GENERATOR_NS_MAX: f64 = 2000.0;
/// Up to transfers of so many bytes, the largest of the presets.
pub const GENERATOR_TRANSFER: u64 = 2 << 20;
/// Longest line of the protocol between coordinator and processes, in bytes.
pub const LINE_MAX: usize = 64 << 20;
/// Share of the target's free space that one cell may fill.
pub const FREE_SHARE: f64 = 0.5;
/// Largest transfer, in bytes: each process holds a buffer of that size.
pub const TRANSFER_MAX: u64 = 1 << 30;
/// A phase shorter than this says little; the cell is marked.
pub const PHASE_MIN: Duration = Duration::from_millis(100);
/// Samples that `watch` keeps; older ones are merged two by two so that a long run stays small.
pub const WATCH_SAMPLES_MAX: usize = 2000;
/// A part that is busy for at least this share of a load can bind it; below, somebody else makes it wait.
pub const BUSY: f64 = 0.85;
/// One of a kind that gives less than this share of the middle one is slow alone. A third of the way between measurement
/// error and the smallest difference that matters.
pub const UNEQUAL: f64 = 0.87;
/// A shared file that gets less than this share of what own files get has lost it to something.
pub const LOST_TO_SHARING: f64 = 0.87;
/// Connections that `peer` serves at once: the probe of one host has eight, and a few hosts may ask together.
pub const PEER_CONNECTIONS_MAX: u64 = 64;
/// A peer that says nothing for so long has failed.
pub const PEER_SILENCE: Duration = Duration::from_secs(20);
/// A connection to `peer` lasts no longer, whatever it says: longer than any measurement, so that nobody keeps its place.
pub const PEER_LASTS: Duration = Duration::from_secs(3600);
/// Least time between two looks at a watched program's threads.
pub const WATCH_LOOK_MIN: Duration = Duration::from_millis(20);
/// Most time between two looks that a long run brings about; their cost may bring more.
pub const WATCH_LOOK_MAX: Duration = Duration::from_millis(250);
/// The time so far is divided by that for the time between two looks: the first second has fifty, the first minute 750. More
/// would say nothing more.
pub const WATCH_LOOKS: u32 = 200;
/// Threads that one look takes in: beyond, a sample is as good.
pub const WATCH_THREADS_MAX: usize = 512;
/// Time between two questions to Forebay's agents: each starts a process.
pub const WATCH_ASK: Duration = Duration::from_secs(2);
/// Questions to a clock on another host; the quickest answer says most.
pub const CLOCK_QUESTIONS: usize = 8;
/// A phase must be so many times longer than what the clocks of the hosts leave open.
pub const CLOCK_SHARE: u32 = 50;
/// Reads under way at once on a device: enough for an NVMe drive to show what it can, and 32 MiB of memory.
pub const DEVICE_DEPTH: u32 = 32;
/// A customary tool of the probe may take so much longer than it measures: its start, its end, a busy machine.
pub const TOOL_EXTRA: Duration = Duration::from_secs(10);
/// The server of such a tool listens within that.
pub const TOOL_START: Duration = Duration::from_secs(5);
/// Between two tries whether it does.
pub const TOOL_START_PAUSE: Duration = Duration::from_millis(20);
/// Least block of a file system: a sector, so that a thirty-second of it is a file with something in it.
pub const BLOCK_MIN: u64 = 512;
/// Largest: four times the largest that a parallel file system of today has.
pub const BLOCK_MAX: u64 = 64 << 20;
