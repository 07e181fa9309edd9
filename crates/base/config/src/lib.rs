//! Policies: the rules of directories, inherited downwards, live for new opens.

mod policy;

pub use policy::{Cache, KeepAfter, OnConflict, Policy, StageOut, Verify};
