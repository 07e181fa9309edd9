//! What each resource did, as counters of a real one would tell it.

use super::Ns;

/// What a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A client's processor.
    ClientCpu,
    /// A client's link.
    ClientLink,
    /// What all data crosses.
    Core,
    /// A server's link.
    ServerLink,
    /// A target.
    Target,
    /// The metadata server.
    Metadata,
    /// The lock protocol: the manager's work, and the time that operations waited for grants.
    Lock,
}

impl Kind {
    /// Its name in the mount's statistics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ClientCpu => "client-cpu",
            Kind::ClientLink => "client-link",
            Kind::Core => "core",
            Kind::ServerLink => "server-link",
            Kind::Target => "target",
            Kind::Metadata => "metadata",
            Kind::Lock => "lock",
        }
    }
}

/// What one resource did since the bed began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub kind: Kind,
    /// Its number among those of its kind.
    pub number: usize,
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time it was at work; of [`Kind::Metadata`] of all its threads together.
    pub busy: Ns,
    /// Time that operations waited for it, beyond its work.
    pub waited: Ns,
}

/// Counters of one resource.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    pub operations: u64,
    pub bytes: u64,
    pub busy: Ns,
    pub waited: Ns,
}

impl Counters {
    /// As a counter of the resource shows it at a time when `behind` of the work is still to be done.
    pub fn told(self, kind: Kind, number: usize, behind: Ns) -> Use {
        let Counters { operations, bytes, busy, waited } = self;
        let done = 1.0 - behind.min(busy) as f64 / busy.max(1) as f64;
        let bytes = (bytes as f64 * done).round() as u64;
        Use { kind, number, operations, bytes, busy: busy - behind.min(busy), waited }
    }
}
