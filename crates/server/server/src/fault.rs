//! Points at which a test kills the server: a request is executed, and the agent has not received the answer.

use wire::Message;

/// Every point.
pub const POINTS: &[&str] = &[
    "serve.opened",
    "serve.written",
    "serve.appended",
    "serve.cut",
    "serve.allocated",
    "serve.synced",
    "serve.flushed",
    "serve.closed",
    "serve.removing",
    "serve.unlinked",
];

/// Returns the point that follows a request which changes something.
pub(crate) fn behind(request: &Message) -> Option<&'static str> {
    Some(match request {
        Message::Open { .. } => "serve.opened",
        Message::Write { .. } | Message::WriteBackdated { .. } => "serve.written",
        Message::Append { .. } => "serve.appended",
        Message::SetLen { .. } | Message::Truncate { .. } => "serve.cut",
        Message::Allocate { .. } => "serve.allocated",
        Message::Sync { .. } => "serve.synced",
        Message::Flush { .. } => "serve.flushed",
        Message::Close { .. } => "serve.closed",
        Message::Removing { .. } => "serve.removing",
        Message::Unlinked { .. } => "serve.unlinked",
        _ => return None,
    })
}

/// Passes a point. See [`faults`].
pub(crate) fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    faults::pass(name);
}
