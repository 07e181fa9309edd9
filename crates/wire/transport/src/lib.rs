//! Transport of messages over blocking Unix and TCP sockets, behind the trait [`Link`]. The client reconnects by
//! itself. The server's memory and threads stay bounded, however its peers behave. This crate knows frames and
//! sessions, not the meaning of messages.
//!
//! A connection carries one request at a time, so a large request delays only those that wait for a connection.
//! Quick, small, large and slow requests have connections of their own. A client has one *session* over all of its
//! connections. In the session the server remembers answers to requests that must not be executed twice.
//!
//! # Invariants
//!
//! 1. Within a session instance, a request is executed at most once, however often it is sent, if a second execution
//!    would differ from the first ([`Service::remembers`]).
//! 2. A client was answered or has given up, and a later change of the same file has begun: no late copy of the
//!    request changes anything any more ([`Service::targets`]).
//! 3. From a peer that has not proved its identity, only a handshake of bounded size and time is read.
//! 4. Every wait ends: at its deadline, by an interruption, or - where the caller sets neither - with an answer.

// Locks, clocks and threads are those of the crate `concurrency` (clippy.toml); tests may take the system's.
#![cfg_attr(not(test), deny(clippy::disallowed_types, clippy::disallowed_methods))]

mod address;
mod client;
mod counted;
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
mod socket;
mod strangers;
mod wait_limit;

pub use address::{Address, AddressError};
pub use client::{Answer, Call, CallError, Client, Who};
pub use data::{Data, InFile};
pub use duplicate_requests::Targets;
pub use frame::{Frame, Framed};
pub use link::{Dial, Link, Listener, NewConnection, Peer};
pub use listener::{AllowedPeers, Server};
pub use pool::Lane;
pub use secret::{Secret, SecretError};
pub use session::Service;
pub use types::SessionInstance;
pub use wait_limit::WaitLimit;
