//! The command of a server.

use std::path::PathBuf;

use clap::Args;
use transport::Address;

use super::Rules;
use crate::burst_buffer::BurstBuffer;

/// `forebay serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The directory that is accelerated, as it is mounted here
    pub dir: PathBuf,
    #[command(flatten)]
    pub burst_buffer: BurstBuffer,
    /// Where to listen, unix:PATH or tcp:HOST:PORT; may be repeated
    #[arg(long, value_name = "ADDR", required = true)]
    pub listen: Vec<Address>,
    /// The secret that agents on the network must have; a file that only its owner may read
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Serve whoever reaches the TCP port, without a secret
    #[arg(long, conflicts_with = "secret")]
    pub anonymous: bool,
    #[command(flatten)]
    pub rules: Rules,
    /// No other machine changes the directory but through this server: leave no marks on files
    #[arg(long)]
    pub exclusive: bool,
}
