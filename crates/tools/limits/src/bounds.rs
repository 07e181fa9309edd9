//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Largest rate accepted in a document, bytes per second. The largest file systems reach about 10 TB/s; a thousand
/// times that is a wrong unit.
pub const RATE_MAX_BYTES_PER_S: f64 = 1e16;
/// Smallest rate of a link or a medium, bytes per second: 1 Mbit/s. A cluster has nothing slower, so a prefix was
/// forgotten.
pub const PART_MIN_BYTES_PER_S: f64 = 125_000.0;
/// Rate of a medium from which a warning is given, bytes per second. The fastest devices of today reach a sixth of it,
/// and GB/s is easily written for MB/s.
pub const MEDIUM_DOUBTED_BYTES_PER_S: f64 = 100e9;
/// Largest count accepted in a cluster document; above it a digit too many was typed.
pub const COUNT_MAX: u64 = 10_000_000;
/// Largest document that is read, in bytes.
pub const DOCUMENT_MAX: u64 = 64 << 20;
/// Relative difference between a documented and a computed figure that is reported.
pub const DOCUMENTED_TOLERANCE: f64 = 0.01;
/// Tolerance for recognising a ratio of eight as a confusion of bits and bytes. Encodings take up to a fifth.
pub const SLIP_TOLERANCE: f64 = 0.05;
/// Share of the documented rate below which a component is reported.
pub const PROMISE_KEPT: f64 = 0.9;
/// Share of the documented rate above which a component is reported: a cache answered, or the document is wrong.
pub const PROMISE_EXCEEDED: f64 = 1.1;
/// Relative difference from the best cell that counts as "near the top".
pub const NEAR_TOP: f64 = 0.05;
/// Least gain by doubling the processes; with less gain the knee is reached.
pub const KNEE_GAIN: f64 = 1.25;
/// Relative excess of a cell over a limit that is tolerated: the timing error of one phase.
pub const LIMIT_SLACK: f64 = 0.03;
/// Relative difference below the median from which a group counts as slow.
pub const SLOW_GROUP: f64 = 0.10;
/// Most processes of one sweep cell: 64 x 64, the paper's largest.
pub const PROCESSES_MAX: u64 = 4096;
/// Time limit for a process to start, prepare or clean up. Generous, because the machine may pause for seconds.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Time that a phase may take beyond its length, for the final fsync and close.
pub const PHASE_PATIENCE: Duration = Duration::from_secs(300);
/// Time between sending "go" and the common start of a phase, in which the message must reach all processes.
pub const START_SLACK: Duration = Duration::from_millis(5);
/// Additional time between "go" and the start for each process to be told.
pub const START_SLACK_EACH: Duration = Duration::from_micros(50);
/// Time for which the I/O nodes' interfaces are observed before anything runs.
pub const QUIET_TIME: Duration = Duration::from_secs(1);
/// Largest time in nanoseconds that the load generator may add to an operation without a warning. A tenth of the
/// fastest operation of a parallel file system.
pub const GENERATOR_NS_MAX: f64 = 2000.0;
/// Largest transfer in bytes to which [`GENERATOR_NS_MAX`] applies: the largest of the presets.
pub const GENERATOR_TRANSFER: u64 = 2 << 20;
/// Longest line in bytes of the protocol between coordinator and processes.
pub const LINE_MAX: usize = 64 << 20;
/// Share of the target's free space that one cell may fill.
pub const FREE_SHARE: f64 = 0.5;
/// Largest transfer in bytes; each process holds a buffer of that size.
pub const TRANSFER_MAX: u64 = 1 << 30;
/// Shortest meaningful phase; a cell with a shorter one is marked.
pub const PHASE_MIN: Duration = Duration::from_millis(100);
/// Most samples that `watch` keeps. Beyond, older ones are merged in pairs, so that a long run stays small.
pub const WATCH_SAMPLES_MAX: usize = 2000;
/// Share of a load's time that a part must be busy to be the bottleneck; below, another part makes it wait.
pub const BUSY: f64 = 0.85;
/// Share of the median of its kind below which one part counts as slow alone. A third of the way between measurement
/// error and the smallest difference that matters.
pub const UNEQUAL: f64 = 0.87;
/// Share of the rate of separate files below which a shared file counts as slow.
pub const LOST_TO_SHARING: f64 = 0.87;
/// Most connections that `peer` serves at once. The probe of one host has eight, and a few hosts may probe together.
pub const PEER_CONNECTIONS_MAX: u64 = 64;
/// Time without data after which a peer counts as failed.
pub const PEER_SILENCE: Duration = Duration::from_secs(20);
/// Longest duration of a connection to `peer`, even with traffic. Longer than any measurement, so that a slot is never
/// occupied for ever.
pub const PEER_LASTS: Duration = Duration::from_secs(3600);
/// Shortest time between two samples of a watched program's threads.
pub const WATCH_LOOK_MIN: Duration = Duration::from_millis(20);
/// Longest time between two samples due to a long run; the cost of sampling may lengthen it further.
pub const WATCH_LOOK_MAX: Duration = Duration::from_millis(250);
/// Divisor of the elapsed time that gives the time between two samples. The first second has fifty samples, the first
/// minute 750. More would add no information.
pub const WATCH_LOOKS: u32 = 200;
/// Most threads read in one sample; beyond, a part of them represents the rest.
pub const WATCH_THREADS_MAX: usize = 512;
/// Time between two status requests to Forebay's agents; each starts a process.
pub const WATCH_ASK: Duration = Duration::from_secs(2);
/// Requests to the clock of another host; the fastest reply is used.
pub const CLOCK_QUESTIONS: usize = 8;
/// Factor by which a phase must be longer than the uncertainty of the hosts' clocks.
pub const CLOCK_SHARE: u32 = 50;
/// Reads in progress at once on a device: enough for an NVMe drive at full speed, and 32 MiB of memory.
pub const DEVICE_DEPTH: u32 = 32;
/// Time that an external tool of the probe may take beyond its measurement: start, end, a busy machine.
pub const TOOL_EXTRA: Duration = Duration::from_secs(10);
/// Time limit for the server of such a tool to listen.
pub const TOOL_START: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect to such a server.
pub const TOOL_START_PAUSE: Duration = Duration::from_millis(20);
/// Smallest block of a file system in bytes: a sector. A thirty-second of it is still a file with content.
pub const BLOCK_MIN: u64 = 512;
/// Largest block of a file system in bytes: four times the largest of any parallel file system of today.
pub const BLOCK_MAX: u64 = 64 << 20;
