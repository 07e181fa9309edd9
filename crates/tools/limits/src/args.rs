//! The words of `forebay limits`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What this storage can do, what it does, and where it is lost.
#[derive(Debug, Subcommand)]
pub enum LimitsArgs {
    /// The limits that specifications allow, before anything is bought or run
    Plan(PlanArgs),
}

/// `forebay limits plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The cluster, as docs/limits.md describes it
    pub cluster: PathBuf,
    /// A change and what binds then: io_nodes*=2, clients.rate=200 Gbit/s, storage_network=separate; several joined by commas
    #[arg(long, value_name = "CHANGE")]
    pub what_if: Vec<String>,
    /// Results as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Results as a file for `report`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
