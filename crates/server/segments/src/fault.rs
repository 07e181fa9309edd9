//! Fault points of the store ([`faults`]): one after every step that a crash can separate from the next.

/// Every point, in the order of the steps.
pub const POINTS: &[&str] = &[
    "segment.created",
    "segment.allocated",
    "segment.headed",
    "put.reserved",
    "put.written",
    "put.placed",
    "sync.segment",
    "sync.directory",
    "seal.cut",
    "seal.half",
    "seal.written",
    "compact.copied",
    "compact.moved",
    "compact.synced",
    "compact.removed",
];

/// Passes a point.
pub(crate) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
