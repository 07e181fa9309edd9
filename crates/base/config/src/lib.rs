//! Policies: the rules of directories, inherited downwards, live for new opens.
//!
//! [`KEYS`] is the one table behind the parser, the help, `forebay policy list --keys` and `docs/policies.md`. A
//! [`PolicySet`] is what somebody said (any subset of the keys); a [`Policy`] is what holds for one file.

mod document;
mod keys;
mod policy;
mod set;
mod units;

pub use document::policies_page;
pub use keys::{KEYS, Key, KeyError, key};
pub use policy::{Atime, Cache, KeepAfter, Lock, OnConflict, Policy, StageOut, Verify, WindowPolicy};
pub use set::PolicySet;
pub use units::{format_duration, format_size, parse_duration, parse_size};
