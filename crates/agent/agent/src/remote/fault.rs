//! The places of the way to a server where a test kills the agent: the server has done something, and nobody here was told.

/// Every point.
pub const POINTS: &[&str] =
    &["remote.opened", "remote.written", "remote.cut", "remote.closed", "remote.removing", "remote.unlinked"];

/// Passes a point; see `file_cache::fault`.
pub(super) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    file_cache::fault::pass(name);
}
