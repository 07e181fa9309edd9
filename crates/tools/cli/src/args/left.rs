//! The commands about burst buffers that no agent uses.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

/// `forebay recover`
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The burst buffer that was left
    #[arg(value_name = "BB")]
    pub burst_buffer: PathBuf,
    /// The directory that it served [default: as the burst buffer says]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Give up the windows that lay here, on a file system that is gone, first: what they held is lost; once for each such place
    #[arg(long, value_name = "PATH")]
    pub forget_windows: Vec<PathBuf>,
}

/// `forebay check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A burst buffer that no agent uses
    #[arg(value_name = "BB")]
    pub burst_buffer: PathBuf,
    /// Mend what can be mended; dirty data is never removed
    #[arg(long)]
    pub repair: bool,
    /// The directory that it served, for --repair [default: as the burst buffer says]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `forebay clean`
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Burst buffer
    #[arg(value_name = "BB")]
    pub burst_buffer: PathBuf,
    /// Only what was not used for so long, for example 1d or 2h
    #[arg(long, value_name = "T", value_parser = duration)]
    pub older: Option<Duration>,
    /// Only the data of this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Say what would be freed, and free nothing
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `forebay undelegate`
#[derive(Debug, Args)]
pub struct UndelegateArgs {
    /// Directory that is delegated to an agent which does not come back
    pub dir: PathBuf,
    /// End it although the holder may have names and data that the global store lacks
    #[arg(long)]
    pub force: bool,
}
