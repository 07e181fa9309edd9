//! Policies: the rules of directories. Subdirectories inherit them, and files opened after a change follow the new
//! rules.
//!
//! [`KEYS`] is the one table behind the parser, the help, `forebay policy list --keys` and `docs/policies.md`. A
//! [`PolicySet`] contains the keys that were set in one place (any subset). A [`Policy`] contains the values in force
//! for one file.

mod document;
mod keys;
mod policy;
mod set;
mod units;

pub use document::policies_page;
pub use keys::{KEYS, Key, KeyError, key};
pub use policy::{Atime, Cache, Delegate, KeepAfter, Lock, OnConflict, Policy, StageOut, Verify, WindowPolicy};
pub use set::PolicySet;
pub use units::{format_duration, format_size, parse_duration, parse_size};
