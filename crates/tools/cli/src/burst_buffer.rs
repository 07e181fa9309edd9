//! `--burst-buffer`, and the environment in its place.

use std::path::PathBuf;

use clap::Args;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub struct BurstBuffer {
    /// Directory on a fast device that keeps files' data [env: FOREBAY_BURST_BUFFER]
    #[arg(long = "burst-buffer", value_name = "BB")]
    burst_buffer: Option<PathBuf>,
}

impl BurstBuffer {
    /// Returns the directory from the option or the environment.
    pub fn get(&self) -> Option<PathBuf> {
        let from_env = || std::env::var_os("FOREBAY_BURST_BUFFER").filter(|v| !v.is_empty()).map(PathBuf::from);
        self.burst_buffer.clone().or_else(from_env)
    }

    /// Returns the directory. Errors: a usage error if neither option nor environment names one.
    pub fn required(&self) -> Result<PathBuf, Failure> {
        self.get().ok_or_else(|| {
            Failure::new(exit::USAGE, "no burst buffer is named")
                .remedy("add --burst-buffer BB, or set FOREBAY_BURST_BUFFER, to a directory on a fast device")
        })
    }
}
