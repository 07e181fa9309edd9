//! Fault points of requests to a server. A test kills the agent there: the server has executed a request, and no
//! program here was told.

/// Names of all fault points.
pub const POINTS: &[&str] =
    &["remote.opened", "remote.written", "remote.cut", "remote.closed", "remote.removing", "remote.unlinked"];

/// Passes a fault point; see [`faults`].
pub(crate) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
