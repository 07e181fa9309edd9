//! Fault points of the file cache ([`faults`]): one after every step that a crash can separate from the next.

/// Every point, in the order of the steps.
pub const POINTS: &[&str] = &[
    "w0.replica",
    "w0.intent",
    "w0.truncated",
    "w2.synced",
    "w3.draining",
    "w4.cut",
    "w4.range",
    "w4.written",
    "w5.sized",
    "w5.mtime",
    "w6.synced",
    "w6.unmarked",
    "w7.verified",
    "w7.sums",
    "w7.committed",
    "w8.dropped",
    "p0.replica",
    "p1.range",
    "p3.checked",
    "p3.sums",
    "p4.clean",
    "evict.record",
    "evict.replica",
    "unlink.intent",
    "unlink.below",
    "unlink.kept",
    "unlink.synced",
    "unlink.record",
    "unlink.replica",
];

/// Passes a point.
pub fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
