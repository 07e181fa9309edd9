//! The places of the window service where a test kills the agent.

/// Every point, in the order of the steps.
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

/// Passes a point; see `file_cache::fault`.
pub(super) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    file_cache::fault::pass(name);
}
