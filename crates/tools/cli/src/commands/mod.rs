//! Commands, one file each.

pub mod check;
pub mod clean;
pub mod mount;
pub mod mount_names;
pub mod policy;
pub mod recover;
pub mod resolve;
pub mod run;
pub mod run_names;
pub mod serve;
pub mod stage;
pub mod status;
pub mod umount;
pub mod undelegate;
