//! Conversion of a slowfs bed's counters to readings.

use slowfs::model::{Kind, Spec, Use};

use super::{Part, Reading};

/// Returns the reading of a part over `seconds`, with the rate promised by the bed's description. `None` for parts
/// without a promise.
pub fn reading(told: &Use, planned: &Spec, seconds: f64) -> Option<Reading> {
    let threads = planned.metadata_concurrency.max(1) as f64;
    let (part, promise) = match told.kind {
        Kind::ClientCpu => (Part::ClientCpu, planned.client_cpu?),
        Kind::ClientLink => (Part::ClientLink, planned.client_link?),
        Kind::Core => (Part::Core, planned.bandwidth?),
        Kind::ServerLink => (Part::ServerLink, planned.server_link?),
        Kind::Target => (Part::Target, planned.target?),
        Kind::Metadata if planned.metadata > 0 => (Part::Metadata, threads * 1e9 / planned.metadata as f64),
        Kind::Lock if planned.lock_service > 0 => (Part::LockManager, 1e9 / planned.lock_service as f64),
        Kind::Metadata | Kind::Lock => return None,
    };
    let (names, requests) = (part == Part::Metadata, matches!(part, Part::Metadata | Part::LockManager));
    let moved = if requests { told.operations as f64 } else { told.bytes as f64 };
    let busy_s = told.busy as f64 / 1e9 / if names { threads } else { 1.0 };
    if busy_s <= 0.0 {
        return None;
    }
    let (gives, busy) = (moved / busy_s, busy_s / seconds);
    Some(Reading { part, number: told.number, planned: promise, gives, busy, moved })
}
