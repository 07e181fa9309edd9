//! The commands about burst buffers that no agent uses.

use std::path::PathBuf;

use clap::Args;

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
