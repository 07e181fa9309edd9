//! What is promised.

use super::Ns;

/// Who may write where at one time, and what it costs to find out.
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

/// A store. `None` and 0 are "no bound" and "no cost". Rates are bytes a second, times nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// All reads and writes together: the core network.
    pub bandwidth: Option<f64>,
    /// Every operation lasts at least this.
    pub latency: Ns,
    /// Up to this much more, by `seed`.
    pub jitter: Ns,
    /// What chance follows from.
    pub seed: u64,
    /// One open description.
    pub stream: Option<f64>,
    /// One client's processor, as bytes that it moves.
    pub client_cpu: Option<f64>,
    /// One client's link.
    pub client_link: Option<f64>,
    /// Servers, among which the targets are dealt out.
    pub servers: usize,
    /// One server's link.
    pub server_link: Option<f64>,
    /// A server's link has only this part of `server_link`: its number from 0.
    pub slow_server: Option<(usize, f64)>,
    /// Targets that files are striped over.
    pub targets: usize,
    /// One target.
    pub target: Option<f64>,
    /// A target has only this part of `target`, and its seeks take that much longer.
    pub slow_target: Option<(usize, f64)>,
    /// Bytes on one target before the next one's turn.
    pub stripe: u64,
    /// A read elsewhere than the last one ended.
    pub seek: Ns,
    /// A read where the last one ended.
    pub adjacent: Ns,
    /// A write elsewhere than the last operation ended.
    pub write_seek: Ns,
    /// There and back, for each message.
    pub round_trip: Ns,
    /// Most bytes of one message.
    pub message: u64,
    /// The metadata server's work for one operation.
    pub metadata: Ns,
    /// Metadata operations that it does at a time.
    pub metadata_concurrency: usize,
    /// Who may write where.
    pub lock: Protocol,
    /// The lock manager's work for one request; it does one at a time.
    pub lock_service: Ns,
    /// What ranges are rounded to, bytes.
    pub lock_granularity: u64,
    /// The metadata server's work for the time of access after each read.
    pub atime: Ns,
    /// Bytes that are acknowledged, fsync included, before they have passed: a cache that cheats.
    pub cheat: u64,
    /// Unused bandwidth that may be caught up with, to make good for late wake-ups. 0 in simulations.
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
