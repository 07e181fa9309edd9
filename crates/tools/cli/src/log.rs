//! `agent.log` in the burst buffer: the current file and the previous one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use crate::limits::LOG_BYTES_MAX;

/// Writer that appends to a file, and renames it to `.1` when it has grown too large.
struct Rotating {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl Rotating {
    fn open(path: PathBuf, bytes_max: u64) -> io::Result<Rotating> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Rotating { path, file, bytes, bytes_max })
    }
}

impl Write for Rotating {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            fs::rename(&self.path, old)?;
            *self = Rotating::open(std::mem::take(&mut self.path), self.bytes_max)?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const FILE: &str = "agent.log";

/// Returns the log of the agent that serves a place in a burst buffer. A `run` with several directories has one log
/// for all, in the burst buffer itself.
pub fn of(place: &Path) -> PathBuf {
    let above = place.parent().map(|above| above.join(FILE)).filter(|file| file.exists());
    let own = place.join(FILE);
    if own.exists() { own } else { above.unwrap_or(own) }
}

/// Logs to `agent.log` in `burst_buffer` from now on. `FOREBAY_LOG` filters as `RUST_LOG` does; the default is
/// `info`. If the log cannot be written, the agent serves without one.
pub fn start(burst_buffer: &Path) {
    // The log names files in directories that others may not search.
    file_cache::keep_private(burst_buffer);
    let Ok(file) = Rotating::open(burst_buffer.join(FILE), LOG_BYTES_MAX) else { return };
    let filter = EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A line that cannot be written is dropped: the terminal belongs to the command.
    let quiet = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).log_internal_errors(false);
    let _ = quiet.with_writer(Mutex::new(file)).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_renamed_once_it_is_full_and_no_line_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let mut log = Rotating::open(path.clone(), 10).unwrap();
        for line in ["first\n", "second\n", "3\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n3\n");
        assert_eq!(fs::read_to_string(dir.path().join("agent.log.1")).unwrap(), "first\n");
    }
}
