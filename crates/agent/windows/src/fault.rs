//! Fault points of the window service, at which tests kill the agent.

/// Names of all fault points, in the order of the steps.
pub const POINTS: &[&str] = &[
    "window.ring",
    "window.granted",
    "window.written",
    "window.marked",
    "window.released",
    "window.revoked",
    "window.drained",
    "window.removed",
];

pub(crate) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
