//! One file a command.

pub mod check;
pub mod mount;
pub mod policy;
pub mod recover;
pub mod run;
