//! The commands about files and directories: where their data is, and which rules hold.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use config::PolicySet;

use super::rule;
use crate::burst_buffer::BurstBuffer;

/// `forebay stage ...`
#[derive(Debug, Subcommand)]
pub enum StageCommand {
    /// Copy files' data into the burst buffer
    #[command(after_help = "Example: forebay stage in data/ --recursive --wait")]
    In(StageArgs),
    /// Copy files' dirty data to the global store
    #[command(after_help = "Example: forebay stage out results/ --recursive --wait")]
    Out(StageArgs),
    /// Drop clean data from the burst buffer; with --wait what is dirty is copied out first, and what is in use is waited for
    #[command(after_help = "Example: forebay stage evict data/ --recursive --wait")]
    Evict(StageArgs),
    /// Keep data in the burst buffer whatever happens; stages it in first
    #[command(after_help = "Example: forebay stage pin model.bin --wait")]
    Pin(StageArgs),
    /// Let pinned data go again
    #[command(after_help = "Example: forebay stage unpin model.bin")]
    Unpin(StageArgs),
    /// Show where files' data is, and what is pinned
    #[command(after_help = "Example: forebay stage state data/ --recursive")]
    State(StageArgs),
}

/// Files to stage.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// Files, or directories with --recursive
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Everything below directories too
    #[arg(short, long)]
    pub recursive: bool,
    /// Return only when it is done
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
}

/// `forebay drain`
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Accelerated directory, or any path inside: with --wait, a delegated directory that has it is given back
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Return only when everything is in the global store
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
}

/// `forebay policy ...`
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the rules that hold for a path
    #[command(after_help = "Example: forebay policy get results/ stage_out")]
    Get {
        /// File or directory
        path: PathBuf,
        /// Only this key
        key: Option<String>,
    },
    /// Set rules of a directory, for files opened from now on
    #[command(after_help = "Example: forebay policy set results/ stage_out=idle:10m keep_after=delete")]
    Set {
        /// Directory
        path: PathBuf,
        /// Rules
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = rule)]
        rules: Vec<PolicySet>,
    },
    /// Take rules of a directory back: the inherited ones hold again
    #[command(after_help = "Example: forebay policy unset results/ stage_out")]
    Unset {
        /// Directory
        path: PathBuf,
        /// Keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// List the directories that have rules of their own, or with --keys every key
    #[command(after_help = "Example: forebay policy list --keys")]
    List {
        /// Where to look
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Every key with its values, default and meaning
        #[arg(long)]
        keys: bool,
    },
}
