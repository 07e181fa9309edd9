//! Numbers of what a server remembers of its clients.

/// Random number of a session instance. A server makes it when it begins to remember a client. A server that was
/// started again, or has forgotten the client, makes another.
pub type SessionInstance = [u8; 16];
