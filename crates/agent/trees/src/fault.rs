//! Fault points of packing and unpacking small files ([`faults`]): one after every step that a crash can separate from the next.

/// Every point, in the order of the steps.
pub const POINTS: &[&str] = &[
    "pack.put",
    "pack.logged",
    "pack.durable",
    "pack.emptied",
    "unpack.copied",
    "unpack.synced",
    "unpack.logged",
    "unpack.removed",
];

/// Passes a point.
pub(crate) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
