//! Fault points of the name log ([`faults`]): one after every step that a crash can separate from the next.

/// Every point, in the order of the steps.
pub const POINTS: &[&str] = &[
    "names.cut",
    "names.created",
    "names.appended",
    "names.synced",
    "names.copied",
    "names.settled",
    "names.deleted",
    "names.cleaned",
];

/// Points of bringing changes to the global store, in the order of the steps.
pub const APPLY_POINTS: &[&str] = &[
    "apply.noted",
    "apply.logged",
    "apply.begun",
    "apply.created",
    "apply.filled",
    "apply.revealed",
    "apply.renamed",
    "apply.linked",
    "apply.unlinked",
    "apply.parked",
    "apply.dressed",
    "apply.removed",
    "apply.synced",
    "apply.applied",
];

/// Passes a point.
pub(crate) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name) || APPLY_POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
