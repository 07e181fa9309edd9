//! How messages travel: blocking sockets, Unix and TCP, behind the trait [`Link`]; a client that comes back by itself,
//! and a server that stays bounded whatever its peers do. It knows frames and sessions, not what a message means.
//!
//! A connection carries one request at a time, so nothing waits behind a large request but who waits for a connection;
//! small, large and slow requests have connections of their own. A client has one *session*, whatever becomes of its
//! connections; the server remembers in it what must not happen twice.
//!
//! # Invariants
//!
//! 1. A request is executed at most once within a session's memory, however often it is sent, if doing it twice would
//!    differ from doing it once ([`Service::remembers`]).
//! 2. Once a client was answered, or has given up, no lost copy of that request changes anything after a later change of
//!    the same file has begun ([`Service::targets`]).
//! 3. Nothing is read from a peer that has not proved who it is, but a handshake of bounded size and time.
//! 4. Every wait ends: by its deadline, by an interruption, or - where a caller wants neither - by an answer.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod address;
mod client;
mod data;
mod duplicate_requests;
mod frame;
mod handshake;
pub mod limits;
mod link;
mod listener;
mod outstanding;
mod pool;
mod secret;
mod session;
mod strangers;

pub use address::{Address, AddressError};
pub use client::{Answer, Call, CallError, Client, Who};
pub use data::{Data, Gathered};
pub use frame::{Frame, Framed};
pub use link::{Link, Peer};
pub use listener::{AllowedPeers, Server};
pub use pool::Lane;
pub use secret::{Secret, SecretError};
pub use session::{InFile, Service, SessionInstance, Targets};
