//! Description of a store.

use super::Ns;

/// Lock protocol: which clients may access which ranges at a time, and the cost of a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// No locks
    #[default]
    None,
    /// One lock for a file; it moves to whoever writes
    File,
    /// Ranges that grow to all that nobody else holds, as in Lustre; a conflict takes the whole of what was granted
    Expand,
    /// Ranges as asked for, rounded to the granularity
    Exact,
    /// Nothing is granted: each operation goes through the manager
    Central,
}

/// Description of a store. `None` means no limit, 0 no cost. Rates are bytes per second, times nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Rate of the core network: all reads and writes together.
    pub bandwidth: Option<f64>,
    /// Least duration of every operation.
    pub latency: Ns,
    /// Most additional latency, chosen by `seed`.
    pub jitter: Ns,
    pub seed: u64,
    /// Rate of one open file description.
    pub stream: Option<f64>,
    /// Rate of one client's processor, in bytes that it moves.
    pub client_cpu: Option<f64>,
    pub client_link: Option<f64>,
    /// Number of servers, over which the targets are distributed.
    pub servers: usize,
    pub server_link: Option<f64>,
    /// Number (from 0) of a slow server, and its fraction of `server_link`.
    pub slow_server: Option<(usize, f64)>,
    /// Number of targets that files are striped over.
    pub targets: usize,
    pub target: Option<f64>,
    /// Number (from 0) of a slow target, and its fraction of `target`. Seeks take longer by the inverse fraction.
    pub slow_target: Option<(usize, f64)>,
    /// Bytes of a stripe: the data on one target before the next target follows.
    pub stripe: u64,
    /// Time for a read that does not start where the previous one ended.
    pub seek: Ns,
    /// Time for a read that starts where the previous one ended.
    pub adjacent: Ns,
    /// Time for a write that does not start where the previous operation ended.
    pub write_seek: Ns,
    pub round_trip: Ns,
    pub message: u64,
    /// Time that the metadata server needs for one operation.
    pub metadata: Ns,
    /// Number of metadata operations served in parallel.
    pub metadata_concurrency: usize,
    pub lock: Protocol,
    /// Time that the lock manager needs for one request; requests are served one at a time.
    pub lock_service: Ns,
    /// Granularity of locked ranges in bytes.
    pub lock_granularity: u64,
    /// Time that the metadata server needs to update the access time after each read.
    pub atime: Ns,
    /// Most bytes acknowledged, even by fsync, before they have passed: a cache that cheats.
    pub cheat: u64,
    /// Unused bandwidth that may be made up for, to compensate late wake-ups. 0 in simulations.
    pub burst: Ns,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            bandwidth: None,
            latency: 0,
            jitter: 0,
            seed: 0,
            stream: None,
            client_cpu: None,
            client_link: None,
            servers: 1,
            server_link: None,
            slow_server: None,
            targets: 1,
            target: None,
            slow_target: None,
            stripe: 1 << 20,
            seek: 0,
            adjacent: 0,
            write_seek: 0,
            round_trip: 0,
            message: 1 << 20,
            metadata: 0,
            metadata_concurrency: 1,
            lock: Protocol::None,
            lock_service: 0,
            lock_granularity: 4096,
            atime: 0,
            cheat: 0,
            burst: 0,
        }
    }
}
