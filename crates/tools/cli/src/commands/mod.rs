//! One file a command.

pub mod check;
pub mod mount;
pub mod recover;
pub mod run;
